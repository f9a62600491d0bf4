"""What a case of the POSIX suite is.

A case is a function that makes system calls in an empty directory of its own, its working directory, and says what came of
them: labels with values that can be compared (names of errors, sizes, contents, which times moved). It does not know whether
the directory is on a plain filesystem or in a mount, and judges nothing: what is right is what the plain filesystem does.

    @case
    def mkdir_over_a_file(t):
        make("f")
        t.tried("over a file", os.mkdir, "f")     # {"over a file": "EEXIST"}
        t.says("still there", os.path.isfile("f"))

Each case runs in a process of its own (run.py), so it may change its umask, its limits or its user, and needs to close nothing.
"""

import ctypes
import errno
import os
import stat
import time

CASES = {}
PREPARE = {}  # what a case of users.py needs to be there before it
TICK = 0.011  # seconds; two changes that are this far apart have different times on any kernel


def case(function):
    assert function.__name__ not in CASES, function.__name__
    CASES[function.__name__] = function
    return function


def case_for(*names):
    """One function, one case for each name: f(t, name)."""
    def add(function):
        for name in names:
            full = f"{function.__name__}_{name}"
            assert full not in CASES, full
            CASES[full] = lambda t, name=name: function(t, name)
        return function
    return add


def error_name(number):
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode[number]  # one number, two names


def outcome(call, *args, **kwargs):
    """The name of the error, else the result; a descriptor or nothing is "ok"."""
    try:
        result = call(*args, **kwargs)
    except OSError as e:
        return error_name(e.errno)
    if call is os.open:
        os.close(result)
        return "ok"
    return "ok" if result is None or isinstance(result, os.stat_result) else result


class Said:
    def __init__(self):
        self.all = {}

    def says(self, label, value):
        assert label not in self.all, f"{label!r} is said twice"
        self.all[label] = value

    def tried(self, label, call, *args, **kwargs):
        self.says(label, outcome(call, *args, **kwargs))


# --- What cases make and look at --------------------------------------------------------------------------------------


def make(name, data=b"", mode=0o644):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        while data:
            data = data[os.write(fd, data):]
    finally:
        os.close(fd)
    return name


def content(name):
    with open(name, "rb", buffering=0) as f:
        return f.read()


def pattern(size, seed=0):
    """Bytes in which every place is its own."""
    return b"".join((seed << 56 | i).to_bytes(8, "little") for i in range(size // 8 + 1))[:size]


def look(name, follow=False):
    """What lstat says, without times and numbers; the error when it fails. Sizes of directories are the disk's own."""
    try:
        st = os.stat(name, follow_symlinks=follow)
    except OSError as e:
        return error_name(e.errno)
    kind = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket",
            stat.S_IFCHR: "char", stat.S_IFBLK: "block"}[stat.S_IFMT(st.st_mode)]
    return (kind, f"{stat.S_IMODE(st.st_mode):04o}", st.st_nlink) + (() if kind == "dir" else (st.st_size,))


def tree(top="."):
    """{path: look} of all below, with the contents of files and the targets of links."""
    out = {}
    for at, names, others in os.walk(top):
        for name in sorted(names + others):
            path = os.path.join(at, name)
            seen = look(path)
            if seen[0] == "file":
                seen += (content(path)[:40],)
            elif seen[0] == "link":
                seen += (os.readlink(path),)
            out[os.path.relpath(path, top)] = seen
    return dict(sorted(out.items()))


def times(name, follow=True):
    st = os.stat(name, follow_symlinks=follow)
    return {"atime": st.st_atime_ns, "mtime": st.st_mtime_ns, "ctime": st.st_ctime_ns}


def moved(before, after):
    """Which times went on: "ctime mtime"."""
    return " ".join(name for name in sorted(before) if after[name] != before[name]) or "none"


def tick():
    time.sleep(TICK)


def in_child(body):
    """How a child that runs the body ends: its value (a small number), or the signal that killed it."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(body() or 0)
        except OSError as e:
            os._exit(e.errno)
        except BaseException:
            os._exit(255)
    status = os.waitpid(pid, 0)[1]
    return os.WTERMSIG(status) * -1 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def in_children(count, body):
    """Lets so many processes run body(i) at once, from one starting shot; how each ended."""
    ready, go = os.pipe()
    pids = []
    for i in range(count):
        pid = os.fork()
        if not pid:
            try:
                os.close(go)
                os.read(ready, 1)
                os._exit(body(i) or 0)
            except OSError as e:
                os._exit(e.errno)
            except BaseException:
                os._exit(255)
        pids.append(pid)
    os.close(go)
    ends = []
    for pid in pids:
        status = os.waitpid(pid, 0)[1]
        ends.append(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    return ends


# --- System calls that Python has no name for -------------------------------------------------------------------------

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW, AT_EACCESS = -100, 0x1000, 0x100, 0x400, 0x200
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE, UNSHARE_RANGE = 1, 2, 8, 16, 32, 64
RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND = 1, 2, 4, 8, 16
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38

for _name, _args in {
        "fallocate": [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64],
        "syncfs": [ctypes.c_int],
        "sync_file_range": [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint],
        "utimensat": [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int],
        "truncate": [ctypes.c_char_p, ctypes.c_int64],
        "ftruncate": [ctypes.c_int, ctypes.c_int64],
        "linkat": [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int],
        "getxattr": [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
        "listxattr": [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
        "readlink": [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
        "lseek": [ctypes.c_int, ctypes.c_int64, ctypes.c_int],
        "readahead": [ctypes.c_int, ctypes.c_int64, ctypes.c_size_t],
        "renameat2": [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint],
}.items():
    getattr(libc, _name).argtypes = _args


def checked(result):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call(name, *args):
    return checked(getattr(libc, name)(*(a.encode() if isinstance(a, str) else a for a in args))) or None


_OLD = os.uname().machine == "x86_64"  # all others have the common numbers
NUMBERS = {"io_setup": 206 if _OLD else 0, "io_destroy": 207 if _OLD else 1, "io_submit": 209 if _OLD else 2, "io_getevents": 208 if _OLD else 4,
           "name_to_handle_at": 303 if _OLD else 264, "copy_file_range": 326 if _OLD else 285, "statx": 332 if _OLD else 291,
           "openat2": 437, "fchmodat2": 452}


def raw(name, *args):
    """A system call that the C library may not have; the arguments must be ctypes or small ints."""
    return checked(libc.syscall(ctypes.c_long(NUMBERS[name]), *args))


def rename2(source, target, flags):
    call("renameat2", AT_FDCWD, source, AT_FDCWD, target, flags)


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_int64), ("nsec", ctypes.c_int64)]


def utimens(name, atime, mtime, flags=0):
    """Times as (seconds, nanoseconds); nanoseconds may be UTIME_NOW or UTIME_OMIT."""
    pair = (Timespec * 2)(Timespec(*atime), Timespec(*mtime))
    call("utimensat", AT_FDCWD, name, ctypes.byref(pair), flags)
