"""The log of a disk's writes, in the kernel's dm-log-writes format, which qemu's blklogwrites driver writes.

    log    := superblock entry*            each begins at a multiple of the sector size
    entry  := header (one sector) data     discards have no data

All numbers are 64 bits, little-endian. The superblock has a magic number, a version, how many entries there are and (32 bits)
the sector size; the last two matter to those who come after the end. A header has the first sector, how many, flags, and the length
of a mark. What nobody has written yet is zeroes, which no entry is: a flush has its flag, all others have sectors.
"""

import os
import struct
import threading
from typing import NamedTuple

MAGIC, VERSION = 0x6a736677736872, 1
SUPERBLOCK, HEADER = struct.Struct("<QQQI"), struct.Struct("<QQQQ")
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


class Entry(NamedTuple):
    offset: int  # on the disk, in bytes
    bytes: int
    flags: int
    data: int  # where in the log


class BlockLog:
    """Follows a log while it is written, from any thread, or reads a finished one."""

    def __init__(self, path, sector=512):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.sector = sector
        self.entries = []
        self._at = sector
        self._lock = threading.Lock()

    def position(self):
        """How many entries there are now. What a client did before its call returned is among them."""
        with self._lock:
            while entry := self._next():
                self.entries.append(entry)
            return len(self.entries)

    def _next(self):
        header = os.pread(self.fd, HEADER.size, self._at)
        if len(header) < HEADER.size or not any(header):
            return None
        first, sectors, flags, marked = HEADER.unpack(header)
        entry = Entry(first * self.sector, sectors * self.sector, flags, self._at + self.sector)
        size = marked if flags & MARK else 0 if flags & DISCARD else entry.bytes
        self._at += self.sector + -(-size // self.sector) * self.sector
        return entry

    def check(self):
        """The log itself says how long it is."""
        magic, version, count, sector = SUPERBLOCK.unpack(os.pread(self.fd, SUPERBLOCK.size, 0))
        if (magic, version, sector) != (MAGIC, VERSION, self.sector):
            raise ValueError(f"not a log of writes: magic {magic:x}, version {version}, sectors of {sector}")
        if count != self.position():
            raise ValueError(f"the log says that it has {count} entries, and {self.position()} are found")

    def data(self, entry):
        return os.pread(self.fd, entry.bytes, entry.data)

    def close(self):
        os.close(self.fd)
