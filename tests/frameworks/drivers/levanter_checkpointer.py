"""Levanter's Checkpointer: every third step stays, those between are temporary and deleted by it after the next one."""

import datetime
import sys
from types import SimpleNamespace

import common
import jax
from levanter.checkpoint import Checkpointer, CheckpointInterval, discover_latest_checkpoint, load_checkpoint


def state(n):
    return {"model": jax.tree.map(jax.numpy.asarray, common.arrays(n))}


def checkpointer(folder, temporaries=False):
    """`dt_now_injection`: each look at the clock is a minute later, so that each step is due."""
    clock = iter(datetime.datetime(2026, 1, 1) + datetime.timedelta(minutes=i) for i in range(100_000))
    return Checkpointer(str(folder), datetime.timedelta(seconds=1) if temporaries else None, [CheckpointInterval(every=3 if temporaries else 1)],
                        dt_now_injection=lambda: next(clock))


def compare(path, n):
    got = load_checkpoint(state(n), str(path), discover_latest=False)
    common.same(got["model"], state(n)["model"])


def saved(c, n):
    c.on_step(SimpleNamespace(step=n, state=SimpleNamespace(saveable_state=state(n))))
    c.wait_until_finished()


def save(folder, n):
    saved(checkpointer(folder), n)


def load(folder, n):
    compare(folder / f"step-{n}", n)


def save_as(folder, name, n):
    c = checkpointer(folder)
    c.save_checkpoint(SimpleNamespace(step=n, state=SimpleNamespace(saveable_state=state(n))), name)
    c.wait_until_finished()


def load_as(folder, name, n):
    compare(folder / name, n)


def train(folder, count, keep):
    newest = discover_latest_checkpoint(str(folder))
    last = int(newest.rsplit("-")[-1]) if newest else None
    c = checkpointer(folder, temporaries=True)
    if newest:
        compare(newest, last)
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        saved(c, n)
        common.say("saved", n)


if __name__ == "__main__":
    common.main(sys.modules[__name__])
