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
    would = ckptfs.json("gc", store, "--dry-run", "--force")
    assert young.exists() and old.exists()
    assert would == {"live_bytes": 0, "garbage_bytes": 1500, "deleted_bytes": 500, "deleted_objects": 1,
                     "repacked_bytes": 0, "repacked_objects": 0, "kept": [{"why": "younger than the grace time", "objects": 1, "bytes": 1000}]}
    assert ckptfs.json("gc", store, "--force") == would
    assert young.exists() and not old.exists()
    done = ckptfs("gc", store, "--grace", "1h")
    assert "removed 0 packs" in done.stderr and "kept 1 packs" in done.stderr and "grace" in done.stderr
    assert "removed 1 packs, 1000B" in ckptfs("gc", store, "--grace", "0", "--force").stderr
    assert not young.exists() and other.exists()
    other.unlink()
    ckptfs("verify", store)


def test_gc_removes_nothing_when_a_record_cannot_be_read(ckptfs, store, mounted):
    pack = plant(store, "a1", age=2 * DAY)
    entry = min((store / "log").iterdir())
    whole = entry.read_bytes()
    middle = len(whole) // 2
    entry.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:])
    done = ckptfs("gc", store, "--grace", "0", "--force", check=False)
    assert done.returncode != 0 and ("1000" in done.stderr and "verify" in done.stderr if mounted else "doctor" in done.stderr)
    if mounted:
        assert "error" in ckptfs.json("gc", store, "--grace", "0", check=False)
    assert pack.exists()
    entry.write_bytes(whole)
    ckptfs("gc", store, "--grace", "0", "--force")
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


MB = 1 << 20


@pytest.fixture
def frozen(mount, store, commit, ckptfs):
    """Three cooled steps with the same frozen layers, of which two are gone for good: what the third has."""
    made = {"frozen": os.urandom(3 * MB), "config": b"{}"}
    for name in ("1000", "2000", "3000"):
        made["own"] = os.urandom(8 * MB)
        (mount / name).mkdir()
        for path, data in made.items():
            trees.write(mount / name / path, data)
        commit(mount / name)
        ckptfs("cool", store, name)
    ckptfs("rm", "--now", "--yes", store, "1000", "2000")
    return made


def packed(store):
    return sum(p.stat().st_size for p in (store / "packs").iterdir())


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_gc_repacks_what_is_needed_by_less_than_half(mount, store, ckptfs, frozen, mounted):
    before = trees.describe(mount / "3000", inodes=True)
    at = ckptfs.json("info", store, "3000")["committed_at"]
    if not mounted:
        mount.umount()
    garbage = ckptfs.json("du", store)["garbage_bytes"]
    assert 16 * MB <= garbage < 17 * MB and packed(store) > 27 * MB
    would = ckptfs.json("gc", store, "--grace", "0", "--dry-run")
    assert would["repacked_objects"] == 1 and 3 * MB <= would["repacked_bytes"] < 4 * MB and packed(store) > 27 * MB
    assert "would put elsewhere 3" in ckptfs("gc", store, "--grace", "0", "--dry-run").stderr
    assert ckptfs.json("gc", store)["repacked_objects"] == 0  # they are young
    assert ckptfs.json("gc", store, "--grace", "0") == would
    assert 11 * MB < packed(store) < 12 * MB
    assert ckptfs.json("du", store)["garbage_bytes"] == 0
    ckptfs("verify", store, "--read-data")
    for _ in range(2):
        mount.remount()
        assert trees.files(mount / "3000") == frozen
        assert trees.describe(mount / "3000", inodes=True) == before
        assert ckptfs.json("index", "rebuild", store)["ok"]
    info = ckptfs.json("info", store, "3000")
    assert [v["event"] for v in info["versions"]][-1] == "repack" and info["committed_at"] == at
    assert ckptfs.json("gc", store, "--grace", "0")["deleted_objects"] == 0
    assert mount.errors() == []


def test_who_has_a_file_open_reads_on_while_it_is_repacked(mount, store, ckptfs, frozen):
    with open(mount / "3000/frozen", "rb", buffering=0) as held:
        assert held.read(MB) == frozen["frozen"][:MB]
        done = ckptfs.json("gc", store, "--grace", "0")
        assert done["repacked_objects"] == 1 and [k["why"] for k in done["kept"]] == ["open files are read from it"]
        assert ckptfs.json("du", store)["garbage_bytes"] > 11 * MB
        assert held.read(2 * MB) == frozen["frozen"][MB:]
        assert trees.files(mount / "3000") == frozen

    def collected():
        ckptfs("gc", store, "--grace", "0")  # without --force
        return packed(store) < 12 * MB

    wait_until(collected, 30)  # close(2) does not wait until the mount has heard of it
    assert packed(store) > 11 * MB and ckptfs.json("du", store)["garbage_bytes"] == 0
    ckptfs("verify", store, "--read-data")
    assert trees.files(mount / "3000") == frozen and mount.errors() == []


def test_a_damaged_chunk_keeps_its_pack(mount, store, ckptfs, frozen):
    largest = max((store / "packs").iterdir(), key=lambda p: p.stat().st_size)
    image = largest.read_bytes()
    at = image.index(frozen["frozen"][:64])
    largest.write_bytes(image[:at] + bytes([image[at] ^ 1]) + image[at + 1:])
    done = ckptfs.json("gc", store, "--grace", "0")
    assert done["repacked_objects"] == 0 and ["cannot be read" in k["why"] for k in done["kept"]] == [True]
    assert largest.exists() and "frozen cannot be read" in (mount / ".ckptfs/errors").read_text()
    largest.write_bytes(image)
    assert ckptfs.json("gc", store, "--grace", "0")["repacked_objects"] == 1 and not largest.exists()
    assert trees.files(mount / "3000") == frozen


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
