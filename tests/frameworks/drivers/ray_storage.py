"""Ray's storage, as Train (v1), Tune and RLlib have it: a checkpoint is made on the local disk and copied file by file, by
pyarrow, to `TRIAL/checkpoint_00000N`. There is no cluster: the storage is asked itself."""

import shutil
import sys
import tempfile

import common
import numpy as np
from ray.train import Checkpoint
from ray.train._internal.storage import StorageContext


def storage(folder, n):
    return StorageContext(str(folder), "", trial_dir_name="trial", current_checkpoint_index=n)


def save(folder, n):
    with tempfile.TemporaryDirectory() as local:
        for name, a in common.arrays(n).items():
            np.save(f"{local}/{name}.npy", a)
        with open(f"{local}/metadata.pkl", "wb") as f:
            np.save(f, np.array(n))
        storage(folder, n).persist_current_checkpoint(Checkpoint(local))


def load(folder, n):
    with Checkpoint(folder / f"trial/checkpoint_{n:06d}").as_directory() as path:
        common.same({name: np.load(f"{path}/{name}.npy") for name in common.arrays(n)}, common.arrays(n))


def train(folder, count, keep):
    trial = folder / "trial"
    steps = common.numbers(trial, "checkpoint_") if trial.is_dir() else []
    last = steps[-1] if steps else None
    if last is not None:
        load(folder, last)
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        save(folder, n)
        common.say("saved", n)
        common.wait_listed(trial / f"checkpoint_{n:06d}")
        for old in common.numbers(trial, "checkpoint_")[:-keep]:
            shutil.rmtree(trial / f"checkpoint_{old:06d}")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
