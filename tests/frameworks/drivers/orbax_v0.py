"""Orbax v0: a CheckpointManager, saving behind the caller's back."""

import sys

import common
import jax
import orbax.checkpoint as ocp


def state(n):
    return jax.tree.map(jax.numpy.asarray, common.arrays(n))


def manager(folder, keep=None):
    return ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=keep, create=False))


def saved(m, n):
    common.say("saving", n)
    assert m.save(n, args=ocp.args.StandardSave(state(n)))


def compare(m, n):
    got = m.restore(n, args=ocp.args.StandardRestore(jax.tree.map(jax.numpy.zeros_like, state(n))))
    common.same(got, state(n))


def save(folder, n):
    with manager(folder) as m:
        saved(m, n)
        m.wait_until_finished()


def load(folder, n):
    with manager(folder) as m:
        compare(m, n)


def save_as(folder, name, n):
    with ocp.StandardCheckpointer() as c:
        c.save(folder / name, state(n))
        c.wait_until_finished()


def load_as(folder, name, n):
    with ocp.StandardCheckpointer() as c:
        common.same(c.restore(folder / name, jax.tree.map(jax.numpy.zeros_like, state(n))), state(n))


def train(folder, count, keep):
    with manager(folder, keep) as m:
        last = m.latest_step()
        if last is not None:
            compare(m, last)
        common.say("resumed", "none" if last is None else last)
        for n in range((last or 0) + 1, (last or 0) + count + 1):
            saved(m, n)
            m.wait_until_finished()
            common.say("saved", n)


if __name__ == "__main__":
    common.main(sys.modules[__name__])
