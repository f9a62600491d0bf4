"""A file that is added to a committed step on a disk that is full: it is told, and the step is as before."""

import os

import pytest

from support import trees
from support.fixtures import needs_root
from support.mounting import LoopDisk, Mount, errno_name, wait_until

pytestmark = pytest.mark.timeout(60)

WRITE = "fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o640); os.write(fd, data)"


@pytest.fixture(params=["passthrough", "daemon"])
def mode(request):
    return request.param


@pytest.fixture
def disk(world):
    return LoopDisk(world)


@pytest.fixture
def full(world, disk, mode):
    """A mounted store with the step 1000 on a disk that can be full."""
    m = Mount.new(world, disk.path / "store", mode=mode)
    (m / "1000").mkdir()
    m.made = trees.fill(m / "1000")
    trees.write(m / "1000/.finalize", b"")
    return m


@needs_root
def test_a_close_on_a_full_disk_says_so_and_the_step_is_as_before(full, disk, agent, ckptfs):
    a, top = agent(), full / "1000"
    a.run(WRITE, path=str(top / "f"), data=b"x" * 100)
    a.run("os.fsync(fd)")
    with open(top / "g", "wb") as g:
        g.write(b"room for a name")
    disk.fill_up()
    error = a.errno_of("os.close(fd)")
    if error is None:  # its few bytes fitted
        expected = full.made | {"f": b"x" * 100, "g": b"room for a name"}
    else:
        assert error == "ENOSPC"
        wait_until(lambda: not (top / "f").exists(), 5, "the end of the file")
        assert any("f could not be added" in line for line in full.errors())
        expected = full.made | {"g": b"room for a name"}
    assert trees.files(top) == expected and "1000" in full.listing()
    for i in range(200):  # no space for a folder, one time or another
        try:
            os.mkdir(top / f"d{i}")
        except OSError as e:
            assert errno_name(e) == "ENOSPC"
            assert not (top / f"d{i}").exists() and f"d{i}" not in full.listing("1000")
            break
    else:
        raise AssertionError("the disk is not full")
    assert trees.files(top) == expected
    full.kill9()
    disk.make_room()
    full.start()
    assert trees.files(top) == expected
    trees.write(top / "f", b"again")
    assert trees.files(top) == expected | {"f": b"again"}
    assert ckptfs.json("verify", full.store)["bad"] == []


@needs_root
def test_a_write_on_a_full_disk_fails_and_adds_nothing(full, disk, agent, ckptfs):
    a, top = agent(), full / "1000"
    a.run(WRITE, path=str(top / "f"), data=b"x")
    disk.fill_up()
    assert a.errno_of("os.write(fd, bytes(4 << 20))") == "ENOSPC"
    disk.make_room()
    a.run("os.ftruncate(fd, 1); os.close(fd)")
    assert trees.files(top) == full.made | {"f": b"x"}


@needs_root
def test_a_second_close_publishes_what_the_first_could_not(full, disk, agent, ckptfs):
    a, top = agent(), full / "1000"
    for i in range(300):
        a.run(WRITE, path=str(top / "f"), data=b"first")
        a.run("s = socket.socketpair(); socket.send_fds(s[0], [b'x'], [fd])")
        if not i:
            disk.fill_up()
        error = a.errno_of("os.close(fd)")
        a.run("other = socket.recv_fds(s[1], 1, 1)[1][0]")
        if error:
            break
        a.run("os.close(other)")
        ckptfs("rm", full.store, "1000/f", check=False)
    assert error == "ENOSPC"
    disk.make_room()
    a.run("os.write(other, b' second'); os.close(other)")
    for _ in range(2):
        assert (top / "f").read_bytes() == b"first second"
        full.remount()
    assert ckptfs.json("verify", full.store)["bad"] == []
