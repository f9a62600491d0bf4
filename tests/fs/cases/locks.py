"""flock, POSIX and open-file-description locks, between processes."""

import fcntl
import os
import signal
import struct
import time

from frame import F_OFD_GETLK, F_OFD_SETLK, case, error_name, in_child, make, outcome

READ, WRITE, UNLOCK = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK


def lock(fd, kind, start=0, length=0, how=fcntl.F_SETLK, whence=0):
    return struct.unpack("hhqqi4x", fcntl.fcntl(fd, how, struct.pack("hhqqi4x", kind, whence, start, length, 0)))


def tried(*args, **kwargs):
    got = outcome(lock, *args, **kwargs)
    return got if isinstance(got, str) else "ok"


def by_another(body):
    """What body() returns in another process."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(theirs, repr(body()).encode())
        except OSError as e:
            os.write(theirs, error_name(e.errno).encode())
        os._exit(0)
    os.close(theirs)
    text = os.read(ours, 4096).decode()
    os.close(ours)
    os.waitpid(pid, 0)
    return text


def opened(name="f", flags=os.O_RDWR):
    return os.open(name, flags | os.O_CREAT)


@case
def flock_shared_and_exclusive(t):
    for mine in (fcntl.LOCK_SH, fcntl.LOCK_EX):
        for theirs in (fcntl.LOCK_SH, fcntl.LOCK_EX):
            fd = opened()
            fcntl.flock(fd, mine)
            other = opened()
            t.says(f"{mine} {theirs}", (by_another(lambda: fcntl.flock(opened(), theirs | fcntl.LOCK_NB)), outcome(fcntl.flock, other, theirs | fcntl.LOCK_NB)))
            os.close(fd)
            os.close(other)


@case
def flock_goes_up_and_down(t):
    a, b = opened(), opened()
    fcntl.flock(a, fcntl.LOCK_SH)
    fcntl.flock(b, fcntl.LOCK_SH)
    t.tried("up against another", fcntl.flock, a, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(b, fcntl.LOCK_UN)
    t.tried("up alone", fcntl.flock, a, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(a, fcntl.LOCK_SH)
    t.tried("beside the lower one", fcntl.flock, b, fcntl.LOCK_SH | fcntl.LOCK_NB)


@case
def flock_belongs_to_the_open_file(t):
    a = opened()
    twin = os.dup(a)
    fcntl.flock(a, fcntl.LOCK_EX)
    os.close(a)
    t.says("dup keeps it", by_another(lambda: fcntl.flock(opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)))
    t.says("child has it", by_another(lambda: fcntl.flock(twin, fcntl.LOCK_EX | fcntl.LOCK_NB)))
    in_child(lambda: fcntl.flock(twin, fcntl.LOCK_UN))
    t.says("child let it go", by_another(lambda: fcntl.flock(opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)))
    fcntl.flock(twin, fcntl.LOCK_EX)
    os.close(twin)
    t.says("closed", by_another(lambda: fcntl.flock(opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)))


@case
def flock_on_folders_and_readers(t):
    os.mkdir("d")
    d = os.open("d", os.O_RDONLY)
    fcntl.flock(d, fcntl.LOCK_EX)
    t.says("folder", by_another(lambda: fcntl.flock(os.open("d", os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)))
    make("f")
    reader = os.open("f", os.O_RDONLY)
    t.tried("exclusive by a reader", fcntl.flock, reader, fcntl.LOCK_EX)
    t.says("seen", by_another(lambda: fcntl.flock(opened(), fcntl.LOCK_SH | fcntl.LOCK_NB)))
    t.tried("nonsense", fcntl.flock, reader, 99)


@case
def flock_waits_until_the_holder_ends(t):
    fd = opened()
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        fcntl.flock(opened(), fcntl.LOCK_EX)
        os.write(theirs, b"locked")
        time.sleep(0.1)
        os._exit(0)
    os.read(ours, 6)
    t.tried("not now", fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    t.tried("waits", fcntl.flock, fd, fcntl.LOCK_EX)
    os.waitpid(pid, 0)


@case
def posix_locks_by_range(t):
    fd = opened()
    lock(fd, WRITE, 100, 100)
    for start, length in ((0, 100), (0, 101), (199, 1), (200, 1), (0, 0), (150, 10), (250, 0)):
        t.says(f"{start} {length}", by_another(lambda: (tried(opened(), WRITE, start, length), tried(opened(), READ, start, length))))
    lock(fd, UNLOCK, 140, 20)
    t.says("split", by_another(lambda: [tried(opened(), WRITE, s, 1) for s in (139, 140, 159, 160)]))
    lock(fd, READ, 100, 40)
    t.says("lowered", by_another(lambda: (tried(opened(), READ, 100, 40), tried(opened(), WRITE, 100, 40))))


@case
def posix_locks_tell_who_has_them(t):
    fd = opened()
    lock(fd, WRITE, 10, 20)
    me = os.getpid()

    def ask(how):
        kind, whence, start, length, pid = lock(opened(), WRITE, 0, 0, how)
        return kind, whence, start, length, pid == me
    t.says("getlk", by_another(lambda: ask(fcntl.F_GETLK)))
    t.says("own", lock(fd, WRITE, 0, 0, fcntl.F_GETLK)[0] == UNLOCK)
    t.says("ofd getlk", by_another(lambda: ask(F_OFD_GETLK)))


@case
def posix_locks_relative_to_places(t):
    fd = opened()
    os.ftruncate(fd, 1000)
    os.lseek(fd, 500, os.SEEK_SET)
    lock(fd, WRITE, -10, 20, whence=1)
    lock(fd, WRITE, -100, 0, whence=2)
    t.says("held", by_another(lambda: [tried(opened(), WRITE, s, 1) for s in (489, 490, 509, 510, 899, 900, 5000)]))
    lock(fd, UNLOCK)
    lock(fd, WRITE, 100, -50)
    t.says("backwards", by_another(lambda: [tried(opened(), WRITE, s, 1) for s in (49, 50, 99, 100)]))
    t.says("before the start", tried(fd, WRITE, -1, 1))
    t.says("too far", tried(fd, WRITE, (1 << 63) - 1, 10))


@case
def posix_locks_go_with_any_close(t):
    fd = opened()
    lock(fd, WRITE)
    other = opened()
    t.says("held", by_another(lambda: tried(opened(), WRITE)))
    os.close(other)
    t.says("gone", by_another(lambda: tried(opened(), WRITE)))


@case
def posix_locks_are_not_inherited(t):
    fd = opened()
    lock(fd, WRITE)
    t.says("child", by_another(lambda: tried(fd, WRITE)))
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        lock(opened("g"), WRITE)
        os.write(theirs, b"x")
        signal.pause()
    os.read(ours, 1)
    t.says("before the end", tried(opened("g"), WRITE))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    t.says("after the end", tried(opened("g"), WRITE))


@case
def posix_locks_need_the_right_descriptor(t):
    make("f")
    t.says("write by a reader", tried(os.open("f", os.O_RDONLY), WRITE))
    t.says("read by a writer", tried(os.open("f", os.O_WRONLY), READ))
    t.says("read by a reader", tried(os.open("f", os.O_RDONLY), READ))
    t.says("path", tried(os.open("f", os.O_PATH), READ))


@case
def posix_locks_that_would_wait_in_a_circle(t):
    fd = opened()
    lock(fd, WRITE, 0, 1)
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        mine = opened()
        lock(mine, WRITE, 1, 1)
        os.write(theirs, b"x")
        lock(mine, WRITE, 0, 1, fcntl.F_SETLKW)
        os._exit(0)
    os.read(ours, 1)
    while "fcntl" not in (where := open(f"/proc/{pid}/wchan").read()) and "lock" not in where and where != "0":
        time.sleep(0.001)
    time.sleep(0.05)
    t.says("circle", tried(fd, WRITE, 1, 1, fcntl.F_SETLKW))
    lock(fd, UNLOCK)
    t.says("other", os.waitpid(pid, 0)[1])


@case
def ofd_locks_belong_to_the_open_file(t):
    a, b = opened(), opened()
    lock(a, WRITE, 0, 10, F_OFD_SETLK)
    t.says("same process", tried(b, WRITE, 0, 10, F_OFD_SETLK))
    t.says("another range", tried(b, WRITE, 10, 10, F_OFD_SETLK))
    os.close(b)
    t.says("survives another close", by_another(lambda: tried(opened(), WRITE, 0, 10, F_OFD_SETLK)))
    t.says("child has it", by_another(lambda: tried(a, WRITE, 0, 10, F_OFD_SETLK)))
    t.says("against posix", by_another(lambda: tried(opened(), WRITE, 0, 10)))
    os.close(a)
    t.says("closed", by_another(lambda: tried(opened(), WRITE, 0, 10, F_OFD_SETLK)))


@case
def kinds_of_locks_that_do_not_see_each_other(t):
    fd = opened()
    fcntl.flock(fd, fcntl.LOCK_EX)
    t.says("posix beside flock", by_another(lambda: tried(opened(), WRITE)))
    fcntl.flock(fd, fcntl.LOCK_UN)
    lock(fd, WRITE)
    t.says("flock beside posix", by_another(lambda: fcntl.flock(opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)))


@case
def locks_on_a_file_without_a_name(t):
    fd, other = opened(), opened()
    os.unlink("f")
    fcntl.flock(fd, fcntl.LOCK_EX)
    t.tried("flock", fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock(fd, WRITE)
    t.says("posix", by_another(lambda: tried(other, WRITE)))
    new = opened()
    t.tried("a new file of that name", fcntl.flock, new, fcntl.LOCK_EX | fcntl.LOCK_NB)


@case
def locks_stay_when_the_file_is_renamed(t):
    fd = opened()
    fcntl.flock(fd, fcntl.LOCK_EX)
    lock(fd, WRITE)
    os.rename("f", "g")
    t.says("flock", by_another(lambda: fcntl.flock(opened("g"), fcntl.LOCK_EX | fcntl.LOCK_NB)))
    t.says("posix", by_another(lambda: tried(opened("g"), WRITE)))


@case
def locks_do_not_hinder_reading_and_writing(t):
    fd = opened()
    fcntl.flock(fd, fcntl.LOCK_EX)
    lock(fd, WRITE)
    t.says("write", by_another(lambda: os.write(opened(), b"x")))
    t.says("read", by_another(lambda: os.read(opened(), 10)))
