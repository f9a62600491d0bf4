"""The trash gives way: to the next save on a small disk, to its limit, and to `ckptfs trash empty`; and what is said when there is none."""

import os
import shutil
import time
from datetime import datetime

import pytest

from support import trees
from support.fixtures import both_modes, needs_root
from support.mounting import LoopDisk, Mount, errno_name, wait_until

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
LONG_S = int(os.environ.get("CKPT_TEST_LONG", "0")) * 3600


# --- The verb -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["mounted", "at rest"])
def trash(request, mount, commit):
    """Steps 1, 2 and 3, of which 1 and 2 are deleted; the store or the mount to name."""
    for name in ("1", "2", "3"):
        (mount / name).mkdir()
        trees.write(mount / name / "model.bin", os.urandom(MIB))
        commit(mount / name)
    shutil.rmtree(mount / "1")
    shutil.rmtree(mount / "2")
    if request.param == "at rest":
        mount.umount()
        return mount.store
    return mount.path


def test_trash_list_says_what_each_takes_and_until_when(ckptfs, trash):
    listed = ckptfs.json("trash", "list", trash)
    assert [s["name"] for s in listed["steps"]] == ["1", "2"]
    assert 2 * MIB <= listed["bytes"] < 3 * MIB and listed["freed_bytes"] == 0
    for step in listed["steps"]:
        deleted, expires = (datetime.fromisoformat(step[key][:26]) for key in ("deleted_at", "expires_at"))
        assert (expires - deleted).total_seconds() == 7 * 24 * 3600
        assert step["room_bytes"] >= MIB
    out = ckptfs("trash", "list", trash).stdout.splitlines()
    assert out[0].split() == ["NAME", "ROOM", "DELETED", "EXPIRES"] and [line.split()[0] for line in out[1:]] == ["1", "2"]
    assert [s["name"] for s in ckptfs.json("trash", "list", trash, "trash/2")["steps"]] == ["2"]
    assert ckptfs.json("trash", "list", trash, "--older", "1h")["steps"] == []
    assert "no such step" in ckptfs("trash", "list", trash, "3", check=False).stderr


def test_trash_empty_frees_the_room_before_it_returns(ckptfs, store, trash):
    refused = ckptfs("trash", "empty", trash, check=False)
    assert refused.returncode and "--yes" in refused.stderr
    assert ckptfs.json("trash", "empty", trash, "--older", "1h", "--yes")["steps"] == []
    one = ckptfs("trash", "empty", trash, "2", "--yes").stdout
    assert "2: removed from the trash, 1.0MiB" in one and "1.0MiB freed" in one
    done = ckptfs.json("trash", "empty", trash, "--yes")
    assert [s["name"] for s in done["steps"]] == ["1"] and MIB <= done["freed_bytes"] < 2 * MIB
    assert ckptfs.json("trash", "list", trash)["steps"] == []
    assert len(list((store / "sessions").iterdir())) == 1 and not list((store / "trash").glob("drop-*"))
    assert ckptfs.json("ls", trash)[0]["name"] == "3"
    assert ckptfs("undelete", trash, "1", check=False).returncode


def test_trash_empty_frees_packs_too_but_for_those_that_a_step_needs(ckptfs, store, trash):
    for name in ("1", "2"):
        ckptfs("undelete", trash, name)
    ckptfs("seal", trash)
    for name in ("1", "2", "3"):
        ckptfs("cool", trash, name)
    packs = len(list((store / "packs").iterdir()))
    assert packs >= 2
    ckptfs("rm", trash, "1")
    assert MIB <= ckptfs.json("trash", "list", trash)["steps"][0]["room_bytes"] < 2 * MIB
    assert MIB <= ckptfs.json("status", trash)["room"]["trash_bytes"] < 2 * MIB
    ckptfs("rm", trash, "2")
    done = ckptfs.json("trash", "empty", trash, "--yes")
    assert done["freed_bytes"] >= MIB
    assert len(list((store / "packs").iterdir())) < packs
    assert ckptfs.json("verify", store, "--read-data")["bad"] == []


