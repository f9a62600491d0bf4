"""safetensors: one file a step."""

import os
import sys

import common
from safetensors.numpy import load_file, save_file


def save(folder, n):
    save_file(common.arrays(n), folder / f"model-{n}.safetensors")


def load(folder, n):
    common.same(load_file(folder / f"model-{n}.safetensors"), common.arrays(n))


def steps(folder):
    return common.numbers(folder, "model-", ".safetensors")


def remove(folder, n):
    os.unlink(folder / f"model-{n}.safetensors")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
