"""A recorded disk as a power cut could have left it, at any entry of its log, and what is then found on it.

A point is POSITION.VARIANT: the power fails when the log has so many entries. All that was written before the last flush among them is on the
disk; of what came after it nothing (variant 0), all (1), or a random part (2 and up) is, drawn from the recording's seed and the point.
A part is made of whole writes, and of pages of 4 KiB of torn ones: that is what a filesystem may be asked to bear.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import random
import subprocess
from pathlib import Path

from power import disks
from power.blocklog import DISCARD, FLUSH, FUA, BlockLog
from support import trees
from support.acts import plain_files, see
from support.mounting import Mount

PAGE = 4096
PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
NOTHING, ALL = 0, 1


class Looker:
    """The program of look.c."""

    def __init__(self, world, program):
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        world.callback(self._end)

    def ask(self, *words):
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program that looks has ended with {self._process.wait(20)}")
        return json.loads(line)

    def _end(self):
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._process.kill()


def choose(recording, log, count):
    """That many points (fewer where there are no more), in the order of the log, from the first act on; the end is one of them."""
    dice, unflushed, after = random.Random(f"points {recording.seed}"), [], 0
    for entry in log.entries:
        after = 0 if entry.flags & FLUSH else after + 1
        unflushed.append(after)
    chosen = {(len(unflushed), ALL)}
    for _ in range(20 * count):
        if len(chosen) == count:
            break
        at = dice.randrange(recording.acts[0]["begin"], len(unflushed))
        parts = min(2**unflushed[at] - 2, 30)
        variants = [NOTHING] if not unflushed[at] else [NOTHING, ALL] if parts < 1 else [NOTHING, ALL, 2 + dice.randrange(parts)]
        chosen.add((at + 1, dice.choice(variants)))
    return sorted(chosen)


class Points:
    """Goes through the points of a recording in the order of its log. `program` is that of look.c."""

    def __init__(self, world, recording, folder, program):
        self.recording, self.world = recording, world
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        self.base, self.image, self.path = self.folder / "base.img", self.folder / "disk.img", self.folder / "disk"
        self.path.mkdir()
        disks.copy(recording.base, self.base)
        disks.copy(recording.base, self.image)
        self.log = BlockLog(recording.log)
        self.log.position()
        world.callback(self.log.close)
        self._durable = 0  # entries that both images have
        self._files = {path: os.open(path, os.O_RDWR | os.O_CLOEXEC) for path in (self.base, self.image)}
        for fd in self._files.values():
            world.callback(os.close, fd)
        self.device = disks.attach(self.image)
        world.callback(disks.detach, self.device)
        self._looker = Looker(world, program)

    def _write(self, path, entry, data, offset=0):
        fd, at = self._files[path], entry.offset + offset
        if not entry.flags & DISCARD:
            os.pwrite(fd, data, at)
        elif disks.LIBC.fallocate(fd, PUNCH, ctypes.c_long(at), ctypes.c_long(entry.bytes)):
            raise OSError(ctypes.get_errno(), "no hole can be made")

    def _advance(self, position):
        """The base gets what is durable at the position; returns what is not."""
        flushed = max((i for i in range(self._durable, position) if self.log.entries[i].flags & FLUSH), default=self._durable - 1)
        for entry in self.log.entries[self._durable:flushed + 1]:
            data = self.log.data(entry)
            for path in self._files:
                self._write(path, entry, data)
        self._durable = flushed + 1
        return self.log.entries[self._durable:position]

    def _apply(self, pending, position, variant):
        dice = random.Random(f"{self.recording.seed} {position} {variant}")
        share = dice.choice([0.1, 0.5, 0.5, 0.9])
        for entry in pending:
            data = self.log.data(entry)
            if variant == ALL or entry.flags & FUA or variant != NOTHING and dice.random() < share:
                torn = variant > ALL and not entry.flags & (FUA | DISCARD) and entry.bytes > PAGE and dice.random() < 0.25
                for at in range(0, entry.bytes, PAGE) if torn else [0]:
                    if not torn or dice.random() < 0.5:
                        self._write(self.image, entry, data[at:at + PAGE] if torn else data, at)

    def build(self, position, variant):
        """The image is that of the point; it must not be mounted."""
        if position < self._durable:
            raise ValueError("points come in the order of the log")
        self._apply(self._advance(position), position, variant)

    @contextlib.contextmanager
    def at(self, position, variant):
        """The disk as it was, mounted below `path`; afterwards nothing is left of what the mount did to it."""
        self.build(position, variant)
        try:
            with open(self.device, "rb") as device:
                fcntl.ioctl(device, disks.BLKFLSBUF)  # nobody knows what it was before
            disks.mount(self.device, self.path, self.recording.filesystem)
            try:
                yield self.path / "store"
            finally:
                disks.umount(self.device, self.path)
        finally:
            self._ask("restore", self.image, self.base)

    def _ask(self, *words):
        got = self._looker.ask(*words)
        if "error" in got and words[0] == "restore":
            raise RuntimeError(got["error"])
        return got

    def is_what_was_recorded(self):
        """With nothing left out the disk is that which the clients wrote to: neither the log nor what is made of it is at fault."""
        self.build(len(self.log.entries), ALL)
        return subprocess.run(["cmp", "-s", self.image, self.recording.final], check=False).returncode == 0

    def look(self, store):
        """What is there, as a mount would find it."""
        seen = self._ask("look", store)
        return seen | {"plain": {} if "error" in seen else plain_files(store / "tree")}

    def look_through_mount(self, store):
        """The same through a mount: the kernel reads every byte. The trash is not looked at.

        The clients complete their steps by an event. An interrupted save that happens to have each file of the step beside it
        would be one by quiet, at the end of the mount.
        """
        mount = Mount.new(self.world, store, path=self.world.scratch / "mnt", options=["commit_quiet=off"])
        try:
            seen = see(mount.path, ("", "keep/", "run/"))
            self._use(mount)
            return seen
        finally:
            mount.umount()

    def _use(self, mount):
        """A store that was cut off is one to go on with: a save is listed and read."""
        folder = mount / "checkpoint-after"
        folder.mkdir()
        made = trees.fill(folder, seed="after", files=2)
        trees.write(folder / ".finalize", b"")
        assert "checkpoint-after" in mount.listing() and trees.files(folder) == made, "a new save is not what it should be"
