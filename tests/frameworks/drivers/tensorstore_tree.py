"""TensorStore: a folder with an array each, in zarr or zarr3. It knows no steps; the script's own last move is the marker."""

import shutil
import sys

import common
import tensorstore as ts

DRIVER = common.VARIANT


def opened(path, **how):
    return ts.open({"driver": DRIVER, "kvstore": {"driver": "file", "path": f"{path}/"}}, **how)


def save(folder, n):
    for name, a in common.arrays(n).items():
        opened(folder / f"step_{n}" / name, create=True, delete_existing=True, dtype=ts.dtype(a.dtype), shape=a.shape).result().write(a).result()
    (folder / f"step_{n}" / ".finalize").touch()


def load(folder, n):
    want = common.arrays(n)
    common.same({name: opened(folder / f"step_{n}" / name, open=True).result().read().result() for name in want}, want)


def steps(folder):
    return common.numbers(folder, "step_")


def remove(folder, n):
    shutil.rmtree(folder / f"step_{n}")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
