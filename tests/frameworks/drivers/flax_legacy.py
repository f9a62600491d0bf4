"""flax.training.checkpoints: one msgpack file a step, written beside itself and renamed."""

import sys

import common
import flax
from flax.training import checkpoints

flax.config.update("flax_use_orbax_checkpointing", False)


def save(folder, n, **how):
    checkpoints.save_checkpoint(folder, common.arrays(n), n, **({"keep": 1000} | how))


def load(folder, n):
    common.same(checkpoints.restore_checkpoint(folder, None, n), common.arrays(n))


def train(folder, count, keep):
    newest = checkpoints.latest_checkpoint(folder)
    last = int(checkpoints.restore_checkpoint(folder, None)["step"]) if newest else None
    if newest:
        assert newest.endswith(f"checkpoint_{last}")
        load(folder, last)
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        save(folder, n, keep=keep)
        common.say("saved", n)


if __name__ == "__main__":
    common.main(sys.modules[__name__])