def test_verify_is_not_alarmed_by_a_step_that_is_being_removed(mount, ckptfs, commit):
    """Its files are out of sight, its record is still there: as an expiry is for a moment."""
    (mount / "1").mkdir()
    trees.write(mount / "1/model.bin", b"x")
    commit(mount / "1")
    shutil.rmtree(mount / "1")
    mount.umount()
    [session] = (mount.store / "sessions").iterdir()
    away = mount.store / "trash" / f"drop-{session.name}"
    session.rename(away)
    assert ckptfs.json("verify", mount.store)["bad"] == []
    away.rename(mount.store / "trash/elsewhere")
    assert "gone" in ckptfs("verify", mount.store, check=False).stderr
    mount.start()


# --- A small disk -------------------------------------------------------------------------------------------------------


def save(m, name, data, rate=None):
    (m / name).mkdir()
    with open(m / name / "model.bin", "wb", buffering=0) as f:
        for at in range(0, len(data), MIB):
            f.write(data[at:at + MIB])
            if rate:
                time.sleep(MIB / rate)
    trees.write(m / name / ".finalize", b"")


def rotate(m, data, count, keep, rate=None):
    """Saves and deletions, as a trainer does them: none may fail, and the newest is what was saved."""
    for n in range(1, count + 1):
        save(m, f"{n}", data, rate)
        if n > keep:
            shutil.rmtree(m / f"{n - keep}")
        assert m.listing() == sorted(f"{k}" for k in range(max(1, n - keep + 1), n + 1))
    assert (m / f"{count}" / "model.bin").read_bytes() == data


@needs_root
@both_modes
def test_rotation_on_a_small_disk_never_fails(world, mode, ckptfs):
    """Room for four steps; one is kept, one is being written, and what was deleted gives way."""
    disk = LoopDisk(world, 96)
    m = Mount.new(world, disk.path / "store", mode=mode)
    rotate(m, os.urandom(20 * MIB), 12, 1)
    room = m.status()["room"]
    assert room["free_bytes"] >= room["reserve_bytes"] - 8 * MIB
    assert ckptfs.json("verify", m.store)["bad"] == []
    assert "the disk" not in "\n".join(m.errors())


@needs_root
@pytest.mark.skipif(not LONG_S, reason="CKPT_TEST_LONG=HOURS runs it")
@pytest.mark.timeout(LONG_S * 1.25 + 600)  # the watchdog of its mount ends it after 0.8 of that
@pytest.mark.parametrize("rate", [50e6, None], ids=["50 MB/s", "full speed"])
def test_a_disk_at_its_limit_for_an_hour(world, rate, ckptfs):
    disk = LoopDisk(world, 1000)
    m = Mount.new(world, disk.path / "store")
    data = os.urandom(200 * MIB)
    end, n = time.monotonic() + LONG_S, 0
    while time.monotonic() < end:
        n += 1
        save(m, f"{n}", data, rate)
        if n > 1:
            shutil.rmtree(m / f"{n - 1}")
        assert m.listing() == [f"{n}"] and (m / f"{n}/model.bin").read_bytes() == data
    assert ckptfs.json("verify", m.store)["bad"] == []


@needs_root
def test_freed_room_can_be_used_within_a_second(world):
    disk = LoopDisk(world, 96)
    m = Mount.new(world, disk.path / "store", options=["trash_limit=none", "trash_reserve=0"])
    save(m, "1", os.urandom(40 * MIB))
    shutil.rmtree(m / "1")
    save(m, "2", os.urandom(20 * MIB))
    with open(disk.path / "junk", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, os.statvfs(disk.path).f_bavail * os.statvfs(disk.path).f_frsize - MIB)
    began = time.monotonic()
    (m / "3").mkdir()
    fd = os.open(m / "3/model.bin", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 30 * MIB)  # it asks for the room, which the trash has
    took = time.monotonic() - began
    os.close(fd)
    assert took < 10, "a busy machine is given ten times the second"
    print(f"room after {took:.3f} s")
    assert not list((m / ".ckptfs/trash").iterdir())


