"""zarr: a group of arrays, in its format 2 or 3. It knows no steps; the script's own last move is the marker."""

import shutil
import sys

import common
import zarr

FORMAT = int(common.VARIANT)


def save(folder, n):
    group = zarr.open_group(folder / f"step_{n}", mode="w", zarr_format=FORMAT)
    for name, a in common.arrays(n).items():
        group.create_array(name, shape=a.shape, dtype=a.dtype, chunks=tuple(max(1, min(s, 256)) for s in a.shape))[...] = a
    (folder / f"step_{n}" / ".finalize").touch()


def load(folder, n):
    group = zarr.open_group(folder / f"step_{n}", mode="r", zarr_format=FORMAT)
    common.same({name: a[...] for name, a in group.arrays()}, common.arrays(n))


def steps(folder):
    return common.numbers(folder, "step_")


def remove(folder, n):
    shutil.rmtree(folder / f"step_{n}")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
