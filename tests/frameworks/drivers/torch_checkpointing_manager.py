"""torch_checkpointing's CheckpointManager, which torchtitan has as its newer way: it writes into `tmp_step-N` from a process of its own,
and renames that. Its direct I/O is off: it writes pieces of any size so, and no disk takes them."""

import shutil
import sys

import common
import torch
from torch_checkpointing import CheckpointManager
from torch_checkpointing.config import AsyncCheckpointSaverConfig
from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

MANAGER = None


def manager():
    global MANAGER
    if MANAGER is None:
        MANAGER = CheckpointManager.Config(save=AsyncCheckpointSaverConfig(), storage_config=LocalFileSystemStorageConfig(use_direct_io=False)).build()
    return MANAGER


def state(n):
    return {k: torch.from_numpy(v.copy()) for k, v in common.arrays(n).items()}


def save_as(folder, name, n):
    manager().save(str(folder / name), {"model": state(n)}).result()


def load_as(folder, name, n):
    blank = {k: torch.zeros_like(v) for k, v in state(n).items()}
    common.same(dict(manager().load(str(folder / name), into={"model": blank})["model"]), common.arrays(n))


def save(folder, n):
    save_as(folder, f"step-{n}", n)


def load(folder, n):
    load_as(folder, f"step-{n}", n)


def steps(folder):
    return common.numbers(folder, "step-")


def remove(folder, n):
    shutil.rmtree(folder / f"step-{n}")


def end():
    if MANAGER:
        MANAGER.close()


if __name__ == "__main__":
    common.main(sys.modules[__name__])
