"""torchsnapshot: Snapshot.take, and async_take (VARIANT=async)."""

import shutil
import sys

import common
import torch
import torchsnapshot


class State(dict):
    def state_dict(self):
        return dict(self)

    def load_state_dict(self, got):
        self.update(got)


def state(n, blank=False):
    tensors = {k: torch.from_numpy(v.copy()) for k, v in common.arrays(n).items()}
    return State({k: torch.zeros_like(t) for k, t in tensors.items()} if blank else tensors)


def save_as(folder, name, n):
    path = str(folder / name)
    if common.VARIANT == "async":
        torchsnapshot.Snapshot.async_take(path, {"state": state(n)}).wait()
    else:
        torchsnapshot.Snapshot.take(path, {"state": state(n)})


def load_as(folder, name, n):
    got = state(n, blank=True)
    torchsnapshot.Snapshot(str(folder / name)).restore({"state": got})
    common.same(got, common.arrays(n))


def save(folder, n):
    save_as(folder, f"step_{n}", n)


def load(folder, n):
    load_as(folder, f"step_{n}", n)


def steps(folder):
    return common.numbers(folder, "step_")


def remove(folder, n):
    shutil.rmtree(folder / f"step_{n}")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
