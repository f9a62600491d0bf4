"""Versions of a step that a mount makes while the bucket refuses what it puts: once it takes them, they are versions on each node.

An edit that follows another one within five seconds is thinned with it, so these tests take their time.
"""

import itertools
import os
import subprocess
import time

import pytest

from support import trees
from support.mounting import wait_until
from support.nodes import *  # noqa: F403

pytestmark = pytest.mark.timeout(240)

TRACKED = "config.json"


def info(ckptfs, mount, step="1000"):
    return ckptfs.json("info", mount.path, step)


def versions(ckptfs, mount):
    return [v["version"] for v in info(ckptfs, mount)["versions"] if v["state"] in ("old", "current")]


def cat(ckptfs, mount, version):
    return subprocess.run([str(ckptfs), "cat", str(mount.path), f"1000@{version}", TRACKED], check=True, capture_output=True, timeout=60).stdout


def states(ckptfs, mount):
    """The texts, one for versions that follow each other with the same: sealing and packing make versions, too."""
    return [text for text, _ in itertools.groupby(cat(ckptfs, mount, v) for v in versions(ckptfs, mount))]


def edit(ckptfs, mount, text):
    was = info(ckptfs, mount)["version"]
    (mount / "1000" / "new").write_bytes(text)
    os.rename(mount / "1000" / "new", mount / "1000" / TRACKED)
    wait_until(lambda: info(ckptfs, mount)["version"] > was and (mount / "1000" / TRACKED).read_bytes() == text, timeout=30)
    time.sleep(5.2)  # edits that follow each other at once are one


def save_again(mount, text):
    trees.write(mount / "1000" / "array.npy", b"\x93NUMPY\x01\x00" + text * 1000)
    trees.write(mount / "1000" / TRACKED, text)
    mount.complete("1000")


@pytest.mark.parametrize("killed", [False, True])
def test_each_version_made_offline_is_on_another_node(node, ckptfs, fault_proxy, keys, killed):
    texts = [b"edit %d\n" % i for i in range(3)]
    fault_proxy.play({"op": "PutObject", "do": "reset-before"})
    first = node("a", fault_proxy.endpoint)
    first.save("1000")
    saved = (first / "1000" / TRACKED).read_bytes()
    time.sleep(5.2)
    for text in texts:
        edit(ckptfs, first, text)
    save_again(first, b"again!!!")
    time.sleep(5.2)
    edit(ckptfs, first, b"last\n")
    before = versions(ckptfs, first)
    wants = [saved, *texts, b"again!!!", b"last\n"]
    assert states(ckptfs, first) == wants
    if killed:
        fault_proxy.play({"op": "PutObject", "key": "*/log/*", "nth": 3, "do": "stall", "seconds": 1.5, "where": "reply"})
        wait_until(lambda: len(keys("log/")) == 3, what="three of the versions", timeout=60)
        first.kill9()
        first.start()
    else:
        fault_proxy.play()
    first.wait("1000", timeout=100)
    assert states(ckptfs, first) == wants
    first.lose()
    second = node("b")
    there = versions(ckptfs, second)
    assert states(ckptfs, second) == wants
    assert set(there[:-1]) <= set(before)
    assert second.errors() == []
    [again] = [v for v in there if cat(ckptfs, second, v) == b"again!!!"][-1:]
    ckptfs("restore", second.path, f"1000@{again}")
    assert (second / "1000" / TRACKED).read_bytes() == b"again!!!"
