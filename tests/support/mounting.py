"""The program, stores and mounts under test. Everything made here is registered for its end in a World."""

import contextlib
import errno
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# How a mount does its I/O: by the kernel on the backing files; through the daemon; by the kernel, requests over io_uring.
# The kernel's switch for io_uring is one for all: a mount that does not ask for it must not see it on by another test.
MODES = {"passthrough": ["no_io_uring"], "daemon": ["no_passthrough", "no_io_uring"], "uring": []}
URING_SWITCH = Path("/sys/module/fuse/parameters/enable_uring")

os.environ.setdefault("CKPT_LOCK_ORDER", "abort")  # core/base/lock.h


class MountFailed(Exception):
    pass


class Program:
    """ckptfs itself: program("ls", store) runs a verb, .json() reads its answer."""

    def __init__(self, path):
        self.path = Path(path).resolve()

    def __str__(self):
        return str(self.path)

    def __call__(self, *args, check=True, timeout=60, **kwargs):
        done = subprocess.run([self.path, *map(str, args)], capture_output=True, text=True, timeout=timeout, **kwargs)
        if check and done.returncode:
            raise AssertionError(f"ckptfs {' '.join(map(str, args))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def json(self, *args, **kwargs):
        return json.loads(self(*args, "--json", **kwargs).stdout)


class World(contextlib.ExitStack):
    """What one test made, undone in reverse order; `deadline` (monotonic) is when hanging calls are cut loose."""

    def __init__(self, program, scratch, deadline):
        super().__init__()
        self.program, self.scratch, self.deadline = program, scratch, deadline
        self.mounts = 0


def unescaped(field):
    """A path as /proc/self/mountinfo writes it, of any bytes."""
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), os.fsencode(field)))


