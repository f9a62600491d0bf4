"""What hangs must hang alone: a disk that does not answer holds up those who need it, and nobody else."""

import os
import resource
import signal
import subprocess

import pytest

from support import trees
from support.commits import listed
from support.fixtures import both_modes, needs_root
from support.mounting import Mount, wait_until
from support.syncs import BadSyncs

pytestmark = [pytest.mark.timeout(90), needs_root]

MANY = 40  # more than the threads that serve requests
THREADS = """
import threading
results = {}
def call(i):
    try:
        results[i] = work(i)
    except OSError as e:
        results[i] = errno.errorcode[e.errno]
threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(many)]
"""
# Two processes that share one table of descriptors: the one that opens the marker ends, which closes nothing.
MARKER_OF_ANOTHER_PROCESS = """
CLONE_FILES = 0x400
number = {"x86_64": 56}.get(os.uname().machine, 220)
child = ctypes.CDLL(None).syscall(number, CLONE_FILES | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    try:
        os.open(step + '/.finalize', os.O_CREAT | os.O_WRONLY, 0o644)
    finally:
        os._exit(0)
os.waitpid(child, 0)
names = {n: os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd") if os.path.islink("/proc/self/fd/" + n)}
fd = [int(n) for n, target in names.items() if target.endswith("/.finalize")][0]
"""


class HangingFolder:
    """The folder "d" of the staged step "1000" on a disk of its own, which can be made to hang: the mount of another store, whose daemon is stopped."""

    def __init__(self, world, mount, store):
        self.path = mount / "1000/d"
        self.path.mkdir(parents=True)
        [session] = os.listdir(store / "sessions")
        self._disk = Mount.new(world, world.scratch / "disk-store", path=store / "sessions" / session / "d", mode="daemon")
        world.callback(self._end)
        os.stat(self.path)

    def hang(self):
        os.kill(self._disk.pid, signal.SIGSTOP)

    def go_on(self):
        if self._disk.alive():
            os.kill(self._disk.pid, signal.SIGCONT)

    def _end(self):
        """The releases of what was open there come late."""
        self.go_on()
        wait_until(lambda: subprocess.run(["umount", self._disk.path], check=False, capture_output=True).returncode == 0, 30, "the end of what was open")


@pytest.fixture
def syncs(world):
    return BadSyncs(world)


@pytest.fixture
def mode(request):
    return getattr(request, "param", "daemon")


@pytest.fixture
def folder(world, mount, store):
    return HangingFolder(world, mount, store)


def assert_others_are_served(mount, agent, steps_too=True):
    other = agent()
    assert other.run("sorted(os.listdir(r))", r=str(mount.path), timeout=5) == []
    other.run("os.mkdir(r + '/logs'); fd = os.open(r + '/logs/a', os.O_CREAT | os.O_RDWR); os.write(fd, b'x'); os.pread(fd, 1, 0); os.close(fd)",
              r=str(mount.path), timeout=5)
    if steps_too:
        other.run("os.mkdir(r + '/2000')", r=str(mount.path), timeout=5)


@pytest.mark.parametrize("open_files, work, good", [
    ("fds = [os.open(f'{p}/{i}', os.O_CREAT | os.O_RDWR) for i in range(many)]; [os.write(fd, b'x') for fd in fds]", "os.fsync(fds[i])", None),
    ("", "len(open(r + '/.ckptfs/status.json').read()) > 2", True),
    ("", "len(open(r + '/.ckptfs/status').read()) > 2", True),
    ("fds = [os.open(f'{p}/{i}', os.O_CREAT | os.O_RDWR) for i in range(many)]; [os.write(fd, b'x' * 8) for fd in fds]",
     "os.copy_file_range(fds[i], fds[i], 4, 0, 4)", 4),
], ids=["fsync", "status.json", "status", "copy_file_range"])
def test_whoever_waits_for_a_hanging_disk_keeps_nobody_from_being_served(mount, folder, agent, open_files, work, good):
    a = agent()
    a.run(THREADS + "def work(i):\n    return " + work, many=MANY, p=str(folder.path), r=str(mount.path))
    a.run(open_files or "None")
    folder.hang()
    a.run("[t.start() for t in threads]; time.sleep(0.5)")
    assert a.run("len(results)") == 0, "the disk does not hang"
    assert_others_are_served(mount, agent)
    folder.go_on()
    a.run("[t.join() for t in threads]")
    assert a.run("results") == dict.fromkeys(range(MANY), good)


def test_fsync_of_directories_on_a_hanging_disk_keeps_nobody_from_being_served(world, store, syncs, agent):
    m = Mount.new(world, store, prefix=syncs.prefix)
    a = agent()
    a.run(THREADS + "def work(i):\n    return os.fsync(fds[i])", many=MANY)
    a.run("[os.mkdir(f'{r}/f{i}') for i in range(many)]; fds = [os.open(f'{r}/f{i}', os.O_RDONLY) for i in range(many)]", r=str(m.path))
    syncs.hang()
    a.run("[t.start() for t in threads]; time.sleep(0.5)")
    assert a.run("results") == {}, "the disk does not hang"
    other = agent()
    assert len(other.run("os.listdir(r)", r=str(m.path), timeout=5)) == MANY
    other.run("os.mkdir(r + '/logs')", r=str(m.path), timeout=5)
    syncs.go_on()
    a.run("[t.join() for t in threads]")
    assert a.run("results") == dict.fromkeys(range(MANY))


