"""A disk without a free block: a store on it still mounts, and room can be made through it."""

import mmap
import os
import shutil

import pytest

from support import trees
from support.fixtures import needs_root
from support.mounting import LoopDisk, Mount, errno_name, wait_until

pytestmark = [pytest.mark.timeout(90), needs_root]


@pytest.fixture
def disk(world):
    return LoopDisk(world)


@pytest.fixture
def full(world, disk):
    """A store with a committed step, 1000, and one that a dead daemon left, 2000, of 8 MiB, on a disk without room."""
    m = Mount.new(world, disk.path / "store")
    (m / "1000").mkdir()
    trees.write(m / "1000/a", b"x")
    trees.write(m / "1000/.finalize", b"")
    (m / "2000").mkdir()
    trees.write(m / "2000/a", bytes(8 << 20))
    os.sync()
    m.kill9()
    return m


def lose_index(store):
    shutil.rmtree(store / "index")


def empty_index(store):
    for path in (store / "index").iterdir():
        path.unlink()


def damage_index(store):
    (store / "index/data.mdb").write_bytes(b"x" * 4096)


def keep_index(store):
    pass


@pytest.mark.parametrize("harm", [keep_index, lose_index, empty_index, damage_index])
def test_store_on_a_full_disk_mounts_and_is_what_makes_room(full, disk, harm, ckptfs):
    harm(full.store)
    disk.fill_up()
    full.start()
    assert full.listing() == ["1000"]
    if harm is not keep_index:  # all that it needs then is the room of what says who had it mounted before
        wait_until(lambda: "full" in full.log(), what="the line of the log")
    with pytest.raises(OSError) as e:
        trees.write(full / "plain", bytes(1 << 20))
    assert errno_name(e.value) == "ENOSPC"
    os.unlink(full / "plain")
    full.umount()
    full.start()
    disk.make_room()
    (full / "3000").mkdir()
    trees.write(full / "3000/a", b"y")
    trees.write(full / "3000/.finalize", b"")
    full.remount()
    assert full.listing() == ["1000", "3000"]
    assert (full.store / "index/data.mdb").exists()
    assert ckptfs("verify", full.store).returncode == 0


@pytest.mark.parametrize("harm", [keep_index, lose_index, empty_index])
def test_left_session_is_dropped_without_a_mount_though_the_disk_is_full(full, disk, harm, ckptfs):
    harm(full.store)
    disk.fill_up()
    [left] = ckptfs.json("sessions", full.store)
    ckptfs("abort", "--yes", full.store, left["id"])
    assert ckptfs.json("sessions", full.store) == []
    os.sync()
    assert os.statvfs(disk.path).f_bavail > 0


def test_file_step_that_the_disk_had_no_room_for_is_not_published(full, disk):
    full.start()
    disk.fill_up()
    disk.make_room()
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (200 << 20, 200 << 20)
    fd = os.open(full / "model.safetensors", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, len(header).to_bytes(8, "little") + header)
    with pytest.raises(OSError) as e:
        while True:
            os.write(fd, bytes(1 << 20))
    assert errno_name(e.value) == "ENOSPC"
    with pytest.raises(OSError) as e:
        os.close(fd)
    assert errno_name(e.value) == "EINVAL"
    assert full.listing() == ["1000"]
    assert any("model.safetensors" in line for line in full.errors())


def test_direct_write_that_only_half_fits_is_told_that_the_disk_is_full(full, disk):
    full.start()
    disk.fill_up()
    junk = disk.path / "junk/file"
    data = mmap.mmap(-1, 400 << 10)  # aligned, as O_DIRECT wants it
    for n, left in enumerate(range(256 << 10, len(data), 16 << 10)):
        os.truncate(junk, junk.stat().st_size - left)
        fd = os.open(full / f"file-{n}", os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644)
        with pytest.raises(OSError) as e:
            while True:
                os.write(fd, data)
        os.close(fd)
        assert errno_name(e.value) == "ENOSPC", f"with {left >> 10} KiB left"
        os.unlink(full / f"file-{n}")
        shutil.rmtree(junk.parent)
        disk.fill_up()
