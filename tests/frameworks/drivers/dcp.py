"""torch.distributed.checkpoint: sharded tensors, saved by all ranks into one folder."""

import os
import shutil
import sys

import common
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def state(n, blank=False):
    mesh = init_device_mesh("cpu", (common.WORLD,))
    out = {}
    for name, a in common.arrays(n).items():
        t = torch.zeros_like(torch.from_numpy(a)) if blank else torch.from_numpy(a.copy())
        out[name] = distribute_tensor(t, mesh, [Shard(0)]) if name in ("embed", "head", "ids") else t
    return {"model": out}


def save(folder, n):
    save_as(folder, f"step_{n}", n)


def load(folder, n):
    load_as(folder, f"step_{n}", n)


def save_as(folder, name, n):
    if common.VARIANT == "async":
        dcp.async_save(state(n), checkpoint_id=folder / name).result()
    else:
        dcp.save(state(n), checkpoint_id=folder / name)


def load_as(folder, name, n):
    got = state(n, blank=True)
    dcp.load(got, checkpoint_id=folder / name)
    common.same({k: t.full_tensor() if hasattr(t, "full_tensor") else t for k, t in got["model"].items()}, common.arrays(n))


def steps(folder):
    found = [common.numbers(folder, "step_")]
    dist.broadcast_object_list(found)  # one listing for all: the others may look a moment later
    return found[0]


def remove(folder, n):
    shutil.rmtree(folder / f"step_{n}")


def train(folder, count, keep):
    found = steps(folder)
    last = found[-1] if found else None
    if last is not None:
        load(folder, last)
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        save(folder, n)
        if common.RANK == 0:
            for old in common.numbers(folder, "step_")[:-keep]:
                remove(folder, old)
        dist.barrier()
        common.say("saved", n)


def end():
    """At once: torch 2.13 may abort when it takes its threads apart after an async_save, on any filesystem."""
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    common.start_ranks()
    common.main(sys.modules[__name__])
