"""numpy: savez and save, the latter mapped when it is read."""

import os
import sys

import common
import numpy as np

SUFFIX = {"npz": ".npz", "npy": ".npy"}[common.VARIANT]


def array(n):
    return common.arrays(n)["embed"]


def save(folder, n):
    if SUFFIX == ".npz":
        np.savez(folder / f"model-{n}.npz", **common.arrays(n))
    else:
        np.save(folder / f"model-{n}.npy", array(n))


def load(folder, n):
    if SUFFIX == ".npz":
        with np.load(folder / f"model-{n}.npz") as f:
            common.same(dict(f), common.arrays(n))
        return
    for mode in (None, "r", "c"):
        common.same({"": np.load(folder / f"model-{n}.npy", mmap_mode=mode)}, {"": array(n)})


def steps(folder):
    return common.numbers(folder, "model-", SUFFIX)


def remove(folder, n):
    os.unlink(folder / f"model-{n}{SUFFIX}")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
