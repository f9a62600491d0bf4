"""torch.save and torch.load, mapped too."""

import os
import sys

import common
import torch


def tensors(n):
    return {k: torch.from_numpy(v.copy()) for k, v in common.arrays(n).items()} | {"brain": torch.arange(3000, dtype=torch.float32).mul(n).to(torch.bfloat16)}


def same(got, n):
    want = tensors(n)
    assert torch.equal(got.pop("brain").view(torch.int16), want.pop("brain").view(torch.int16))
    common.same(got, want)


def save(folder, n):
    torch.save(tensors(n), folder / f"model-{n}.pt")


def load(folder, n):
    same(torch.load(folder / f"model-{n}.pt"), n)
    same(torch.load(folder / f"model-{n}.pt", mmap=True), n)


def steps(folder):
    return common.numbers(folder, "model-", ".pt")


def remove(folder, n):
    os.unlink(folder / f"model-{n}.pt")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
