"""Bytes: reading, writing, holes, space, copies, mappings, direct and asynchronous I/O, and syncs."""

import ctypes
import mmap
import os
import struct

from frame import (COLLAPSE_RANGE, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, RWF_APPEND, RWF_DSYNC, RWF_NOWAIT, RWF_SYNC, UNSHARE_RANGE, ZERO_RANGE,
                   call, case, case_for, content, in_child, look, make, outcome, pattern, raw, tick, times)

MIB = 1 << 20


@case
def reads_at_and_beyond_the_end(t):
    make("f", pattern(10000))
    fd = os.open("f", os.O_RDONLY)
    for offset in (0, 1, 4095, 4096, 9999, 10000, 10001, 1 << 40):
        t.says(f"{offset}", (len(os.pread(fd, 5000, offset)), os.pread(fd, 5, offset)))
    t.tried("negative", os.pread, fd, 10, -1)
    t.tried("nothing", os.read, fd, 0)
    t.tried("huge", lambda: len(os.pread(fd, 1 << 24, 0)))


@case
def writes_at_and_beyond_the_end(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    for offset, data in ((0, b"start"), (10, b"later"), (3, b"XY"), (5000, b"far"), (4094, b"over a page"), (20000, b"")):
        t.says(f"{offset}", (os.pwrite(fd, data, offset), os.fstat(fd).st_size))
    t.says("content", content("f"))
    t.tried("negative", os.pwrite, fd, b"x", -1)
    t.tried("too far", os.pwrite, fd, b"x", (1 << 63) - 1)
    t.says("size", os.fstat(fd).st_size)


@case
def writes_of_every_size(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    want = b""
    for size in (1, 511, 512, 513, 4095, 4096, 4097, 65535, 65536, 131071, 131073, MIB - 1, MIB + 1, 3 * MIB):
        data = pattern(size, seed=size & 127)
        t.says(f"{size}", os.write(fd, data))
        want += data
    t.says("equal", content("f") == want)
    t.says("in pieces", all(os.pread(fd, 70001, i) == want[i:i + 70001] for i in range(0, len(want), 70001)))


@case
def vectors(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    t.says("writev", os.writev(fd, [b"ab", b"", b"cde", b"x" * 10000]))
    t.says("pwritev", os.pwritev(fd, [b"12", b"3"], 3))
    parts = [bytearray(3), bytearray(1), bytearray(20)]
    t.says("preadv", (os.preadv(fd, parts, 1), [bytes(p) for p in parts]))
    os.lseek(fd, 9990, os.SEEK_SET)
    t.says("readv short", (os.readv(fd, [bytearray(10), bytearray(10)]), os.lseek(fd, 0, os.SEEK_CUR)))
    t.says("many", os.pwritev(fd, [b"y"] * 1000, 0))
    t.tried("too many", os.pwritev, fd, [b"y"] * 1025, 0)


@case
def flags_of_single_writes(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"base")
    t.tried("dsync", os.pwritev, fd, [b"D"], 0, RWF_DSYNC)
    t.tried("sync", os.pwritev, fd, [b"S"], 1, RWF_SYNC)
    t.tried("append", os.pwritev, fd, [b"A"], 0, RWF_APPEND)
    t.tried("unknown", os.pwritev, fd, [b"?"], 0, 1 << 20)
    t.tried("unknown read", os.preadv, fd, [bytearray(1)], 0, 1 << 20)
    t.says("content", content("f"))


@case
def reads_that_do_not_wait(t):
    make("f", b"data")
    fd = os.open("f", os.O_RDONLY)
    os.read(fd, 4)
    t.tried("read", os.preadv, fd, [bytearray(4)], 0, RWF_NOWAIT)


@case
def appends(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    other = os.open("f", os.O_RDWR)
    os.write(fd, b"one ")
    t.says("offset", os.lseek(fd, 0, os.SEEK_CUR))
    os.pwrite(other, b"OTHER", 10)
    os.write(fd, b"two ")
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"three ")
    t.says("pwrite too", os.pwrite(fd, b"four", 0))
    t.says("content", content("f"))
    os.ftruncate(other, 2)
    os.write(fd, b"five")
    t.says("after a cut", content("f"))
    t.says("reads", (os.pread(fd, 4, 0), os.lseek(fd, 0, os.SEEK_CUR)))
    two = os.open("f", os.O_WRONLY | os.O_APPEND)
    for i in range(5):
        os.write(fd if i % 2 else two, str(i).encode())
    t.says("in turns", content("f"))


@case
def seeks(t):
    make("f", b"0123456789")
    fd = os.open("f", os.O_RDWR)
    for offset, whence in ((3, 0), (2, 1), (-1, 1), (-100, 1), (0, 2), (-3, 2), (5, 2), (-11, 2), (-1, 0), (1 << 62, 0), (0, 99)):
        t.tried(f"{offset} {whence}", os.lseek, fd, offset, whence)
    os.lseek(fd, 20, os.SEEK_SET)
    t.says("read there", os.read(fd, 5))
    os.write(fd, b"end")
    t.says("write there", content("f"))


def extents(fd):
    """The data parts as lseek tells them."""
    out, at, end = [], 0, os.fstat(fd).st_size
    while at < end:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        out.append((begin, at))
    return out


@case
def holes_and_data(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 4 * MIB)
    t.says("all hole", extents(fd))
    os.pwrite(fd, b"x" * 4096, MIB)
    os.pwrite(fd, b"x" * 8192, 3 * MIB)
    os.fsync(fd)
    t.says("two", extents(fd))
    for offset, whence in ((0, os.SEEK_DATA), (0, os.SEEK_HOLE), (MIB, os.SEEK_HOLE), (MIB + 1, os.SEEK_DATA), (MIB + 5000, os.SEEK_DATA),
                           (4 * MIB - 1, os.SEEK_HOLE), (4 * MIB, os.SEEK_DATA), (4 * MIB, os.SEEK_HOLE), (3 * MIB + 9000, os.SEEK_DATA),
                           (-1, os.SEEK_DATA), (1 << 40, os.SEEK_HOLE)):
        t.tried(f"{offset} {whence}", os.lseek, fd, offset, whence)
    t.says("blocks", os.fstat(fd).st_blocks)
    t.says("zeros", os.pread(fd, 4096, 0) == bytes(4096))
    make("empty")
    t.tried("empty", os.lseek, os.open("empty", os.O_RDONLY), 0, os.SEEK_DATA)


@case
def blocks_of_files(t):
    for size in (0, 1, 4096, 4097, 100_000, MIB):
        fd = os.open(f"f{size}", os.O_CREAT | os.O_RDWR)
        os.write(fd, b"x" * size)
        os.fsync(fd)
        st = os.fstat(fd)
        t.says(f"{size}", (st.st_size, st.st_blocks, st.st_blksize))


@case
def cutting_and_growing(t):
    make("f", pattern(10000))
    fd = os.open("f", os.O_RDWR)
    for size in (5000, 4096, 4097, 20000, 1, 0, 8192):
        os.ftruncate(fd, size)
        data = content("f")
        t.says(f"{size}", (len(data), data[:10], data.rstrip(b"\0")[-10:], os.fstat(fd).st_size))
    os.truncate("f", 3)
    t.says("by name", (os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_END)))
    t.tried("negative", call, "ftruncate", fd, -1)
    t.tried("negative by name", call, "truncate", "f", -1)
    t.tried("too long", os.ftruncate, fd, (1 << 63) - 1)
    t.tried("read only", os.ftruncate, os.open("f", os.O_RDONLY), 1)
    os.symlink("f", "l")
    t.tried("through a link", os.truncate, "l", 2)
    t.says("left", look("f"))


@case
def what_was_cut_off_is_zero_when_it_grows_again(t):
    make("f", b"\xff" * 10000)
    fd = os.open("f", os.O_RDWR)
    os.ftruncate(fd, 100)
    os.ftruncate(fd, 10000)
    t.says("truncate", content("f") == b"\xff" * 100 + bytes(9900))
    os.ftruncate(fd, 50)
    os.pwrite(fd, b"end", 9997)
    t.says("write", content("f") == b"\xff" * 50 + bytes(9947) + b"end")


MODES = {"0": 0, "keep": KEEP_SIZE, "punch": PUNCH_HOLE | KEEP_SIZE, "punch alone": PUNCH_HOLE, "zero": ZERO_RANGE, "zero, keep": ZERO_RANGE | KEEP_SIZE,
         "unshare": UNSHARE_RANGE, "unknown": 1 << 12}


@case
def fallocate_modes(t):
    for mode, bits in MODES.items():
        for offset, length in ((0, 4096), (4096, 8192), (100, 50), (9000, 20000), (50000, 10)):
            name = f"{mode} {offset} {length}"
            make(name, b"\xff" * 12288)
            fd = os.open(name, os.O_RDWR)
            result = outcome(call, "fallocate", fd, bits, offset, length)
            os.fsync(fd)
            data = content(name)
            t.says(name, (result, len(data), [len(part) for part in data.split(b"\0") if part]))
            os.close(fd)


@case
def fallocate_moves_what_follows(t):
    for mode, bits in (("collapse", COLLAPSE_RANGE), ("insert", INSERT_RANGE)):
        make(mode, pattern(16384))
        t.tried(mode, call, "fallocate", os.open(mode, os.O_RDWR), bits, 4096, 4096)


@case
def fallocate_that_is_refused(t):
    make("f", b"x")
    fd = os.open("f", os.O_RDWR)
    for offset, length in ((0, 0), (-1, 10), (0, -1), (1 << 62, 1 << 62)):
        t.tried(f"{offset} {length}", call, "fallocate", fd, 0, offset, length)
    t.tried("read only", call, "fallocate", os.open("f", os.O_RDONLY), 0, 0, 10)
    t.says("left", look("f"))


@case
def fallocate_reserves_space(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    call("fallocate", fd, KEEP_SIZE, 0, MIB)
    t.says("kept size", (os.fstat(fd).st_size, os.fstat(fd).st_blocks))
    call("fallocate", fd, 0, 0, MIB)
    t.says("size", (os.fstat(fd).st_size, os.fstat(fd).st_blocks))
    call("fallocate", fd, PUNCH_HOLE | KEEP_SIZE, 0, MIB // 2)
    t.says("punched", (os.fstat(fd).st_size, os.fstat(fd).st_blocks))


@case
def copies_by_the_kernel(t):
    make("a", pattern(300_000))
    a, b = os.open("a", os.O_RDWR), os.open("b", os.O_CREAT | os.O_RDWR)
    t.tried("whole", os.copy_file_range, a, b, 300_000, 0, 0)
    t.says("equal", content("a") == content("b"))
    t.tried("to the middle", os.copy_file_range, a, b, 100, 50, 1000)
    t.says("middle", content("b")[1000:1100] == content("a")[50:150])
    t.tried("beyond the end", os.copy_file_range, a, b, 100, 300_000, 0)
    t.tried("over the end", os.copy_file_range, a, b, 100, 299_950, 0)
    t.tried("nothing", os.copy_file_range, a, b, 0, 0, 0)
    t.tried("to a hole", os.copy_file_range, a, b, 10, 0, 400_000)
    t.says("size", os.fstat(b).st_size)
    t.tried("onto itself", os.copy_file_range, a, a, 100, 0, 50)
    t.tried("in itself", os.copy_file_range, a, a, 100, 0, 1000)
    os.lseek(a, 7, os.SEEK_SET)
    os.lseek(b, 3, os.SEEK_SET)
    t.tried("at the offsets", os.copy_file_range, a, b, 20)
    t.says("offsets", (os.lseek(a, 0, os.SEEK_CUR), os.lseek(b, 0, os.SEEK_CUR)))
    t.tried("to read only", os.copy_file_range, a, os.open("b", os.O_RDONLY), 10, 0, 0)
    t.tried("from write only", os.copy_file_range, os.open("a", os.O_WRONLY), b, 10, 0, 0)
    t.tried("to append", os.copy_file_range, a, os.open("b", os.O_WRONLY | os.O_APPEND), 10)
    t.tried("a folder", os.copy_file_range, os.open(".", os.O_RDONLY), b, 10)
    t.tried("flags", lambda: raw("copy_file_range", a, None, b, None, ctypes.c_size_t(10), 1))


@case
def sendfile_and_splice(t):
    make("a", pattern(200_000))
    a, b = os.open("a", os.O_RDONLY), os.open("b", os.O_CREAT | os.O_RDWR)
    done = 0
    while done < 200_000:
        done += os.sendfile(b, a, done, 200_000 - done)
    t.says("sendfile", content("b") == content("a"))
    ours, theirs = os.pipe()
    t.tried("splice out", os.splice, a, theirs, 4096, offset_src=1000)
    t.tried("splice in", os.splice, ours, b, 4096, offset_dst=100_000)
    t.says("spliced", content("b")[100_000:104_096] == content("a")[1000:5096])
    t.tried("splice without a pipe", os.splice, a, b, 10)
    appender = os.open("b", os.O_WRONLY | os.O_APPEND)
    t.tried("sendfile to append", os.sendfile, appender, a, 0, 10)
    os.write(theirs, b"piped")
    t.tried("splice at the end", os.splice, ours, b, 100, offset_dst=200_000)
    t.says("end", content("b")[199_995:])


@case
def syncs_of_all_kinds(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"data")
    reader, folder = os.open("f", os.O_RDONLY), os.open(".", os.O_RDONLY)
    for name, one in (("file", fd), ("reader", reader), ("folder", folder)):
        t.tried(f"fsync {name}", os.fsync, one)
        t.tried(f"fdatasync {name}", os.fdatasync, one)
        t.tried(f"syncfs {name}", call, "syncfs", one)
    t.tried("range", call, "sync_file_range", fd, 0, 4096, 7)
    t.tried("range, wrong flags", call, "sync_file_range", fd, 0, 4096, 64)
    t.tried("range of a folder", call, "sync_file_range", folder, 0, 0, 2)
    t.tried("path", os.fsync, os.open("f", os.O_PATH))
    os.unlink("f")
    t.tried("unlinked", os.fsync, fd)
    for flags in (os.O_SYNC, os.O_DSYNC):
        one = os.open("g", os.O_CREAT | os.O_RDWR | flags)
        t.says(f"flags {flags:#x}", (os.write(one, b"x" * 5000), os.fstat(one).st_size))


@case
def advice(t):
    make("f", pattern(100_000))
    fd = os.open("f", os.O_RDWR)
    for what in (os.POSIX_FADV_NORMAL, os.POSIX_FADV_SEQUENTIAL, os.POSIX_FADV_RANDOM, os.POSIX_FADV_WILLNEED, os.POSIX_FADV_DONTNEED,
                 os.POSIX_FADV_NOREUSE, 99):
        t.tried(f"{what}", os.posix_fadvise, fd, 0, 0, what)
    t.tried("readahead", call, "readahead", fd, 0, 100_000)
    t.says("content", content("f") == pattern(100_000))


# --- Mappings ---------------------------------------------------------------------------------------------------------


@case
def shared_mappings_and_calls_see_each_other(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"a" * 10000)
    with mmap.mmap(fd, 10000) as m:
        m[0:3] = b"map"
        t.says("read sees it", os.pread(fd, 5, 0))
        os.pwrite(fd, b"call", 5000)
        t.says("map sees it", m[4999:5005])
        m[9998:] = b"zz"
        t.tried("flush", lambda: m.flush())
        t.says("other descriptor", content("f")[-5:])
        twin = mmap.mmap(os.open("f", os.O_RDONLY), 10000, prot=mmap.PROT_READ)
        m[100:104] = b"twin"
        t.says("twin", twin[100:104])
    os.close(fd)
    t.says("after", (content("f")[:3], content("f")[5000:5004], twin[0:3]))


@case
def private_mappings_change_nothing(t):
    make("f", b"a" * 5000)
    fd = os.open("f", os.O_RDONLY)
    m = mmap.mmap(fd, 5000, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    m[0:3] = b"own"
    t.says("own", (m[0:4], content("f")[:4]))


@case
def mappings_against_the_mode_of_the_descriptor(t):
    make("f", b"a" * 5000)
    for name, flags in (("read", os.O_RDONLY), ("write", os.O_WRONLY), ("both", os.O_RDWR), ("append", os.O_RDWR | os.O_APPEND)):
        fd = os.open("f", flags)
        for kind, how in (("shared", mmap.MAP_SHARED), ("private", mmap.MAP_PRIVATE), ("validated", 3)):
            for prot in (mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.PROT_READ | mmap.PROT_EXEC):
                t.tried(f"{name} {kind} {prot}", lambda: mmap.mmap(fd, 5000, flags=how, prot=prot) and None)


@case
def mappings_beyond_the_end(t):
    make("f", b"a" * 5000)
    fd = os.open("f", os.O_RDWR)
    m = mmap.mmap(fd, 5000)
    whole = ctypes.CDLL(None).mmap
    whole.restype, whole.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    at = whole(None, 16384, 3, 1, fd, 0)
    t.says("rest of the last page", ctypes.string_at(at + 4990, 20))
    t.says("beyond", in_child(lambda: ctypes.string_at(at + 8192, 1) and 0))
    os.ftruncate(fd, 16384)
    ctypes.memmove(at + 12000, b"grown", 5)
    t.says("after it grew", (os.pread(fd, 5, 12000), ctypes.string_at(at + 8192, 3)))
    os.ftruncate(fd, 100)
    t.says("after it was cut", (m[98:103], in_child(lambda: ctypes.string_at(at + 4096, 1) and 0)))
    os.ftruncate(fd, 5000)
    t.says("and grown again", (m[98:103], content("f").count(b"a")))


@case
def what_is_stored_behind_the_end_of_a_mapping_is_not_kept(t):
    make("f", b"a" * 100)
    fd = os.open("f", os.O_RDWR)
    libc_mmap = ctypes.CDLL(None).mmap
    libc_mmap.restype, libc_mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    at = libc_mmap(None, 4096, 3, 1, fd, 0)
    ctypes.memmove(at + 50, b"in", 2)
    ctypes.memmove(at + 200, b"out", 3)
    os.fsync(fd)
    os.ftruncate(fd, 300)
    data = content("f")
    t.says("content", (data[50:52], data[100:] == bytes(200)))


@case
def mappings_outlive_descriptor_and_name(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"a" * 8192)
    os.link("f", "g")
    m = mmap.mmap(fd, 8192)
    os.close(fd)
    os.unlink("f")
    m[0:6] = b"stored"
    m.flush()
    t.says("by the other name", content("g")[:6])
    os.unlink("g")
    m[0:6] = b"nobody"
    t.says("no name", m[0:6])
    t.tried("flush", lambda: m.flush())


@case
def mappings_shared_by_processes(t):
    make("f", bytes(8192))
    fd = os.open("f", os.O_RDWR)
    m = mmap.mmap(fd, 8192)

    def child():
        own = mmap.mmap(os.open("f", os.O_RDWR), 8192)
        own[4096:4101] = b"child"
        m[0:5] = b"heir!"
    in_child(child)
    t.says("seen", (m[4096:4101], m[0:5], os.pread(fd, 5, 4096)))


@case
def stores_into_a_mapping_move_the_times(t):
    make("f", bytes(4096))
    fd = os.open("f", os.O_RDWR)
    os.utime("f", ns=(10**18, 10**18))
    tick()
    m = mmap.mmap(fd, 4096)
    m[0:1] = b"x"
    m.flush()
    os.close(fd)
    del m
    t.says("mtime", times("f")["mtime"] != 10**18)


# --- Direct and asynchronous I/O --------------------------------------------------------------------------------------


@case
def direct_io(t):
    buffer = mmap.mmap(-1, MIB)
    buffer[:] = pattern(MIB)
    view = memoryview(buffer)
    fd = os.open("f", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    t.tried("write", os.pwritev, fd, [view], 0)
    t.tried("write a part", os.pwritev, fd, [view[4096:8192]], 0)
    back = mmap.mmap(-1, MIB)
    t.tried("read", os.preadv, fd, [back], 0)
    t.says("equal", (back[:4096] == buffer[4096:8192], back[4096:] == buffer[4096:]))
    t.says("through the cache", content("f") == back[:])
    os.ftruncate(fd, 5000)
    t.tried("over the end", os.preadv, fd, [back], 0)
    t.tried("behind the end", os.preadv, fd, [back], 8192)
    t.tried("append", os.pwritev, fd, [view[:4096]], 8192)
    t.says("size", os.fstat(fd).st_size)
    cached = os.open("f", os.O_RDWR)
    os.pwrite(cached, b"cached", 0)
    os.preadv(fd, [memoryview(back)[:4096]], 0)
    t.says("after a cached write", back[:6])
    os.pwritev(fd, [view[:4096]], 0)
    t.says("cached after a direct write", os.pread(cached, 8, 0) == buffer[:8])


@case
def direct_io_that_is_not_aligned(t):
    buffer = mmap.mmap(-1, 16384)
    view = memoryview(buffer)
    fd = os.open("f", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    os.pwritev(fd, [view], 0)
    t.tried("length", os.pwritev, fd, [view[:100]], 0)
    t.tried("offset", os.pwritev, fd, [view[:512]], 100)
    t.tried("memory", os.pwritev, fd, [view[1:513]], 0)
    t.tried("read length", os.preadv, fd, [view[:100]], 0)
    t.tried("read offset", os.preadv, fd, [view[:512]], 100)


class Iocb(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("opcode", ctypes.c_uint16), ("prio", ctypes.c_int16),
                ("fd", ctypes.c_uint32), ("buf", ctypes.c_uint64), ("nbytes", ctypes.c_uint64), ("offset", ctypes.c_int64), ("_2", ctypes.c_uint64),
                ("flags2", ctypes.c_uint32), ("resfd", ctypes.c_uint32)]


def _asynchronously(fd, requests):
    """Results of (opcode, address, length, offset) at once, in the order asked."""
    context = ctypes.c_uint64()
    raw("io_setup", 32, ctypes.byref(context))
    blocks = [Iocb(data=i, opcode=op, fd=fd, buf=buf, nbytes=size, offset=offset) for i, (op, buf, size, offset) in enumerate(requests)]
    pointers = (ctypes.POINTER(Iocb) * len(blocks))(*map(ctypes.pointer, blocks))
    count = raw("io_submit", context, ctypes.c_long(len(blocks)), pointers)
    events = ctypes.create_string_buffer(32 * count)
    raw("io_getevents", context, ctypes.c_long(count), ctypes.c_long(count), events, None)
    raw("io_destroy", context)
    got = {}
    for i in range(count):
        data, _, result, _ = struct.unpack_from("QQqq", events, 32 * i)
        got[data] = result
    return [got.get(i) for i in range(len(blocks))]


@case_for("cached", "direct")
def asynchronous_io(t, kind):
    make("f")
    fd = os.open("f", os.O_RDWR | (os.O_DIRECT if kind == "direct" else 0))
    source, target = mmap.mmap(-1, 65536), mmap.mmap(-1, 65536)
    source[:] = pattern(65536)
    here, there = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in (source, target))
    t.says("write", _asynchronously(fd, [(1, here + i * 8192, 8192, i * 8192) for i in range(8)]))
    t.says("sync", _asynchronously(fd, [(2, 0, 0, 0), (3, 0, 0, 0)]))
    t.says("read", _asynchronously(fd, [(0, there + i * 8192, 8192, i * 8192) for i in range(8)] + [(0, there, 4096, 1 << 20)]))
    t.says("equal", (source[:] == target[:], content("f") == source[:]))


@case
def offsets_beyond_the_largest_file(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    t.tried("4 TiB", os.pwrite, fd, b"x", 1 << 42)
    t.says("size", (os.fstat(fd).st_size, os.fstat(fd).st_blocks <= 64))
    os.ftruncate(fd, 0)
    t.tried("1 EiB", os.pwrite, fd, b"x", 1 << 60)
    t.tried("truncate to 1 EiB", os.ftruncate, fd, 1 << 60)
    t.says("left", os.fstat(fd).st_size)
