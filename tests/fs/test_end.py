"""The end of a mount: within five seconds, whatever hangs; clients are let go and nothing is lost."""

import os
import signal
import socket
import subprocess
import time

import pytest

from support import trees
from support.commits import OPEN_MARKER
from support.fixtures import SLOW, both_modes, needs_root
from support.mounting import LoopDisk, Mount, errno_name, mounts_below, wait_until
from support.syncs import BadSyncs

pytestmark = [pytest.mark.timeout(90), needs_root]

SECONDS = 5.0 + 1.0 * SLOW  # what is promised, and something for a busy machine


def listed(mount, name="1000"):
    return name in mount.listing()


def ended(mount, began=None):
    """Waits for the daemon's end; how long it took, and its status."""
    began = began or time.monotonic()
    status = mount._process.wait(30)
    took = time.monotonic() - began
    mount._stopped()
    return took, status


def terminate(mount, sig=signal.SIGTERM):
    began = time.monotonic()
    os.kill(mount.pid, sig)
    return began


def kept(mount, name, made):
    """The step is whole, whether it was committed or is staged as before."""
    return trees.files(mount / name) == made


class TestLongCommit:
    @pytest.fixture
    def options(self):
        return ["open_writers=60s"]

    @both_modes
    @pytest.mark.parametrize("release", [False, True], ids=["writer stays", "writer goes"])
    def test_signal_in_a_long_commit_lets_the_client_go_and_loses_nothing(self, mount, step, agent, release):
        made = trees.files(step)
        writer, a = agent(), agent()
        writer.run("fd = os.open(step + '/late', os.O_CREAT | os.O_WRONLY); os.write(fd, b'almost')", step=step)
        a.run(OPEN_MARKER, step=step)
        a.start("os.close(fd)")
        assert a.still_busy(0.5)
        began = terminate(mount)
        if release:
            time.sleep(1)
            writer.run("os.close(fd)")
            a.result(timeout=10)
            took, status = ended(mount, began)
            assert took < SECONDS and status == 0
        else:
            with pytest.raises(OSError) as e:
                a.result(timeout=10)
            assert time.monotonic() - began < SECONDS
            assert errno_name(e.value) in ("EINTR", "ENOTCONN", "ECONNABORTED")
            took, status = ended(mount, began)
            assert took < SECONDS and status == 1
            assert "1000" in mount.log() and "unfinished" in mount.log()
        assert mounts_below(mount.path) == []
        mount.start()
        assert listed(mount) == release
        assert kept(mount, "1000", made | {"late": b"almost"})
        if not release:
            [line] = mount.errors()
            assert "\t1000\t" in line and "unfinished" in line

    def test_commit_by_rename_is_let_go_too(self, world, store, agent, scratch):
        syncs = BadSyncs(world)
        m = Mount.new(world, store, prefix=syncs.prefix)
        (m / "7.orbax-checkpoint-tmp").mkdir()
        made = trees.fill(m / "7.orbax-checkpoint-tmp")
        a = agent()
        syncs.hang()
        a.start("os.rename(r + '/7.orbax-checkpoint-tmp', r + '/7')", r=str(m.path))
        assert a.still_busy(0.5)
        began = terminate(m)
        with pytest.raises(OSError):
            a.result(timeout=10)
        assert ended(m, began) < (SECONDS, 2)
        syncs.go_on()
        m.start()
        name = "7" if listed(m, "7") else "7.orbax-checkpoint-tmp"
        assert kept(m, name, made)


def test_plain_umount_ends_in_time_though_a_commit_hangs_that_nobody_waits_for(world, store, agent):
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix)
    (m / "1000").mkdir()
    made = trees.fill(m / "1000", size=100_000)
    a = agent()
    a.run(OPEN_MARKER, step=str(m / "1000"))
    syncs.hang()
    a.start("os.close(fd)")
    assert a.still_busy(0.5)
    a.kill()
    a.wait_gone(5)
    began = time.monotonic()
    wait_until(lambda: subprocess.run(["umount", m.path], check=False, capture_output=True).returncode == 0, 5, "umount")
    took, status = ended(m, began)
    assert took < SECONDS and status == 1
    syncs.go_on()
    m.start()
    assert kept(m, "1000", made)


@pytest.mark.parametrize("how", ["signal", "umount"])
def test_a_verb_that_says_nothing_does_not_hold_up_the_end(mount, store, how):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(store / "control.sock"))
        time.sleep(0.3)
        began = time.monotonic()
        if how == "signal":
            terminate(mount)
        else:
            subprocess.run(["umount", mount.path], check=True)
        took, status = ended(mount, began)
        assert took < 2.0 * SLOW and status == 0


@both_modes
@pytest.mark.parametrize("what", ["write", "create", "copy"])
def test_signal_while_the_disk_hangs_lets_the_clients_go(world, mode, agent, what):
    """The process itself ends with the disk's last answer; its clients and its mount point do not wait for that."""
    disk = LoopDisk(world)
    m = Mount.new(world, disk.path / "store", mode=mode)
    (m / "1000").mkdir()
    made = trees.fill(m / "1000")
    a = agent()
    a.run("fd = os.open(r + '/log', os.O_CREAT | os.O_RDWR); os.write(fd, b'x')", r=str(m.path))
    if what == "write" and mode == "passthrough":
        pytest.skip("the kernel itself waits for the disk")
    disk.freeze()
    a.start({"write": "os.write(fd, b'y')", "create": "os.open(r + '/new', os.O_CREAT | os.O_RDWR)",
             "copy": "os.copy_file_range(fd, fd, 1, 0, 10)"}[what])
    assert a.still_busy(0.5)
    began = terminate(m)
    with pytest.raises(OSError):
        a.result(timeout=10)
    assert time.monotonic() - began < SECONDS
    wait_until(lambda: mounts_below(m.path) == [], SECONDS, "the mount's end")
    disk.thaw()
    ended(m)
    m.start()
    assert kept(m, "1000", made)
