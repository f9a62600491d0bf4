"""Each kind of close of a file that is added to a committed step: the last one publishes the file and has the result, whichever
process it comes from, with bytes in it or without."""

import os
import subprocess

import pytest

from support import trees
from support.fixtures import needs_root
from support.mounting import Mount, wait_until

pytestmark = pytest.mark.timeout(60)

OPEN = "fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o640)\n"
CHILD = """go, done = os.pipe(), os.pipe()
child = os.fork()
if not child:
    os.read(go[0], 1)
    {act}
    try:
        os.close(fd)
        os.write(done[1], b'0')
    except OSError as e:
        os.write(done[1], str(e.errno).encode())
    time.sleep(600)  # its end says nothing: the close has
    os._exit(0)
"""
SAID = "said = int(os.read(done[0], 8)); os.kill(child, 9); os.waitpid(child, 0)\n"
RAISE = "if said: raise OSError(said, 'the last close')\n"

# Of each: what comes before the last close, and that. `data` is what the file has in the end.
KINDS = {
    "one descriptor": (OPEN + "os.write(fd, data)", "os.close(fd)"),
    "a duplicate": (OPEN + "other = os.dup(fd); os.close(fd); os.write(other, data)", "os.close(other)"),
    "a duplicate, written first": (OPEN + "os.write(fd, data); other = os.dup(fd); os.close(fd)", "os.close(other)"),
    "a fork, the parent last": (OPEN + CHILD.format(act="os.write(fd, data)") + "os.write(go[1], b'.')\n" + SAID + RAISE, "os.close(fd)"),
    "a fork, the child last": (OPEN + CHILD.format(act="os.write(fd, data)"), "os.close(fd)\nos.write(go[1], b'.')\n" + SAID + RAISE),
    "a fork, the child last, the parent writes": (OPEN + "os.write(fd, data)\n" + CHILD.format(act="pass"),
                                                  "os.close(fd)\nos.write(go[1], b'.')\n" + SAID + RAISE),
    "passed by a socket": (OPEN + """pair = socket.socketpair()
go, done = os.pipe(), os.pipe()
child = os.fork()
if not child:
    os.close(fd)
    os.write(done[1], b'.')
    fd = socket.recv_fds(pair[1], 1, 1)[1][0]
    os.read(go[0], 1)
    os.write(fd, data)
    try:
        os.close(fd)
        os.write(done[1], b'0')
    except OSError as e:
        os.write(done[1], str(e.errno).encode())
    time.sleep(600)
    os._exit(0)
os.read(done[0], 1)  # the child has closed its own
""", "socket.send_fds(pair[0], [b'x'], [fd]); os.close(fd)\nos.write(go[1], b'.')\n" + SAID + RAISE),
}


@pytest.fixture(params=[b"", b"x"], ids=["0 bytes", "1 byte"])
def data(request):
    return request.param


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def test_the_last_close_lists_it_and_a_killed_daemon_has_it(mount, stage, commit, agent, kind, data):
    made = stage("1000")
    commit(mount / "1000")
    a, (before, last) = agent(), kind
    a.run(before, path=str(mount / "1000/late"), data=data)
    assert "late" not in mount.listing("1000"), "somebody goes on writing it"
    a.run(last)
    assert "late" in mount.listing("1000")
    mount.kill9()
    mount.start()
    assert trees.files(mount / "1000") == made | {"late": data}


@needs_root
def test_the_last_close_says_that_there_is_no_room(world, agent, kind, data):
    disk = world.scratch / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m,nr_inodes=300", "none", disk], check=True)
    world.callback(lambda: subprocess.run(["umount", "-l", disk], check=True))
    m = Mount.new(world, disk / "store")
    (m / "1000").mkdir()
    made = trees.fill(m / "1000")
    trees.write(m / "1000/.finalize", b"")
    a, (before, last) = agent(), kind
    a.run(before, path=str(m / "1000/late"), data=data)
    fill = 0
    with pytest.raises(OSError):
        while True:
            os.close(os.open(disk / f"fill{fill}", os.O_CREAT | os.O_WRONLY))
            fill += 1
    assert a.errno_of(last) == "ENOSPC"
    assert "late" not in m.listing("1000")
    assert any("late could not be added" in line for line in m.errors())
    for i in range(fill):
        os.unlink(disk / f"fill{i}")
    m.kill9()
    m.start()
    assert trees.files(m / "1000") == made


def test_a_close_after_a_fork_goes_on_where_the_first_ended(mount, stage, commit, agent):
    """What was published stays until the child closes: readers see one or the other."""
    made = stage("1000")
    commit(mount / "1000")
    a = agent()
    a.run(OPEN + "os.write(fd, b'one')\n" + CHILD.format(act="os.write(fd, b' two')") + "os.close(fd)", path=str(mount / "1000/late"))
    assert trees.files(mount / "1000") == made | {"late": b"one"}
    a.run("os.write(go[1], b'.')\n" + SAID + RAISE)
    mount.kill9()
    mount.start()
    assert trees.files(mount / "1000") == made | {"late": b"one two"}


def test_what_a_killed_child_wrote_after_the_close_does_not_join(mount, stage, commit, agent):
    made = stage("1000")
    commit(mount / "1000")
    a = agent()
    a.run(OPEN + """os.write(fd, b'one')
done = os.pipe()
child = os.fork()
if not child:
    os.read(done[0], 1)
    os.write(fd, b' half')
    os.kill(os.getpid(), 9)
os.close(fd)
os.write(done[1], b'.')
os.waitpid(child, 0)""", path=str(mount / "1000/late"))
    # The kernel tells of a last close after the process has ended.
    wait_until(lambda: trees.files(mount / "1000") == made | {"late": b"one"}, what="the end of the killed process")
    mount.kill9()
    mount.start()
    assert trees.files(mount / "1000") == made | {"late": b"one"}
