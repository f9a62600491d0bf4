"""Disks made of files: loop devices, filesystems on them, and one whose writes are logged."""

import ctypes
import os
import shutil
import subprocess
import time
from pathlib import Path

from power.blocklog import BlockLog
from support.alone import LIBC, MNT_DETACH
from support.mounting import mount_entry

BLKFLSBUF = 0x1261

# What makes each, without work that goes on behind the first mount, and the size it wants at least.
FILESYSTEMS = {
    "ext4": (64, ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
    "xfs": (300, ["mkfs.xfs", "-q", "-f"]),
    "btrfs": (128, ["mkfs.btrfs", "-q", "-f"]),
}
LOG_BYTES = 8 << 30  # sparse


def missing(filesystem):
    """Why this machine cannot do it, or None."""
    if os.geteuid() != 0:
        return "only root has loop devices and mounts filesystems"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices"
    mkfs = FILESYSTEMS[filesystem][1][0]
    for program in ("qemu-storage-daemon", "losetup", mkfs):
        if not shutil.which(program):
            return f"{program} is not installed (tools/deps --tests)"
    known = Path("/proc/filesystems").read_text()
    if f"\t{filesystem}\n" not in known and subprocess.run(["modprobe", "-q", filesystem], check=False, stderr=subprocess.DEVNULL).returncode:
        return f"the kernel has no {filesystem}"
    return None


def memory_or(folder):
    """Where disks are fast: a tmpfs with room for two of them and a log, else the folder."""
    try:
        room = os.statvfs("/dev/shm")
        return "/dev/shm" if room.f_bavail * room.f_frsize > 1 << 30 else folder
    except OSError:
        return folder


def make(filesystem, path):
    megabytes, mkfs = FILESYSTEMS[filesystem]
    with open(path, "wb") as f:
        f.truncate(megabytes << 20)
    subprocess.run([*mkfs, str(path)], check=True, capture_output=True)


def copy(source, target):
    """With its holes."""
    subprocess.run(["cp", "--sparse=always", source, target], check=True)


def attach(path):
    """The loop device of a file."""
    words = ["losetup", "--find", "--show", "--direct-io=off", str(path)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def detach(device):
    subprocess.run(["losetup", "-d", device], check=False)


def mount(device, path, filesystem):
    if LIBC.mount(os.fsencode(device), os.fsencode(path), filesystem.encode(), 0, None):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), device)


def umount(device, path):
    """Waits for who is just leaving; a mount that stays busy is taken away, and is an error. The device is nobody's afterwards."""
    for _ in range(200):
        if not LIBC.umount2(os.fsencode(path), 0):
            break
        time.sleep(0.01)
    else:
        error = ctypes.get_errno()
        LIBC.umount2(os.fsencode(path), MNT_DETACH)
        raise OSError(error, os.strerror(error), str(path))
    for _ in range(2000):
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
            return
        except OSError:
            time.sleep(0.01)
    raise RuntimeError(f"{device} is unmounted, and somebody else has it mounted still")


class LoggedDisk:
    """A device whose writes, flushes and discards are in `log` by the time that they are answered.

    A file is exported by qemu through FUSE, with the logging layer between, and a loop device is put on what is exported. qemu asks
    the kernel to cache nothing, so that all goes through to it; and a loop device without direct I/O asks for one thing at a time, which
    is needed: qemu before 9.0 mixes up the data of writes that come at once.
    """

    def __init__(self, world, image, log):
        self.folder = Path(image).parent
        export = self.folder / "exported"
        export.touch()
        with open(log, "wb") as f:
            f.truncate(LOG_BYTES)
        files = {"disk": image, "log": log}
        words = ["qemu-storage-daemon"]
        for node, path in files.items():
            words += ["--blockdev", f"driver=file,node-name={node},filename={path},cache.no-flush=on,discard=unmap"]
        words += ["--blockdev", "driver=blklogwrites,node-name=logged,file=disk,log=log,log-sector-size=512",
                  "--export", f"type=fuse,id=export,node-name=logged,mountpoint={export},writable=on,growable=off"]
        with open(self.folder / "qemu.log", "wb") as out:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        world.callback(self._end)
        self._export, self.device = export, None
        deadline = time.monotonic() + 20
        while mount_entry(export) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"qemu-storage-daemon does not export: {(self.folder / 'qemu.log').read_text()}")
            time.sleep(0.01)
        self.device = attach(export)
        self.log = BlockLog(log)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """Nothing may be mounted from it any more. The log is complete then."""
        self._end()
        if kind is None:
            self.log.check()

    def _end(self):
        if self.device:
            detach(self.device)
            self.device = None
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
        if mount_entry(self._export):
            LIBC.umount2(os.fsencode(self._export), MNT_DETACH)
