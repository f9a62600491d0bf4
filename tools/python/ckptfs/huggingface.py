"""A callback for the Trainer of Hugging Face's transformers.

    from ckptfs.huggingface import StepCallback, resume

    trainer = Trainer(..., args=TrainingArguments("/ckpt/run7", save_strategy="no"), callbacks=[StepCallback("/ckpt", "run7")])
    trainer.train(resume_from_checkpoint=resume("/ckpt", "run7"))

The Trainer itself saves into a mount as into any folder, and each of its checkpoints becomes a step. The callback adds four
things: the store's policy says when to save; on_save returns when the step is committed; the step gets the last metrics of the Trainer's
log and its epoch, as a second version; and a Trainer that saves elsewhere, as on a disk of its machine, gets each checkpoint copied into the
store as one step, with the same metrics.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Optional

from torch import distributed
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from . import Error, Mode, StorePath, find, note, resolve, should_save, wait
from . import step as save_step
from ._staged import make_folder

log = logging.getLogger("ckptfs")

__all__ = ["StepCallback", "resume"]


def resume(store: StorePath, folder: str = "") -> Optional[str]:
    """The path for `resume_from_checkpoint`: the newest step of the folder in a mount; None: there is none."""
    choice = resolve(store, folder)
    if choice.mode != Mode.RESUME:
        return None
    if choice.path is None:
        raise Error(errno.ENOENT, "its store is not mounted on this machine; `ckptfs mount` does it", f"{store}/{choice.step}")
    return str(choice.path)


class StepCallback(TrainerCallback):
    """store: its directory or mount. folder: that of the run's steps; None: the store's root.

    policy: by the store's policy it is decided after each step of training whether to save; use save_strategy="no" with it.
    timeout: seconds to wait for the commit of a step that is saved into a mount; None: for ever.
    """

    def __init__(self, store: StorePath, folder: Optional[str] = None, policy: bool = True, timeout: Optional[float] = 600) -> None:
        self.store = os.fspath(store)
        self.folder = folder or ""
        self.policy = policy
        self.timeout = timeout

    def _name(self, state: TrainerState) -> str:
        return f"{self.folder}/checkpoint-{state.global_step}" if self.folder else f"checkpoint-{state.global_step}"

    def _is_in_store(self, args: TrainingArguments) -> bool:
        """The Trainer's own folder is the one of the steps, in a mount."""
        wanted = os.path.join(os.path.realpath(self.store), self.folder)
        return os.path.realpath(str(args.output_dir)) == os.path.normpath(wanted)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> TrainerControl:
        # All processes ask, and get one answer.
        if self.policy and not control.should_save:
            control.should_save = bool(should_save(self.store, state.global_step, self.folder or None))
        return control

    @staticmethod
    def metrics(state: TrainerState) -> Dict[str, float]:
        """The newest number of each name in the Trainer's log."""
        found: Dict[str, float] = {}
        for line in state.log_history:
            found.update({k: float(v) for k, v in line.items() if isinstance(v, (int, float)) and k not in ("step", "epoch")})
        return found

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> TrainerControl:
        # Other processes may be writing yet, as their rng_state_N.pth.
        if distributed.is_available() and distributed.is_initialized():
            distributed.barrier()
        if state.is_world_process_zero:
            name = self._name(state)
            if self._is_in_store(args):
                wait(self.store, name, self.timeout)
                self._note(name, state)
            elif find(self.store, name) is None:
                self._copy(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}", name, state)
        return control

    def _note(self, name: str, state: TrainerState) -> None:
        try:
            note(self.store, name, self.metrics(state), {"epoch": state.epoch})
        except Error as e:  # the step is safe: training goes on
            log.warning("%s is committed without its metrics: %s", name, e)

    def _copy(self, source: Path, name: str, state: TrainerState) -> None:
        make_folder(self.store, self.folder)
        with save_step(self.store, name, metrics=self.metrics(state), extras={"epoch": state.epoch}) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True)
