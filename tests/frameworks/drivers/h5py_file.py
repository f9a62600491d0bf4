"""HDF5 by h5py, with its locks."""

import os
import sys

import common
import h5py


def save(folder, n):
    with h5py.File(folder / f"model-{n}.h5", "w", locking=True) as f:
        for name, a in common.arrays(n).items():
            f.create_dataset(name, data=a, chunks=(64, 64) if name == "embed" else None)


def load(folder, n):
    with h5py.File(folder / f"model-{n}.h5", "r", locking=True) as f:
        common.same({name: d[()] for name, d in f.items()}, common.arrays(n))


def steps(folder):
    return common.numbers(folder, "model-", ".h5")


def remove(folder, n):
    os.unlink(folder / f"model-{n}.h5")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
