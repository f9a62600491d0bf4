"""DeepSpeed's engine, on the CPU, ZeRO stage 1, by torch's writer: its fast one has no code for the CPU (0.19.8 says so when the
first file is opened). VARIANT=slow: the last rank begins its file a second after the others, as on a disk that others use."""

import os
import shutil
import sys
import time

import common

os.environ["DS_ACCELERATOR"] = "cpu"
# As its launcher sets them for one machine.
os.environ |= {"LOCAL_RANK": str(common.RANK), "LOCAL_SIZE": str(common.WORLD), "CROSS_RANK": "0", "CROSS_SIZE": "1"}


import deepspeed  # noqa: E402
import torch  # noqa: E402

deepspeed.utils.logger.setLevel("ERROR")
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does, without a minute of compiling


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        a = common.arrays(0)
        self.embed, self.head, self.norm = (torch.nn.Parameter(torch.zeros(a[k].shape)) for k in ("embed", "head", "norm"))

    def forward(self):
        return self.embed.sum() + self.head.sum() + self.norm.sum()


def weights(n):
    a = common.arrays(n)
    return {k: torch.from_numpy(a[k].copy()) for k in ("embed", "head", "norm")}


def engine():
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.0, "torch_adam": True}},
              "zero_optimization": {"stage": 1}}
    model = Model()
    e, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    e.backward(e())
    e.step()
    if common.VARIANT == "slow" and common.RANK == common.WORLD - 1:
        write = e._save_zero_checkpoint
        e._save_zero_checkpoint = lambda *a: (time.sleep(1), write(*a))
    return e


def saved(e, folder, tag, n):
    new = weights(n)
    with torch.no_grad():
        for name, p in e.module.named_parameters():
            p.copy_(new[name])
    e.save_checkpoint(str(folder), tag=tag, client_state={"n": n})


def compare(e, folder, tag, n):
    path, client = e.load_checkpoint(str(folder), tag=tag)
    assert path and client["n"] == n, (path, client)
    common.same(dict(e.module.state_dict()), weights(n))


def save(folder, n):
    save_as(folder, f"global_step{n}", n)


def load(folder, n):
    load_as(folder, f"global_step{n}", n)


def save_as(folder, name, n):
    saved(engine(), folder, name, n)


def load_as(folder, name, n):
    compare(engine(), folder, name, n)


def train(folder, count, keep):
    """`latest` is what it resumes from: load_checkpoint without a tag."""
    e = engine()
    path, client = e.load_checkpoint(str(folder)) if (folder / "latest").exists() else (None, {})
    last = client["n"] if path else None
    if path:
        common.same(dict(e.module.state_dict()), weights(last))
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        saved(e, folder, f"global_step{n}", n)
        if common.RANK == 0:
            for old in common.numbers(folder, "global_step")[:-keep]:
                shutil.rmtree(folder / f"global_step{old}")
        common.say("saved", n)


def end():
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    common.start_ranks()
    common.main(sys.modules[__name__])
