"""Checkpoints that are one file, by their real writers: a reader never meets a part of one, and no death leaves one."""

import multiprocessing
import os
import random
import signal
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support.fixtures import both_modes
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)

ROWS = 400


def whole(seed):
    return {"w": np.full((ROWS, 500), seed, np.float32), "step": np.array(seed)}


def save(path, seed):
    path = str(path)
    if path.endswith(".npy"):
        np.save(path, whole(seed)["w"])
    elif path.endswith(".npz"):
        np.savez(path, **whole(seed))
    else:
        save_file(whole(seed), path)


def load(path):
    """The seed of a whole file; anything else raises."""
    path = str(path)
    if path.endswith(".npy"):
        w = np.load(path)
    else:
        with_names = dict(np.load(path)) if path.endswith(".npz") else load_file(path)
        w = with_names["w"]
        assert int(with_names["step"]) == int(w[0, 0])
    assert w.shape == (ROWS, 500) and (w == w[0, 0]).all()
    return int(w[0, 0])


NAMES = ["model.npy", "model.npz", "model.safetensors"]


def save_for_ever(path):
    for seed in range(1000, 1_000_000):
        save(path, seed)


def save_many(path, count, done):
    for seed in range(2, count):
        save(path, seed)
    done.set()


@both_modes
@pytest.mark.parametrize("name", NAMES)
def test_a_reader_always_finds_a_whole_file(mount, name):
    context = multiprocessing.get_context("fork")
    path, done, seen = mount / name, context.Event(), []
    save(path, 1)
    writer = context.Process(target=save_many, args=(path, 40, done))
    writer.start()
    while not done.is_set():
        assert name in mount.listing()
        seen.append(load(path))
    writer.join(20)
    assert load(path) == 39
    assert seen == sorted(seen) and seen[0] >= 1
    assert os.listdir(mount / ".ckptfs/staged") == []


@both_modes
@pytest.mark.parametrize("name", NAMES)
def test_no_death_of_a_writer_leaves_a_part(mount, name):
    context = multiprocessing.get_context("fork")
    path, dice = mount / name, random.Random(1)
    save(path, 1)
    for _ in range(12):
        writer = context.Process(target=save_for_ever, args=(path,))
        writer.start()
        time.sleep(dice.uniform(0.02, 0.2))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join(10)
        load(path)
    save(path, 7)
    assert load(path) == 7
    mount.remount()
    assert load(path) == 7
    for session in mount.world.program.json("sessions", mount.store):
        mount.world.program("abort", "--yes", mount.store, session["id"])
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == [], 5)


@both_modes
def test_a_mapped_array_takes_the_place_of_an_older_one(mount):
    path = mount / "a.npy"
    for seed in (1, 2, 3):
        a = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(300, 200 + seed))
        a[:] = seed
        a.flush()
        a._mmap.close()
        got = np.load(path)
        assert got.shape == (300, 200 + seed) and (got == seed).all()
    assert os.listdir(mount / ".ckptfs/staged") == []


def test_a_save_that_raises_leaves_the_old_one(mount):
    """An exception closes the file in a process that lives: the format says that it is not whole."""
    path = mount / "model.npz"
    save(path, 1)
    whole = path.read_bytes()
    with pytest.raises((RuntimeError, OSError)):
        with open(path, "wb") as f:
            f.write(whole[: len(whole) // 2])
            raise RuntimeError("out of memory on the device")
    assert load(path) == 1
    assert any("not whole" in line for line in mount.errors()), mount.errors()
    save(path, 2)
    assert load(path) == 2
