"""The kernel keeps pages of committed files over opens: what they show must be what the disk has, however it was written."""

import contextlib
import mmap
import os

import pytest

from support import trees
from support.commits import OPEN_MARKER
from support.fixtures import all_modes, needs_root
from support.mounting import LoopDisk, Mount

pytestmark = pytest.mark.timeout(90)

SIZE = 64 << 10  # small enough to be read through the page cache in all modes

# Ways to change a file past the pages that a reader of it, who stays, has in the kernel.
CHANGES = {
    "write": "os.pwrite(fd, b'w' * 5000, 3000)",
    "O_DIRECT": """
d = os.open(path, os.O_WRONLY | os.O_DIRECT)
m = mmap.mmap(-1, 8192); m.write(b'd' * 8192)
os.pwritev(d, [m], 4096); os.close(d)""",
    "mapping": "m = mmap.mmap(fd, 0); m[10:20] = b'm' * 10; m[40000:50000] = b'n' * 10000; m.flush(); m.close()",
    "mapping, not synced": "m = mmap.mmap(fd, 0); m[10:20] = b'm' * 10; m[40000:50000] = b'n' * 10000; m.close()",
    "copy_file_range": "os.copy_file_range(fd, fd, 9000, 0, 30000)",
    "punched hole": "ctypes.CDLL(None, use_errno=True).fallocate(fd, 3, ctypes.c_long(8192), ctypes.c_long(20000))",
    "shrunk and grown": "os.ftruncate(fd, 100); os.ftruncate(fd, 50000)",
    "O_TRUNC": "os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)); os.pwrite(fd, b't' * 1000, 30000)",
    "unlinked and made anew": "os.unlink(path); os.close(fd); fd = os.open(path, os.O_RDWR | os.O_CREAT); os.write(fd, b'a' * 60000)",
    "renamed over": "o = os.open(path + '2', os.O_RDWR | os.O_CREAT); os.write(o, b'r' * 60000); os.close(o); os.rename(path + '2', path)",
}


@all_modes
@pytest.mark.parametrize("before", [True, False], ids=["read before", "not read before"])
@pytest.mark.parametrize("how", CHANGES)
def test_committed_file_shows_what_the_disk_has(mount, store, agent, commit, mode, how, before):
    (mount / "1000").mkdir()
    path = mount / "1000/f"
    writer, reader = agent(), agent()
    writer.run("import mmap\nfd = os.open(path, os.O_RDWR | os.O_CREAT); os.write(fd, bytes(range(256)) * (size // 256))", path=str(path), size=SIZE)
    if before:
        reader.run("fd = os.open(path, os.O_RDONLY); os.pread(fd, 1 << 20, 0)", path=str(path))
    writer.run(CHANGES[how])
    writer.run("os.close(fd)")
    commit(mount / "1000")
    [session] = os.listdir(store / "sessions")
    on_disk = (store / "sessions" / session / "f").read_bytes()
    for _ in range(2):
        assert path.read_bytes() == on_disk
    if before:
        reader.run("os.close(fd)")
        assert path.read_bytes() == on_disk
    mount.remount()
    assert path.read_bytes() == on_disk


@needs_root
def test_write_of_a_mapping_that_found_no_room_is_not_passed_over_by_the_commit(world, agent):
    """Nobody is told when the kernel writes a page of a mapping in vain: the page shows what the disk does not have."""
    disk = LoopDisk(world)
    m = Mount.new(world, disk.path / "store", mode="daemon")
    (m / "1000").mkdir()
    a = agent()
    a.run("import mmap\nfd = os.open(path, os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 65536); os.fsync(fd)", path=str(m / "1000/f"))
    junk = os.open(disk.path / "junk", os.O_CREAT | os.O_WRONLY)
    for size in (1 << 20, 4096, 4096, 4096):  # each sync gives back what was reserved too much
        with contextlib.suppress(OSError):
            while True:
                os.write(junk, bytes(size))
        os.fsync(junk)
    assert os.statvfs(disk.path).f_bavail < 16
    a.run("m = mmap.mmap(fd, 65536); m[:] = b'm' * 65536; m.close(); os.close(fd)")
    os.close(junk)
    (disk.path / "junk").unlink()
    code = OPEN_MARKER + "; os.close(fd)"
    error = a.errno_of(code, step=str(m / "1000"))
    if error is None:
        m.remount()
        assert (m / "1000/f").read_bytes() == b"m" * 65536, "it was committed without what was written to it"
    else:
        assert error == "EIO" and m.errors()
        trees.write(m / "1000/f", b"anew")
        assert a.errno_of(code, step=str(m / "1000")) is None
        assert (m / "1000/f").read_bytes() == b"anew"


@all_modes
def test_small_file_is_right_from_its_first_open_on_however_it_is_read(mount, commit, mode):
    """The kernel is given it with the first open (up to 128 KiB), or asks for it: page and size limits, and past them."""
    made = {f"f{size}": os.urandom(size) for size in [0, 1, 4095, 4096, 4097, 65536, (128 << 10) - 1, 128 << 10, (128 << 10) + 1, 300_000]}
    (mount / "1000").mkdir()
    for name, content in made.items():
        (mount / "1000" / name).write_bytes(content)
    commit(mount / "1000")
    for _ in range(2):
        mount.remount()
        for name, content in made.items():
            path = mount / "1000" / name
            with path.open("rb") as first, path.open("rb") as second:
                assert os.pread(first.fileno(), 10, len(content) // 2) == content[len(content) // 2 :][:10]
                assert os.fstat(first.fileno()).st_size == len(content)
                if content:
                    with mmap.mmap(second.fileno(), 0, prot=mmap.PROT_READ) as whole:
                        assert whole[:] == content
                    assert os.lseek(second.fileno(), 0, os.SEEK_DATA) == 0
                os.fsync(second.fileno())
                copy = mount / f"copy-{name}"
                with copy.open("wb") as out:
                    assert os.copy_file_range(first.fileno(), out.fileno(), len(content) + 1, 0) == len(content)
                assert copy.read_bytes() == content
                copy.unlink()
            direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
            with mmap.mmap(-1, 512 << 10) as room:
                assert room[: os.preadv(direct, [room], 0)] == content
            os.close(direct)
            assert path.read_bytes() == content


@all_modes
def test_listing_kept_by_the_kernel_is_that_of_the_commit(mount, stage, commit, mode):
    """Committed directories are listed from the kernel's memory; what was listed while they were staged must not be."""
    stage("1000")
    seen = sorted(os.listdir(mount / "1000"))
    held = os.open(mount / "1000", os.O_RDONLY)
    assert sorted(os.listdir(held)) == seen
    (mount / "1000/late").write_bytes(b"late")
    (mount / "1000/config.json").unlink()
    commit(mount / "1000")
    now = sorted(set(seen) - {"config.json"} | {"late"})
    for _ in range(3):
        assert sorted(os.listdir(mount / "1000")) == now
        assert sorted(os.listdir(held)) == now
    os.close(held)
    mount.remount()
    assert sorted(os.listdir(mount / "1000")) == now
