"""Lightning's Trainer with its ModelCheckpoint. VARIANT `file`: a checkpoint is one file. VARIANT `folder`: ModelParallelStrategy
with FSDP2; the checkpoint is a folder of torch.distributed.checkpoint, and `meta.pt` comes last. FSDPStrategy writes the same
folder, and wants a GPU."""

import os
import sys

import common

if common.VARIANT == "folder":  # as torchrun says it
    os.environ.update(TORCHELASTIC_RUN_ID="1", LOCAL_RANK=str(common.RANK), LOCAL_WORLD_SIZE=str(common.WORLD), GROUP_RANK="0")

import lightning  # noqa: E402
import torch  # noqa: E402
from lightning.pytorch.callbacks import Callback, ModelCheckpoint  # noqa: E402
from lightning.pytorch.strategies import ModelParallelStrategy  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import distribute_tensor  # noqa: E402


def weights(n):
    a = common.arrays(n)
    return {f"net.{i}.weight": torch.from_numpy(a[name].copy()) for i, name in enumerate(("embed", "head"))}


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(512, 1024, bias=False), torch.nn.Linear(1024, 512, bias=False))

    def configure_model(self):
        if common.VARIANT == "folder":
            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def fill(self, n):
        with torch.no_grad():
            for name, p in self.named_parameters():
                new = weights(n)[name]
                p.copy_(distribute_tensor(new, p.device_mesh, p.placements) if hasattr(p, "full_tensor") else new)

    def training_step(self, batch, _):
        return self.net(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0, momentum=0.9)


class Loop(Callback):
    def __init__(self):
        self.last = None

    def on_train_start(self, trainer, model):
        if trainer.global_step:
            self.last = trainer.global_step
            got = {k: p.full_tensor() if hasattr(p, "full_tensor") else p for k, p in model.state_dict().items()}
            common.same(got, weights(self.last))
        common.say("resumed", self.last or "none")

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step != (self.last or 0):
            common.say("saved", trainer.global_step)

    def on_train_batch_end(self, trainer, model, *_):
        model.fill(trainer.global_step)
        common.say("saving", trainer.global_step)  # ModelCheckpoint is called after all other callbacks

    def on_train_end(self, trainer, _):
        common.say("saved", trainer.global_step)


def newest(folder):
    steps = common.numbers(folder, "epoch=0-step=", ".ckpt")
    return steps[-1] if steps else None


def fit(folder, until, keep=-1, last=None):
    checkpoints = ModelCheckpoint(dirpath=folder, every_n_train_steps=1, save_top_k=keep, monitor="step" if keep > 0 else None, mode="max")
    strategy = ModelParallelStrategy(data_parallel_size=common.WORLD, tensor_parallel_size=1) if common.VARIANT == "folder" else "auto"
    trainer = lightning.Trainer(
        accelerator="cpu", devices=common.WORLD, strategy=strategy, max_steps=until, callbacks=[Loop(), checkpoints], logger=False,
        enable_progress_bar=False, enable_model_summary=False)
    data = torch.utils.data.DataLoader(torch.ones(1000, 512), batch_size=1)
    trainer.fit(Model(), data, ckpt_path=folder / f"epoch=0-step={last}.ckpt" if last else None)


def save(folder, n):
    """It numbers steps by itself: this is the next one."""
    fit(folder, n, last=newest(folder))


def load(folder, n):
    path = folder / f"epoch=0-step={n}.ckpt"
    if common.VARIANT == "folder":
        import torch.distributed.checkpoint as dcp
        state = {"state_dict": {k: torch.zeros_like(v) for k, v in weights(n).items()}}
        dcp.load(state, checkpoint_id=path)
        assert torch.load(path / "meta.pt", weights_only=False)["global_step"] == n
    else:
        state = torch.load(path, weights_only=False)
        assert state["global_step"] == n
    common.same(dict(state["state_dict"]), weights(n))


def train(folder, count, keep):
    last = newest(folder)
    fit(folder, (last or 0) + count, keep, last)


if __name__ == "__main__":
    if common.VARIANT == "folder":
        common.start_ranks()
    common.main(sys.modules[__name__])
