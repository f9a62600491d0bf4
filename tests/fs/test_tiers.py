"""A mount that cools behind: all but the newest steps of each folder go into packs, and nobody notices."""

import os
import random

import pytest

from support import trees
from support.fixtures import all_modes
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)

MB = 1 << 20


@pytest.fixture
def options():
    return ["seal=yes", "hot=1", "target_data_file_size=1MiB"]


def content(n):
    return random.Random(n).randbytes(2 * MB) + bytes(2 * MB)


def write_step(mount, commit, n, folder=""):
    top = mount / folder / str(n)
    top.mkdir(parents=True)
    trees.write(top / "model", content(n))
    trees.write(top / "config", b"%d" % n)
    commit(top)


def is_packed(path):
    return os.getxattr(path, "user.ckptfs.stored_bytes") != b"%d" % os.path.getsize(path)


@all_modes
def test_all_but_the_newest_step_of_each_folder_is_cooled_and_reads_as_before(mount, store, commit, ckptfs):
    for n in (1000, 2000, 3000):
        write_step(mount, commit, n)
        write_step(mount, commit, n + 1, "runs/a")
    with open(mount / "1000/model", "rb") as early:
        ckptfs("wait", "--idle", "--timeout", "60s", store)
        assert mount.status()["cooling"] == {"steps": 0, "bytes": 0}
        assert early.read() == content(1000)
    assert [is_packed(mount / str(n) / "model") for n in (1000, 2000, 3000)] == [True, True, False]
    assert [is_packed(mount / "runs/a" / str(n) / "model") for n in (1001, 2001, 3001)] == [True, True, False]
    for n in (1000, 2000, 3000):
        assert (mount / str(n) / "model").read_bytes() == content(n)
        assert (mount / "runs/a" / str(n + 1) / "config").read_bytes() == b"%d" % (n + 1)
    assert mount.errors() == []
    write_step(mount, commit, 4000)
    wait_until(lambda: is_packed(mount / "3000/model"), 30)
    mount.remount()
    assert (mount / "3000/model").read_bytes() == content(3000)
    assert ckptfs("verify", "--read-data", store).returncode == 0


def test_what_a_killed_mount_was_cooling_is_cooled_by_the_next(mount, store, commit, ckptfs):
    for n in range(1000, 9000, 1000):
        write_step(mount, commit, n)
    mount.kill9()
    mount.start()
    ckptfs("wait", "--idle", "--timeout", "60s", store)
    for n in range(1000, 9000, 1000):
        assert (mount / str(n) / "model").read_bytes() == content(n)
        assert is_packed(mount / str(n) / "model") == (n < 8000)
    assert mount.errors() == []
