"""A callback for Lightning's Trainer.

    from ckptfs.lightning import StepCheckpoint, resume

    trainer = Trainer(..., callbacks=[StepCheckpoint("/ckpt", "run7")], enable_checkpointing=False)
    trainer.fit(model, data, ckpt_path=resume("/ckpt", "run7"))

Lightning's own ModelCheckpoint saves into a mount as into any folder. This callback takes its place where the store is to say when to save
and what to keep: each save is one step with the numbers of `trainer.callback_metrics`, committed before training goes on. Saving
needs no mount, but the run's folder, which is made in a mount; resuming needs one.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Dict, Optional

try:
    import lightning.pytorch as pl
except ImportError:  # the older package of the same code
    import pytorch_lightning as pl

from . import Answer, Error, Mode, Staged, StorePath, resolve, should_save
from ._staged import make_folder

__all__ = ["StepCheckpoint", "resume"]

FILE = "checkpoint.ckpt"  # a file, or a folder of shards, as the strategy writes it


def resume(store: StorePath, folder: str = "") -> Optional[str]:
    """The `ckpt_path` of the newest step of the folder in a mount; None: there is none."""
    choice = resolve(store, folder)
    if choice.mode != Mode.RESUME:
        return None
    if choice.path is None:
        raise Error(errno.ENOENT, "its store is not mounted on this machine; `ckptfs mount` does it", f"{store}/{choice.step}")
    return str(choice.path / FILE)


class StepCheckpoint(pl.Callback):
    """Saves steps named by `trainer.global_step`.

    every_n_steps: None: by the store's policy, which is asked after each step of training; else after so many, and at the end.
    weights_only: as of trainer.save_checkpoint().
    """

    def __init__(self, store: StorePath, folder: str = "", every_n_steps: Optional[int] = None, weights_only: bool = False) -> None:
        self.store = os.fspath(store)
        self.folder = folder
        self.every_n_steps = every_n_steps
        self.weights_only = weights_only
        self.last = 0  # the step that was saved, or resumed from

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.last = trainer.global_step

    def _answer(self, step: int) -> Answer:
        if self.every_n_steps is not None:
            return Answer.NO if step % self.every_n_steps else Answer.PERMANENT
        return should_save(self.store, step, self.folder or None)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        # With gradient accumulation several batches are one step.
        if trainer.global_step <= self.last:
            return
        answer = trainer.strategy.broadcast(int(self._answer(trainer.global_step)) if trainer.is_global_zero else None)
        if answer:
            self.save(trainer, temporary=answer == Answer.TEMPORARY)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.every_n_steps is not None and trainer.global_step > self.last:
            self.save(trainer)

    @staticmethod
    def metrics(trainer: Any) -> Dict[str, float]:
        return {str(k): float(v) for k, v in trainer.callback_metrics.items() if getattr(v, "numel", lambda: 1)() == 1}

    def save(self, trainer: Any, temporary: bool = False) -> None:
        """On all ranks. The step is committed when it returns."""
        step, staged = trainer.global_step, None
        failed: Optional[Exception] = None
        name = f"{self.folder}/{step}" if self.folder else str(step)
        self.last = step
        if trainer.is_global_zero:
            try:
                make_folder(self.store, self.folder)
                staged = Staged(self.store, name)
            except Exception as e:  # noqa: BLE001  (it is raised below, on all ranks)
                failed = e
        try:
            # The other ranks wait for this: they get the failure, too.
            path, said = trainer.strategy.broadcast((str(staged.path / FILE) if staged else None, str(failed) if failed else None))
            if said is not None:
                raise failed or Error(errno.ECANCELED, f"rank 0 could not begin: {said}", f"{self.store}/{name}")
            trainer.save_checkpoint(path, weights_only=self.weights_only)
            trainer.strategy.barrier("ckptfs")
            if staged:
                staged.commit(self.metrics(trainer), {"epoch": trainer.current_epoch}, temporary)
        except BaseException:
            if staged:
                staged.abort()
            raise
        trainer.strategy.barrier("ckptfs")
