"""The mount as a service of systemd: what it tells its manager, and the unit. The manager here is a socket."""

import os
import re
import select
import signal
import socket
import subprocess
import threading

import pytest

from support.fixtures import SOURCE
from support.mounting import daemon_environment, mount_entry, mounts_below, wait_until

pytestmark = pytest.mark.timeout(60)

UNIT = SOURCE / "tools/systemd/ckptfs@.service"


class Manager:
    """What a service manager hears at $NOTIFY_SOCKET."""

    def __init__(self, name):
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name[0] == "@" else name)

    def close(self):
        self._socket.close()

    def hear(self, timeout=20.0):
        """The next datagram, as {name: value}; None when there is none."""
        if not select.select([self._socket], [], [], timeout)[0]:
            return None
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())

    def stop_listening(self):
        """Fills the queue: whoever sends waits until it is heard again. Returns how many datagrams that took."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.connect(self._socket.getsockname())
            s.setblocking(False)
            count = 0
            while True:
                try:
                    s.send(b"X=")
                    count += 1
                except BlockingIOError:
                    return count


@pytest.fixture(params=["path", "abstract"])
def manager(request, scratch):
    m = Manager(str(scratch / "notify") if request.param == "path" else f"@ckptfs-test-{os.getpid()}")
    yield m
    m.close()


@pytest.fixture
def point(scratch):
    path = scratch / "mnt"
    path.mkdir()
    return path


@pytest.fixture
def start(ckptfs, store, point, scratch, world):
    """start(manager name): `ckptfs mount -f` as a manager starts it."""
    def begin(name, *more):
        environment = dict(daemon_environment(scratch), NOTIFY_SOCKET=name)
        process = subprocess.Popen([ckptfs.path, "mount", "-f", *more, store, point], env=environment, stderr=subprocess.PIPE, text=True)

        def end():
            process.kill()
            process.wait(20)
            process.stderr.close()
            for at in mounts_below(point):
                subprocess.run(["umount", "-l", at] if os.geteuid() == 0 else ["fusermount3", "-uz", at], check=False, capture_output=True)
        world.callback(end)
        return process
    return begin


def unmount(point):
    subprocess.run(["umount", point] if os.geteuid() == 0 else ["fusermount3", "-u", point], check=True)


# --- What the manager hears -------------------------------------------------------------------------------------------


def test_ready_is_said_once_the_mount_answers(manager, start, store, point):
    start(manager.name)
    word = manager.hear()
    assert word["READY"] == "1" and str(store) in word["STATUS"] and str(point) in word["STATUS"]
    (point / "f").write_text("x")
    assert os.listdir(point) == ["f"]
    assert manager.hear(0.3) is None, "nothing more to say"


def test_ready_is_not_said_before_the_mount_is_there(manager, start, point):
    """The manager does not listen: whoever speaks to it is held up there, and comes no further."""
    junk = manager.stop_listening()
    process = start(manager.name)
    wait_until(lambda: mount_entry(point), 10, "the mount, while READY cannot be said")
    assert process.poll() is None
    for _ in range(junk):
        assert manager.hear() == {"X": ""}
    assert manager.hear()["READY"] == "1"
    assert os.listdir(point) == []


@pytest.mark.parametrize("how", ["signal", "umount"])
def test_stopping_is_said_before_the_end(manager, start, point, how):
    process = start(manager.name)
    assert manager.hear()["READY"] == "1"
    junk = manager.stop_listening()
    if how == "signal":
        process.send_signal(signal.SIGTERM)
    else:
        threading.Thread(target=unmount, args=[point]).start()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)  # it is held up with its word
    for _ in range(junk):
        assert manager.hear() == {"X": ""}
    word = manager.hear()
    assert word["STOPPING"] == "1" and str(point) in word["STATUS"]
    assert process.wait(10) == 0
    assert manager.hear(0) is None


def test_manager_that_hears_nothing_does_not_keep_the_mount_from_its_end(manager, start, point):
    process = start(manager.name)
    assert manager.hear()["READY"] == "1"
    manager.stop_listening()
    process.send_signal(signal.SIGTERM)
    process.wait(7)
    assert mount_entry(point) is None or os.geteuid() != 0


def test_failed_start_is_never_ready(manager, start, store):
    store.write_text("no store")
    process = start(manager.name)
    assert process.wait(20) == 1
    assert manager.hear(0) is None


def test_daemon_in_the_background_is_not_what_a_manager_started(manager, ckptfs, store, point, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", manager.name)
    ckptfs("mount", store, point)
    os.listdir(point)
    ckptfs("umount", point)
    assert manager.hear(0.2) is None


@pytest.mark.parametrize("name", ["nowhere", "/nowhere/notify", "@" + "x" * 200])
def test_manager_that_cannot_be_reached_is_no_obstacle(start, point, name):
    process = start(name)
    wait_until(lambda: mount_entry(point), 10, "the mount")
    os.listdir(point)
    unmount(point)
    assert process.wait(10) == 0
    assert f"NOTIFY_SOCKET={name} cannot be reached" in process.stderr.read()


# --- umount --dead ----------------------------------------------------------------------------------------------------


def test_umount_dead_takes_away_a_dead_mount_that_is_in_use(mount, ckptfs):
    (mount / "f").write_text("x")
    with open(mount / "f"):
        mount._process.kill()
        mount._process.wait(20)
        assert mount_entry(mount.path)
        ckptfs("umount", "--dead", mount.path)
    assert mount_entry(mount.path) is None


def test_umount_dead_leaves_all_else_alone(mount, ckptfs, scratch):
    for path in (mount.path, scratch, scratch / "nowhere", "/proc"):
        assert ckptfs("umount", "--dead", path).stderr == ""
    (mount / "f").write_text("x")


# --- The unit ---------------------------------------------------------------------------------------------------------


def test_unit_is_what_systemd_understands(ckptfs, scratch):
    """As installed, but for the places of the program and of its man pages."""
    unit = scratch / "ckptfs@run42.service"
    unit.write_text(re.sub(r"^(Exec\w+=)ckptfs ", rf"\1{ckptfs} ", UNIT.read_text(), flags=re.M))
    for section in (1, 8):
        (scratch / f"man/man{section}").mkdir(parents=True)
        for page in (ckptfs.path.parent / "man").glob(f"*.{section}"):
            (scratch / f"man/man{section}" / page.name).write_bytes(page.read_bytes())
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=50,
                          env=dict(os.environ, MANPATH=str(scratch / "man"), PAGER="cat"))
    assert (done.returncode, done.stderr) == (0, "")


def commands(ckptfs, variables):
    """{"ExecStart": command line, ...} of the unit, as systemd splits it."""
    found = {}
    for key, words in re.findall(r"^(Exec\w+)=ckptfs (.*)$", UNIT.read_text(), re.M):
        found[key] = [str(ckptfs), *(re.sub(r"\$\{(\w+)\}", lambda m: variables[m[1]], word) for word in words.split())]
    return found


@pytest.mark.parametrize("options", ["", "no_passthrough,open_writers=1s"])
def test_units_commands_mount_again_after_a_crash(manager, ckptfs, world, store, point, options):
    unit = commands(ckptfs, {"STORE": str(store), "DIR": str(point), "OPTIONS": options})
    assert unit.keys() == {"ExecStartPre", "ExecStart", "ExecStopPost"}
    for round_number in range(2):
        assert subprocess.run(unit["ExecStartPre"], check=False).returncode == 0
        daemon = subprocess.Popen(unit["ExecStart"], env=dict(os.environ, NOTIFY_SOCKET=manager.name))
        world.callback(daemon.wait)
        world.callback(daemon.kill)
        assert manager.hear()["READY"] == "1"
        assert len(os.listdir(point)) == round_number
        (point / str(round_number)).mkdir()
        (point / str(round_number) / ".finalize").touch()
        daemon.kill()
        daemon.wait(20)
        if round_number == 1:  # the first time ExecStartPre must do it, as after a crash of the manager itself
            assert subprocess.run(unit["ExecStopPost"], check=False).returncode == 0
            assert mount_entry(point) is None
    assert subprocess.run(unit["ExecStopPost"], check=False).returncode == 0, "nothing to do is no failure"
