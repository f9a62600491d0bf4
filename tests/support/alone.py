"""A name space of mounts for a test program, as world.c makes one for the C tests."""

import ctypes
import errno
import os

from support.mounting import mount_table

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = 1 << 14 | 1 << 18


def be_alone():
    """Mounts of this process and its children are its own from here on.

    Who makes a name space of mounts has a copy of all of them, which keeps daemons and filesystems alive for as long as it lives,
    and tests that run beside this one do: so nobody copies ours, and of the copies that we get, those of other tests are let go of.
    """
    if LIBC.unshare(CLONE_NEWNS):
        if ctypes.get_errno() == errno.EPERM and os.geteuid() != 0:
            return
        raise OSError(ctypes.get_errno(), "no name space of mounts can be made")
    if LIBC.mount(b"none", b"/", None, MS_REC_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mounts cannot be made private")
    for point, kind, *_ in reversed(list(mount_table())):
        if kind == "fuse.ckptfs" or "/ckptfs-test-" in point or "/ckptfs-power-" in point:
            LIBC.umount2(os.fsencode(point), MNT_DETACH)
