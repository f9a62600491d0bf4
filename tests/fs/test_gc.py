"""`ckptfs gc` and `ckptfs index`, at rest and under a mount, and what a mount collects by itself."""

import os
import time

import pytest

from support import trees
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(90)

DAY = 24 * 3600


@pytest.fixture
def options():
    return ["seal=no"]  # a step has one version


@pytest.fixture
def saved(mount, commit):
    (mount / "1000").mkdir()
    trees.fill(mount / "1000")
    commit(mount / "1000")


@pytest.fixture(params=[True, False], ids=["mounted", "at rest"])
def mounted(request, mount, saved):
    if not request.param:
        mount.umount()
    return request.param


def plant(store, digits, size=1000, age=0):
    """A pack that nothing names."""
    path = store / "packs" / (digits * 32)
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_gc_removes_what_nothing_needs(ckptfs, store, mounted):
    young, old = plant(store, "a1"), plant(store, "b2", size=500, age=DAY + 60)
    other = store / "packs/notes"
    other.write_bytes(b"not ours")
    would = ckptfs.json("gc", store, "--dry-run")
    assert young.exists() and old.exists()
    assert would == {"live_bytes": 0, "garbage_bytes": 1500, "deleted_bytes": 500, "deleted_objects": 1,
                     "kept": [{"why": "younger than the grace time", "objects": 1, "bytes": 1000}]}
    assert ckptfs.json("gc", store) == would
    assert young.exists() and not old.exists()
    done = ckptfs("gc", store, "--grace", "1h")
    assert "removed 0 packs" in done.stderr and "kept 1 packs" in done.stderr and "grace" in done.stderr
    assert "removed 1 packs, 1000B" in ckptfs("gc", store, "--grace", "0").stderr
    assert not young.exists() and other.exists()
    other.unlink()
    ckptfs("verify", store)


def test_gc_removes_nothing_when_a_record_cannot_be_read(ckptfs, store, mounted):
    pack = plant(store, "a1", age=2 * DAY)
    record = store / "steps/1000/1"
    whole = record.read_bytes()
    record.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    done = ckptfs("gc", store, "--grace", "0", "--force", check=False)
    assert done.returncode == 1 and "1000" in done.stderr and "verify" in done.stderr
    assert "error" in ckptfs.json("gc", store, "--grace", "0", check=False)
    assert pack.exists()
    record.write_bytes(whole)
    ckptfs("gc", store, "--grace", "0")
    assert not pack.exists()


def test_gc_asks_before_a_store_without_steps_loses_its_packs(ckptfs, store, mount):
    pack = plant(store, "a1", age=2 * DAY)
    for at_rest in (False, True):
        if at_rest:
            mount.umount()
        done = ckptfs("gc", store, check=False)
        assert done.returncode == 1 and "would go at once" in done.stderr and "--force" in done.stderr and pack.exists()
        assert ckptfs.json("gc", store, "--dry-run")["kept"][0]["objects"] == 1
    ckptfs("gc", store, "--force")
    assert not pack.exists()


def test_a_mount_collects_behind(mount, saved, store, ckptfs):
    mount.umount()
    young, old = plant(store, "a1"), plant(store, "b2", age=DAY + 60)
    mount.remount()
    wait_until(lambda: not old.exists(), 40)
    assert young.exists() and "garbage" not in (mount / ".ckptfs/errors").read_text()
    ckptfs("rm", "--now", "--yes", store, "1000")
    os.utime(young, (time.time() - 2 * DAY,) * 2)
    mount.remount()
    wait_until(lambda: "garbage was not removed" in (mount / ".ckptfs/errors").read_text(), 40)  # no step is there any more
    assert "--force" in (mount / ".ckptfs/errors").read_text() and young.exists()


def test_index_is_checked_and_made_anew(ckptfs, store, mount, mounted):
    assert ckptfs.json("index", "rebuild", store) == {"ok": True, "steps": 1, "chunks": 0, "problems": []}
    assert "1 steps" in ckptfs("index", "check", store).stderr
    if mounted:
        assert (mount / "1000").exists()
        mount.umount()
    data = store / "index/data.mdb"
    image = bytearray(data.read_bytes())
    image[8192:] = b"\x5a" * (len(image) - 8192)
    data.write_bytes(image)
    done = ckptfs("index", "check", store, check=False)
    assert done.returncode == 1 and "damaged" in done.stderr and "rebuild" in done.stderr
    assert ckptfs.json("index", "check", store, check=False)["ok"] is False
    assert ckptfs.json("index", "rebuild", store)["ok"] is True
    assert ckptfs.json("index", "check", store) == {"ok": True, "steps": 1, "chunks": 0, "problems": []}
