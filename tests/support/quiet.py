"""Steps as a loop of one's own writes them, and what becomes of them with a short commit_quiet."""

import json
import struct
import time

import pytest

from support.mounting import wait_until

UNIT = 0.5  # commit_quiet; a test that is held up for longer between two files sees what a user would see
ARRAY = (lambda header: struct.pack("<Q", len(header)) + header + bytes(4096))(
    json.dumps({"w": {"dtype": "F32", "shape": [1024], "data_offsets": [0, 4096]}}).encode())

SAVE = """
def write(path, data):
    with open(path, "wb") as f:
        f.write(data)
os.makedirs(path, exist_ok=True)
for name in names:
    write(f"{path}/{name}", array if name.endswith(".safetensors") else b"{}")
"""
FILES = ("config.json", "model.safetensors", "optim.safetensors")


@pytest.fixture
def options():
    return [f"commit_quiet={int(UNIT * 1000)}ms"]


@pytest.fixture
def save(mount):
    """save(agent, "step_1") writes a step as a loop of one's own does."""
    def run(writer, name, names=FILES, **kwargs):
        writer.run(SAVE, path=str(mount / name), names=names, array=ARRAY, **kwargs)
    return run


@pytest.fixture
def neighbour(mount, agent, save, ckptfs, store):
    """A complete step, "step_1", made by the event `verb`, so that it costs no time."""
    save(agent(), "step_1")
    ckptfs("commit", store, "step_1")


def listed(mount, name, timeout=30):
    wait_until(lambda: name in mount.listing(), timeout, f"{name} in the listing")


def stays_hidden(mount, name, units=4.0):
    until = time.monotonic() + units * UNIT
    while time.monotonic() < until:
        assert name not in mount.listing(), f"{name} is listed"
        time.sleep(0.02)
    assert (mount / name).is_dir(), f"{name} is not reachable by its name"


def event(ckptfs, store, name):
    return ckptfs.json("info", store, name)["event"]


def told(mount, name, text):
    """The error log has a line of this step with this text."""
    def lines():
        return [line for line in map(str, mount.errors()) if name in line]
    deadline = time.monotonic() + 30
    while not any(text in line for line in lines()):
        assert time.monotonic() < deadline, f"{text!r} is in none of {lines()}"
        time.sleep(0.1)
