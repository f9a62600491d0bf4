"""Orbax v1: its training Checkpointer; save, save_async and partial saving."""

import sys

import common
import jax
import orbax.checkpoint.experimental.v1 as ocp


def state(n):
    return jax.tree.map(jax.numpy.asarray, common.arrays(n))


def like(n):
    return jax.tree.map(jax.numpy.zeros_like, state(n))


def save(folder, n):
    save_as(folder, str(n), n)


def load(folder, n):
    load_as(folder, str(n), n)


def save_as(folder, name, n):
    path = folder / name
    if common.VARIANT == "partial":
        whole = state(n)
        for names in (("embed", "ids"), ("head", "half"), ("norm", "step")):
            ocp.partial.save(path, {name: whole[name] for name in names})
        ocp.partial.finalize(path)
    elif common.VARIANT == "async":
        ocp.save_async(path, state(n)).result()
    else:
        ocp.save(path, state(n))


def load_as(folder, name, n):
    common.same(ocp.load(folder / name, like(n)), state(n))
    part = ocp.load(folder / name, {k: ocp.PLACEHOLDER for k in state(n)} | {"head": like(n)["head"]})
    common.same({"head": part["head"]}, {"head": state(n)["head"]})


def train(folder, count, keep):
    policy = ocp.training.preservation_policies.LatestN(keep)
    with ocp.training.Checkpointer(folder, preservation_policy=policy) as c:
        last = c.latest.step if c.latest else None
        if last is not None:
            common.same(c.load(last, like(last)), state(last))
        common.say("resumed", "none" if last is None else last)
        for n in range((last or 0) + 1, (last or 0) + count + 1):
            common.say("saving", n)
            c.save_async(n, state(n), force=True).result() if common.VARIANT == "async" else c.save(n, state(n), force=True)
            common.say("saved", n)


if __name__ == "__main__":
    common.main(sys.modules[__name__])