@needs_root
@pytest.mark.parametrize("packed", [False, True], ids=["raw", "packed"])
def test_trash_is_kept_while_there_is_room_and_beyond_its_limit_the_last_one(world, ckptfs, packed):
    disk = LoopDisk(world, 96)
    m = Mount.new(world, disk.path / "store", options=["trash_limit=10%", "trash_reserve=1MiB"])
    for n in range(1, 5):
        save(m, f"{n}", os.urandom(6 * MIB))
    if packed:
        ckptfs("seal", m.path)
        ckptfs("cool", m.path, "1", "2", "3")
    for n in (1, 2, 3):
        shutil.rmtree(m / f"{n}")
    wait_until(lambda: os.listdir(m / ".ckptfs/trash") == ["3"], timeout=30, what="the limit holds")
    ckptfs("undelete", m.path, "3")
    assert m.listing() == ["3", "4"]


@needs_root
def test_pinned_steps_and_open_files_survive_pressure(world, ckptfs):
    disk = LoopDisk(world, 96)
    m = Mount.new(world, disk.path / "store")
    kept, gone = os.urandom(12 * MIB), os.urandom(12 * MIB)
    save(m, "1", kept)
    ckptfs("pin", m / "1")
    save(m, "2", gone)
    reader = open(m / "2/model.bin", "rb", buffering=0)
    head = reader.read(MIB)
    shutil.rmtree(m / "2")
    rotate_from = os.urandom(14 * MIB)
    for n in range(3, 9):
        save(m, f"{n}", rotate_from)
        if n > 3:
            shutil.rmtree(m / f"{n - 1}")
    assert (m / "1/model.bin").read_bytes() == kept
    assert head + reader.read() == gone, "who has a file open reads it to its end"
    reader.close()


# --- No trash left ------------------------------------------------------------------------------------------------------


@needs_root
def test_full_disk_without_trash_is_told_within_a_second_with_what_takes_the_room(world, agent, ckptfs):
    disk = LoopDisk(world, 64)
    m = Mount.new(world, disk.path / "store")
    a = agent()
    a.run("os.mkdir(step); f = open(step + '/model.bin', 'wb'); f.write(bytes(4 << 20)); f.flush()", step=str(m / "7"))
    a.kill()
    a.wait_gone(30)
    m.remount()
    (m / "8").mkdir()
    with open(m / "8/model.bin", "wb", buffering=0) as f, pytest.raises(OSError) as e:
        while True:
            f.write(bytes(MIB))
    assert errno_name(e.value) == "ENOSPC"
    began = time.monotonic()
    lines = wait_until(lambda: [line for line in m.errors() if "\troom\t" in line], timeout=20, what="a line in errors")
    print(f"told after {time.monotonic() - began:.2f} s")
    assert "ENOSPC" in lines[0] and "the trash is empty" in lines[0]
    wait_until(lambda: m.status()["room"]["short"], what="room is short")
    room = m.status()["room"]
    assert room["trash_steps"] == 0 and room["free_bytes"] < room["reserve_bytes"] and room["staged_bytes"] > 40 * MIB
    out = ckptfs("status", m.store).stdout
    assert "nothing can be undeleted" in out and "reserve" in out
    shutil.rmtree(m / "8")
    save(m, "9", os.urandom(MIB))
    assert m.listing() == ["9"]


@needs_root
def test_a_refused_write_is_tried_again_once_room_was_made(world):
    """Short of room, files are written by the daemon: what is deleted meanwhile makes the write succeed."""
    disk = LoopDisk(world, 64)
    m = Mount.new(world, disk.path / "store", options=["trash_limit=none"])
    save(m, "1", os.urandom(20 * MIB))
    with open(disk.path / "junk", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, os.statvfs(disk.path).f_bavail * os.statvfs(disk.path).f_frsize - 8 * MIB)
    (m / "2").mkdir()
    wait_until(lambda: m.status()["room"]["short"], what="room is short")
    with open(m / "2/model.bin", "wb", buffering=0) as f:
        f.write(bytes(4 * MIB))
        shutil.rmtree(m / "1")
        for _ in range(14):
            assert f.write(bytes(MIB)) == MIB
    trees.write(m / "2/.finalize", b"")
    assert m.listing() == ["2"]
