"""accelerate: save_state with names of its own, the oldest removed before each, and load_state of the newest."""

import shutil
import sys
import time

import common
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        a = common.arrays(0)
        self.embed, self.head, self.norm = (torch.nn.Parameter(torch.zeros(a[k].shape)) for k in ("embed", "head", "norm"))


def weights(n):
    a = common.arrays(n)
    return {k: torch.from_numpy(a[k].copy()) for k in ("embed", "head", "norm")}


class Counter:
    """What a script has beside the model, as a custom checkpoint."""

    def __init__(self):
        self.n = -1

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]


def start(folder, iteration=0, keep=None, naming=True):
    project = ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=naming, total_limit=keep, iteration=iteration)
    a = Accelerator(project_config=project, cpu=True)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    model, optimizer = a.prepare(model, optimizer)
    counter = Counter()
    a.register_for_checkpointing(counter)
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()
    return a, model, counter


def saved(a, model, counter, n, where=None):
    time.sleep(3.5)  # a step of training: the save before is complete 2 s after its last change, and counts for total_limit from then on
    new = weights(n)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(new[name])
    counter.n = n
    a.save_state(where)


def compare(a, model, counter, n, where=None):
    a.load_state(where)
    common.same(dict(model.state_dict()), weights(n))
    assert counter.n == n


def save(folder, n):
    saved(*start(folder, iteration=n), n)


def load(folder, n):
    compare(*start(folder), n, str(folder / f"checkpoints/checkpoint_{n}"))


def save_as(folder, name, n):
    saved(*start(folder, naming=False), n, str(folder / name))


def load_as(folder, name, n):
    compare(*start(folder, naming=False), n, str(folder / name))


def resumable(where):
    """Whoever was killed between accelerate's own files and those of the script left a step that load_state refuses."""
    for n in common.numbers(where, "checkpoint_") if where.is_dir() else []:
        if not (where / f"checkpoint_{n}/custom_checkpoint_0.pkl").exists():
            shutil.rmtree(where / f"checkpoint_{n}")
    return common.numbers(where, "checkpoint_") if where.is_dir() else []


def train(folder, count, keep):
    where = folder / "checkpoints"
    steps = resumable(where)
    last = steps[-1] if steps else None
    a, model, counter = start(folder, (last or 0) + 1, keep)
    if last is not None:
        compare(a, model, counter, last)
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        saved(a, model, counter, n)
        common.say("saved", n)


if __name__ == "__main__":
    common.main(sys.modules[__name__])