def mount_table():
    """Mounts as this process sees them, oldest first: (point, type, options, super options, source)."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            left, _, right = line.partition(" - ")
            fields, right = left.split(" "), right.split()
            yield unescaped(fields[4]), right[0], fields[5].split(","), right[2].split(","), right[1]


def mounts_below(path):
    """Mount points at or below a path, deepest first."""
    path = str(path)
    found = [point for point, *_ in mount_table() if point == path or point.startswith(path.rstrip("/") + "/")]
    return found[::-1]


def mount_entry(path):
    """(type, options, super options, source) of the newest mount at a path, None when there is none."""
    entry = None
    for point, *rest in mount_table():
        if point == str(path):
            entry = tuple(rest)
    return entry


def scratch_base():
    """A folder on a disk whose filesystem keeps user xattrs: where stores of tests live."""
    tried = []
    for base in filter(None, [os.environ.get("CKPT_TEST_DIR"), tempfile.gettempdir(), "/var/tmp", os.environ.get("CKPT_BUILD_DIR")]):
        try:
            with tempfile.NamedTemporaryFile(dir=base) as f:
                os.setxattr(f.name, "user.ckptfs-test", b"x")
            return base
        except OSError as e:
            tried.append(f"{base}: {e.strerror}")
    raise RuntimeError("no folder for stores keeps user xattrs (set CKPT_TEST_DIR): " + "; ".join(tried))


def daemon_environment(scratch):
    """Reports of sanitizer builds go to files, so that the end of a mount can look for them."""
    where = f"log_path={scratch}/sanitizer"
    old = os.environ.get
    return dict(os.environ, ASAN_OPTIONS=f"{where}:{old('ASAN_OPTIONS', '')}", UBSAN_OPTIONS=f"{where}:print_stacktrace=1:{old('UBSAN_OPTIONS', '')}",
                TSAN_OPTIONS=f"{where}:{old('TSAN_OPTIONS', '')}")


def sanitizer_reports(scratch):
    return "".join(p.read_text(errors="replace") for p in sorted(Path(scratch).glob("sanitizer*")))


@contextlib.contextmanager
def uring_switch():
    """Turns FUSE over io_uring on in the kernel and back; mounts made meanwhile keep it. Other tests wait their turn."""
    with open(Path(tempfile.gettempdir()) / "ckptfs-test-uring.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = URING_SWITCH.read_text().strip()
        URING_SWITCH.write_text("Y")
        try:
            yield
        finally:
            URING_SWITCH.write_text(before)


class Mount:
    """A mounted store, its daemon in the foreground as our child. Use World's clean-up: make it with `Mount.new`."""

    def __init__(self, world, store, path, mode, options, prefix):
        self.world, self.store, self.path, self.mode = world, Path(store), Path(path), mode
        self.prefix = prefix  # a command line before ours: another name space, a tracer
        self.options = list(options)
        self.pid = 0
        self._process = None
        self._log = world.scratch / f"daemon-{world.mounts}.log"
        self._watchdog = None
        world.mounts += 1

    @classmethod
    def new(cls, world, store, path=None, mode="passthrough", options=(), prefix=()):
        path = Path(path or world.scratch / f"mnt{world.mounts or ''}")
        path.mkdir(exist_ok=True)
        m = cls(world, store, path, mode, options, prefix)
        world.callback(m._end)
        return m.start()

    def __truediv__(self, name):
        return self.path / name

    def _run(self):
        options = MODES[self.mode] + self.options
        command = [*self.prefix, str(self.world.program), "mount", "-f", str(self.store), str(self.path)]
        if not any(o.startswith("seal") for o in options):
            options.append("seal=no")  # a test counts the versions that it makes itself; those of sealing ask for it
        if not any(o.startswith("findings") for o in options):
            options.append("findings=off")  # and neither does it count those of findings
        if not any(o.startswith("commit_quiet") for o in options):
            options.append("commit_quiet=10m")  # no test is so slow that quiet completes something; those of quiet ask for it
        if options:
            command += ["-o", ",".join(options)]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=daemon_environment(self.world.scratch))
        self.pid = self._process.pid

    def start(self):
        with uring_switch() if self.mode == "uring" else contextlib.nullcontext():
            self._run()
            self._wait_answer()
        self._watchdog = threading.Timer(max(0.1, self.world.deadline - time.monotonic()), self._cut_loose)
        self._watchdog.daemon = True
        self._watchdog.start()
        return self

    def _wait_answer(self):
        deadline = time.monotonic() + 20
        while not self.mounted():
            if self._process.poll() is not None:
                status, self.pid = self._process.returncode, 0
                raise MountFailed(f"ckptfs mount ended with {status}:\n{self.log()}{sanitizer_reports(self.world.scratch)}")
            if time.monotonic() > deadline:
                self._process.kill()
                raise MountFailed(f"not mounted after 20 s:\n{self.log()}")
            time.sleep(0.005)
        os.stat(self.path)  # waits until the daemon has answered the kernel's first request

    def mounted(self):
        entry = mount_entry(self.path)
        return entry is not None and entry[0].startswith("fuse")

    def alive(self):
        return self._process is not None and self._process.poll() is None

    def log(self):
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def umount(self, timeout=15.0):
        """As an administrator would; the daemon must end by itself and well."""
        subprocess.run(["umount", str(self.path)] if os.geteuid() == 0 else ["fusermount3", "-u", str(self.path)], check=True, timeout=timeout)
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon is still there {timeout} s after umount\n{self._stacks()}") from None
        self._stopped()
        assert status == 0, f"the daemon ended with {status} after umount:\n{self.log()}{sanitizer_reports(self.world.scratch)}"

    def die(self):
        """The daemon dies, the dead mount stays."""
        self._process.kill()
        self._process.wait(20)
        self._stopped()

    def kill9(self):
        """The daemon dies, the dead mount is taken away."""
        self.die()
        self._detach()

    def start_and_die(self, seconds):
        """The daemon dies that long after it was started, mounted or not."""
        self._run()
        time.sleep(seconds)
        self.kill9()

    def remount(self, options=None):
        if self.alive():
            self.umount()
        if options is not None:
            self.options = list(options)
        return self.start()

    def status(self):
        return json.loads((self.path / ".ckptfs/status.json").read_text())

    def errors(self):
        return (self.path / ".ckptfs/errors").read_text().splitlines()

    def listing(self, folder="."):
        return sorted(os.listdir(self.path / folder))

    def _stopped(self):
        self.pid = 0
        if self._watchdog:
            self._watchdog.cancel()

    def _detach(self):
        for point in mounts_below(self.path):
            subprocess.run(["umount", "-l", point] if os.geteuid() == 0 else ["fusermount3", "-uz", point], check=False, capture_output=True)

    def _stacks(self):
        """Where the daemon's threads are, for whoever reads the failure. Never waits long: a thread may be beyond gdb's reach."""
        if not shutil.which("gdb") or not self.alive():
            return ""
        gdb = subprocess.Popen(["gdb", "-p", str(self.pid), "-batch", "-ex", "thread apply all bt 12"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            return gdb.communicate(timeout=20)[0][-12000:]
        except subprocess.TimeoutExpired:
            gdb.kill()
            return "gdb itself hangs on this daemon\n"

    def _cut_loose(self):
        """The test is about to run out of time, with calls hanging in this mount: nothing else frees them."""
        print(f"\nckptfs hangs? daemon {self.pid} is killed by the watchdog\n{self._stacks()}\n{self.log()}", file=sys.stderr, flush=True)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _end(self):
        """At the end of the test. A mount that cannot be unmounted plainly is a finding, and is taken away all the same."""
        problem = None
        if self.alive():
            try:
                if self.mounted():
                    self.umount()
            except (AssertionError, subprocess.SubprocessError) as e:
                problem = e
        if self.alive():
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
        self._stopped()
        self._detach()
        if problem:
            raise AssertionError(f"{problem}\n{self.log()}")


class LoopDisk:
    """A small disk on a loop device, ext4 unless another mkfs is given. It can be full, and can be made to hang: a frozen
    filesystem lets no change end."""

    def __init__(self, world, megabytes=64, mkfs=None):
        self.path = world.scratch / "disk"
        image = world.scratch / "disk.img"
        self._frozen, self._megabytes = False, megabytes
        self.path.mkdir()
        with open(image, "wb") as f:
            f.truncate(megabytes << 20)
        subprocess.run([*(mkfs or ["mkfs.ext4", "-q", "-F", "-m", "0"]), str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(self.path)], check=True)
        world.callback(self._end)

    def freeze(self):
        subprocess.run(["fsfreeze", "-f", str(self.path)], check=True)
        self._frozen = True
        self._timer = threading.Timer(60, self.thaw)
        self._timer.daemon = True
        self._timer.start()

    def thaw(self):
        if self._frozen:
            self._frozen = False
            self._timer.cancel()
            subprocess.run(["fsfreeze", "-u", str(self.path)], check=True)

    def fill_up(self):
        """Leaves no block that anybody could have, so that not even a name fits any more into a directory that would have to grow."""
        junk = self.path / "junk"
        junk.mkdir()
        with open(junk / "file", "wb") as f:
            end = 0
            for size in [1 << 20, 4096] * 10:  # each sync gives back what was reserved too much
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(f.fileno(), end, size)
                        end += size
                os.sync()
        left = os.statvfs(self.path).f_bavail
        assert left <= 8, f"{left} blocks cannot be filled"  # the filesystem keeps a few for itself

    def make_room(self):
        shutil.rmtree(self.path / "junk")

    def _end(self):
        self.thaw()
        if subprocess.run(["umount", str(self.path)], check=False, capture_output=True).returncode:
            subprocess.run(["umount", "-l", str(self.path)], check=False)


def errno_name(error):
    return "EOPNOTSUPP" if error.errno == errno.EOPNOTSUPP else errno.errorcode[error.errno]  # one number, two names


def wait_until(condition, timeout=10.0, what="the condition"):
    """Polls; the value once it is true."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about within {timeout} s")
        time.sleep(0.01)
    return value


def kill_quietly(pid):
    """Returns when the process has ended: until then it keeps its files open, and no umount succeeds."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            assert select.select([handle], [], [], 10)[0], f"process {pid} does not end"
        finally:
            os.close(handle)
