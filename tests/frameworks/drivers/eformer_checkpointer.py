"""eFormer's Checkpointer: every third step stays, those between are temporary and deleted by it after the next one.

on_step saves by a callback, as its 0.0.101 cannot save a tree that on_step is given (it calls its own callback with one argument
too many)."""

import datetime
import sys

import common
import jax
from eformer.serialization import Checkpointer, CheckpointInterval
from eformer.serialization.checkpointer import find_latest_checkpoint

MESH = jax.sharding.Mesh(jax.devices(), ("all",))


def state(n):
    return {"model": jax.tree.map(jax.numpy.asarray, common.arrays(n))}


def checkpointer(folder, temporaries=False):
    return Checkpointer(str(folder), datetime.timedelta(microseconds=1) if temporaries else None, [CheckpointInterval(every=3 if temporaries else 1)])


def compare(c, path, n):
    with MESH:
        got, _ = c.load_checkpoint(MESH, path=str(path), discover_latest=False, structured=True, prefix="model", template=state(n))
    common.same(got["model"], state(n)["model"])


def write(c, name, n, **how):
    c.save_checkpoint(state(n), name, mesh=MESH, structured=True, prefix="model", **how)


def saved(c, n):
    with MESH:
        c.on_step(MESH, step=n, true_callbacks=[lambda name, *_: write(c, name, n)])
    c.wait_until_finished()


def save(folder, n):
    saved(checkpointer(folder), n)


def load(folder, n):
    compare(checkpointer(folder), folder / f"run-{n}", n)


def save_as(folder, name, n):
    with MESH:
        write(checkpointer(folder), name, n, step=n)


def load_as(folder, name, n):
    compare(checkpointer(folder), folder / name, n)


def train(folder, count, keep):
    newest = find_latest_checkpoint(str(folder))
    c = checkpointer(folder, temporaries=True)
    last = int(newest.rsplit("-")[-1]) if newest else None
    if newest:
        compare(c, newest, last)
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        saved(c, n)
        common.say("saved", n)


if __name__ == "__main__":
    common.main(sys.modules[__name__])
