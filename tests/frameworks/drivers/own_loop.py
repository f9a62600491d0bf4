"""A loop of one's own, with torch.save into a folder that the loop has named: VARIANT is the name before the number."""

import os
import shutil
import sys

import common
import torch

PARTS = ("embed", "head", "rest")


def tensors(n):
    whole = {k: torch.from_numpy(v.copy()) for k, v in common.arrays(n).items()}
    return {"embed": {"embed": whole.pop("embed")}, "head": {"head": whole.pop("head")}, "rest": whole}


def save(folder, n):
    path = folder / f"{common.VARIANT}{n}"
    os.makedirs(path, exist_ok=True)
    for part, state in tensors(n).items():
        torch.save(state, path / f"{part}.pt")
    with open(path / "config.yaml", "w", encoding="utf-8") as f:
        f.write(f"step: {n}\n")


def load(folder, n):
    path = folder / f"{common.VARIANT}{n}"
    common.same({k: v for part in PARTS for k, v in torch.load(path / f"{part}.pt").items()}, common.arrays(n))
    assert (path / "config.yaml").read_text(encoding="utf-8") == f"step: {n}\n"


def train(folder, count, keep):
    steps = common.numbers(folder, common.VARIANT) if folder.is_dir() else []
    last = steps[-1] if steps else None
    if last is not None:
        load(folder, last)
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        save(folder, n)
        common.say("saved", n)
        common.wait_listed(folder / f"{common.VARIANT}{n}")
        for old in common.numbers(folder, common.VARIANT)[:-keep]:
            shutil.rmtree(folder / f"{common.VARIANT}{old}")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