def test_a_copy_of_many_gigabytes_is_made_in_pieces(mount):
    (mount / "plain").mkdir()
    with open(mount / "plain/from", "wb") as f, open(mount / "plain/to", "wb") as to:
        f.truncate(1 << 30)
        with open(mount / "plain/from", "rb") as source:
            assert 0 < os.copy_file_range(source.fileno(), to.fileno(), 1 << 30) <= 64 << 20


@pytest.mark.timeout(150)
def test_more_fsyncs_at_once_than_threads_wait_their_turn(mount, folder, agent):
    many = 1100
    a = agent()
    a.run(THREADS + "def work(i):\n    return os.fsync(fds[i])", many=many)
    a.run("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)); threading.stack_size(128 << 10)")
    a.run("fds = [os.open(f'{p}/{i}', os.O_CREAT | os.O_RDWR) for i in range(many)]", p=str(folder.path), timeout=60)
    folder.hang()
    a.run("[t.start() for t in threads]; time.sleep(1)", timeout=60)
    assert a.run("results") == {}
    assert_others_are_served(mount, agent, steps_too=False)  # a step waits for its disk, in the same queue
    folder.go_on()
    a.run("[t.join() for t in threads]", timeout=60)
    assert a.run("results") == dict.fromkeys(range(many))


# --- Without memory for a thread --------------------------------------------------------------------------------------


def limit_memory(mount, bytes_more):
    """Gives the daemon that much more address space and no more."""
    with open(f"/proc/{mount.pid}/status") as f:
        now = int(f.read().split("VmSize:")[1].split()[0]) * 1024
    resource.prlimit(mount.pid, resource.RLIMIT_AS, (now + bytes_more, resource.RLIM_INFINITY))


def test_the_last_release_of_a_marker_never_fails(world, store, syncs, agent, commit):
    """No thread can be started for it: the handle is let go of all the same, and the marker with it."""
    m = Mount.new(world, store, prefix=syncs.prefix)
    (m / "1000").mkdir()
    made = trees.fill(m / "1000")
    (m / "log").write_text("x")
    a, b = agent(), agent()
    a.run(MARKER_OF_ANOTHER_PROCESS, step=str(m / "1000"))
    b.run("fd = os.open(log, os.O_RDWR)", log=str(m / "log"))
    syncs.hang()
    b.start("os.fsync(fd)")  # it has the one thread that there is
    assert b.still_busy(0.3)
    limit_memory(m, 0)
    a.run("os.close(fd)")
    wait_until(lambda: listed(m) or not os.path.exists(m / "1000/.finalize"), what="the end of the marker's handle")
    limit_memory(m, 1 << 30)
    syncs.go_on()
    b.result()
    if not listed(m):
        commit(m / "1000")
    assert trees.files(m / "1000") == made


# --- Lost writes ------------------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("where", ["plain", "1000"])
def test_each_that_has_a_file_open_is_told_once_of_a_lost_write(world, store, syncs, agent, mode, where):
    m = Mount.new(world, store, mode=mode, prefix=syncs.prefix)
    (m / where).mkdir()
    several = [agent() for _ in range(3)]
    for a in several:
        a.run("fd = os.open(path, os.O_RDWR | os.O_CREAT); other = os.open(path, os.O_RDONLY)", path=str(m / where / "f"))
    several[0].run("os.write(fd, b'lost')")
    syncs.fail_next()
    for a in several:
        assert a.errno_of("os.fsync(fd)") == "EIO"
        assert a.errno_of("os.fsync(fd)") is None, "it is told once"
    late = agent()
    late.run("fd = os.open(path, os.O_RDWR)", path=str(m / where / "f"))
    assert late.errno_of("os.fsync(fd)") is None, "it was opened after the error was told"
    assert [a.errno_of("os.fsync(other)") for a in several] == ["EIO"] * 3, "each open file is told, as everywhere"


def test_an_old_lost_write_that_is_told_late_does_not_spoil_the_file_written_anew(world, store, syncs, agent, commit):
    m = Mount.new(world, store, prefix=syncs.prefix)
    (m / "1000").mkdir()
    a, b = agent(), agent()
    for x in (a, b):
        x.run("fd = os.open(path, os.O_RDWR | os.O_CREAT)", path=str(m / "1000/f"))
    a.run("os.write(fd, b'lost')")
    syncs.fail_next()
    assert a.errno_of("os.fsync(fd)") == "EIO"
    with pytest.raises(OSError):
        a.run("m = os.open(step + '/.finalize', os.O_CREAT | os.O_WRONLY); os.close(m)", step=str(m / "1000"))
    a.run("os.ftruncate(fd, 0); os.pwrite(fd, b'anew', 0); os.fsync(fd)")
    assert b.errno_of("os.fsync(fd)") == "EIO"
    a.run("os.close(fd)")
    b.run("os.close(fd)")
    commit(m / "1000")
    assert (m / "1000/f").read_bytes() == b"anew"
