"""Modes, owners, times, numbers, extended attributes, and what statx and statvfs tell."""

import ctypes
import os
import stat
import struct

from frame import (AT_EACCESS, AT_FDCWD, AT_SYMLINK_NOFOLLOW, EXCHANGE, PUNCH_HOLE, KEEP_SIZE, UTIME_NOW, UTIME_OMIT, call, case, case_for, content,
                   error_name, in_child, look, make, moved, outcome, raw, rename2, tick, times, utimens)

PAST = 1_000_000_000_000_000_000


@case
def chmod_of_every_bit(t):
    make("f")
    os.mkdir("d")
    for mode in [1 << i for i in range(12)] + [0, 0o777, 0o7777, 0o4755, 0o2711, 0o1777, 0o444]:
        os.chmod("f", mode)
        os.chmod("d", mode)
        t.says(f"{mode:o}", (look("f"), look("d")))


@case
def chmod_in_every_way(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.symlink("f", "l")
    os.fchmod(fd, 0o601)
    t.says("fd", look("f"))
    os.chmod("l", 0o610)
    t.says("through a link", (look("f"), look("l")))
    t.tried("fchmodat2", raw, "fchmodat2", AT_FDCWD, ctypes.c_char_p(b"f"), 0o640, AT_SYMLINK_NOFOLLOW)
    t.tried("fchmodat2, empty path", raw, "fchmodat2", fd, ctypes.c_char_p(b""), 0o644, 0x1000)
    t.says("then", look("f"))
    os.chmod("f", 0o10644 | 0o100000)
    t.says("type bits are ignored", look("f"))


@case
def chown_in_every_way(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.symlink("f", "l")
    os.mkdir("d")

    def owners():
        return [(os.lstat(n).st_uid, os.lstat(n).st_gid) for n in "fld"]
    for name, uid, gid in (("f", 5, 6), ("f", -1, 7), ("f", 8, -1), ("f", -1, -1), ("l", 9, 10), ("d", 11, 12), ("f", 0xfffffffe, 0xfffffffe), ("f", 70000, 3)):
        t.tried(f"{name} {uid} {gid}", os.chown, name, uid, gid)
        t.says(f"{name} {uid} {gid} owners", owners())
    t.tried("fd", os.fchown, fd, 1, 2)
    t.tried("link itself", os.lchown, "l", 3, 4)
    t.says("owners", owners())


@case
def chown_takes_setuid_and_setgid_off(t):
    for mode in (0o4755, 0o2755, 0o6777, 0o2644, 0o6644, 0o1755):
        make("f")
        os.mkdir("d")
        os.chmod("f", mode)
        os.chmod("d", mode)
        outcome(os.chown, "f", 1, 1)
        outcome(os.chown, "d", 1, 1)
        t.says(f"{mode:o}", (look("f"), look("d")))
        os.chmod("f", mode)
        os.chown("f", -1, -1)
        t.says(f"{mode:o} nobody changes", look("f"))
        os.unlink("f")
        os.rmdir("d")


@case
def setgid_folders_give_their_group_on(t):
    os.mkdir("d")
    outcome(os.chown, "d", 0, 4321)
    os.chmod("d", 0o2775)
    make("d/f")
    os.mkdir("d/sub")
    os.symlink("x", "d/l")
    os.mkdir("d/sub/deeper")
    t.says("groups", [(p, os.lstat(p).st_gid, oct(os.lstat(p).st_mode)) for p in ("d/f", "d/sub", "d/l", "d/sub/deeper")])


@case
def utimensat_in_every_way(t):
    make("f")
    now = os.stat("f").st_mtime_ns
    for name, atime, mtime in (("both", (5, 7), (6, 8)), ("only mtime", (0, UTIME_OMIT), (9, 999_999_999)), ("only atime", (11, 1), (0, UTIME_OMIT)),
                               ("neither", (0, UTIME_OMIT), (0, UTIME_OMIT)), ("before 1970", (-1, 5), (-100, 6)), ("zero", (0, 0), (0, 0)),
                               ("2038", (1 << 31, 1), ((1 << 31) + 1, 2)), ("2262", (9_223_372_035, 3), (9_223_372_036, 4))):
        utimens("f", atime, mtime)
        st = os.stat("f")
        t.says(name, (st.st_atime_ns, st.st_mtime_ns))
    utimens("f", (0, UTIME_NOW), (77, 7))
    t.says("atime now", (os.stat("f").st_atime_ns >= now, os.stat("f").st_mtime_ns))
    utimens("f", (78, 8), (0, UTIME_NOW))
    t.says("mtime now", (os.stat("f").st_atime_ns, os.stat("f").st_mtime_ns >= now))
    utimens("f", (0, UTIME_NOW), (0, UTIME_NOW))
    t.says("both now", (os.stat("f").st_atime_ns == os.stat("f").st_mtime_ns >= now))
    for name, atime, mtime in (("a billion ns", (0, 10**9), (0, 0)), ("negative ns", (0, 0), (0, -1))):
        t.tried(name, utimens, "f", atime, mtime)
    t.tried("missing", utimens, "no", (0, UTIME_OMIT), (0, UTIME_OMIT))
    t.tried("missing, now", utimens, "no", (0, UTIME_NOW), (0, UTIME_NOW))


@case
def times_of_folders_can_be_set(t):
    os.mkdir("d")
    utimens("d", (5, 7), (6, 8))
    t.says("set", (os.stat("d").st_atime_ns, os.stat("d").st_mtime_ns))
    make("d/f")
    t.says("moved by a new name", os.stat("d").st_mtime_ns > 10**18)


def _acts():
    """{act: (what it does, whose times are looked at)}. "f", "d", "d/g" and "l" exist."""
    def with_fd(flags, body):
        def act():
            fd = os.open("f", flags)
            try:
                body(fd)
            finally:
                os.close(fd)
        return act

    write = os.O_RDWR
    return {
        "read": with_fd(os.O_RDONLY, lambda fd: os.read(fd, 10)),
        "write": with_fd(write, lambda fd: os.write(fd, b"x")),
        "write of nothing": with_fd(write, lambda fd: os.write(fd, b"")),
        "append": with_fd(write | os.O_APPEND, lambda fd: os.write(fd, b"x")),
        "open": with_fd(os.O_RDONLY, lambda fd: None),
        "open to write": with_fd(write, lambda fd: None),
        "open to create": with_fd(write | os.O_CREAT, lambda fd: None),
        "open to truncate": with_fd(write | os.O_TRUNC, lambda fd: None),
        "fsync": with_fd(write, os.fsync),
        "ftruncate to less": with_fd(write, lambda fd: os.ftruncate(fd, 3)),
        "ftruncate to more": with_fd(write, lambda fd: os.ftruncate(fd, 3000)),
        "ftruncate to the same": with_fd(write, lambda fd: os.ftruncate(fd, 10)),
        "truncate to less": lambda: os.truncate("f", 3),
        "truncate to the same": lambda: os.truncate("f", 10),
        "fallocate": with_fd(write, lambda fd: call("fallocate", fd, 0, 0, 5000)),
        "fallocate, keep size": with_fd(write, lambda fd: call("fallocate", fd, 1, 0, 5000)),
        "punch hole": with_fd(write, lambda fd: call("fallocate", fd, PUNCH_HOLE | KEEP_SIZE, 0, 5)),
        "chmod": lambda: os.chmod("f", 0o600),
        "chmod to the same": lambda: os.chmod("f", 0o644),
        "chown": lambda: outcome(os.chown, "f", 1, 1),
        "chown of nothing": lambda: os.chown("f", -1, -1),
        "utimens": lambda: os.utime("f", ns=(PAST + 1, PAST + 1)),
        "utimens, neither": lambda: utimens("f", (0, UTIME_OMIT), (0, UTIME_OMIT)),
        "setxattr": lambda: os.setxattr("f", "user.x", b"1"),
        "getxattr": lambda: outcome(os.getxattr, "f", "user.none"),
        "link": lambda: os.link("f", "d/new"),
        "unlink of another link": lambda: (os.link("f", "d/new"), os.unlink("d/new")),
        "rename": lambda: os.rename("f", "f2"),
        "rename into the folder": lambda: os.rename("f", "d/f2"),
        "rename out of the folder": lambda: os.rename("d/g", "g2"),
        "rename in the folder": lambda: os.rename("d/g", "d/g2"),
        "rename over": lambda: os.rename("d/g", "f"),
        "exchange": lambda: rename2("d/g", "f", EXCHANGE),
        "rename of a folder": lambda: os.rename("d", "d2"),
        "create in the folder": lambda: make("d/new"),
        "mkdir in the folder": lambda: os.mkdir("d/new"),
        "symlink in the folder": lambda: os.symlink("x", "d/new"),
        "unlink in the folder": lambda: os.unlink("d/g"),
        "failing unlink": lambda: outcome(os.unlink, "d/none"),
        "failing mkdir": lambda: outcome(os.mkdir, "d/g"),
        "failing create": lambda: outcome(os.open, "d/g", os.O_CREAT | os.O_EXCL),
        "write to a file in the folder": lambda: make("d/g", b"x"),
        "chmod in the folder": lambda: os.chmod("d/g", 0o600),
        "chmod of the folder": lambda: os.chmod("d", 0o700),
        "listing": lambda: os.listdir("d"),
        "stat": lambda: os.stat("d/g"),
        "readlink": lambda: os.readlink("l"),
        "chown of the link": lambda: outcome(os.lchown, "l", 1, 1),
        "copy_file_range into it": lambda: os.copy_file_range(os.open("d/g", os.O_RDONLY), os.open("f", write), 3),
        "copy_file_range out of it": lambda: os.copy_file_range(os.open("f", os.O_RDONLY), os.open("d/g", write), 3),
        "splice into it": lambda: _splice("f"),
    }


def _splice(name):
    ours, theirs = os.pipe()
    os.write(theirs, b"abc")
    os.splice(ours, os.open(name, os.O_WRONLY), 3)


def _files(top):
    os.mkdir(top)
    os.chdir(top)
    make("f", b"0123456789")
    os.mkdir("d")
    make("d/g", b"in folder")
    os.symlink("f", "l")
    for name in ("f", "d/g", "d"):
        os.utime(name, ns=(PAST, PAST))
    os.utime("l", ns=(PAST, PAST), follow_symlinks=False)
    os.utime(".", ns=(PAST, PAST))


@case
def times_that_acts_move(t):
    """mtime and ctime of the file, the folder and what holds both. Access times are another case."""
    acts = _acts()
    home = os.getcwd()
    for i in range(len(acts)):
        os.chdir(home)
        _files(f"at{i}")
    os.chdir(home)

    def now(i):
        seen = {}
        for name in ("f", "d", "d/g", ".", "l"):
            try:
                seen[name] = times(f"{home}/at{i}/{name}", follow=False)
                seen[name].pop("atime")
            except OSError as e:
                seen[name] = error_name(e.errno)
        return seen

    before = [now(i) for i in range(len(acts))]
    tick()
    for i, act in enumerate(acts.values()):
        os.chdir(f"{home}/at{i}")
        act()
    for i, name in enumerate(acts):
        after = now(i)
        changed = {what: moved(before[i][what], after[what]) if isinstance(after[what], dict) else after[what] for what in after}
        t.says(name, {what: how for what, how in changed.items() if how != "none"})


@case
def times_of_what_moved_follow_it(t):
    _files("x")
    before = times("f")
    tick()
    os.rename("f", "g")
    t.says("renamed", moved(before, times("g")))
    before = times("g")
    tick()
    os.link("g", "h")
    t.says("linked", (moved(before, times("g")), times("g") == times("h")))
    before = times("g")
    tick()
    os.unlink("h")
    t.says("unlinked", moved(before, times("g")))
    fd = os.open("g", os.O_RDWR)
    before = times(fd)
    tick()
    os.unlink("g")
    t.says("open", moved(before, times(fd)))


@case
def access_times(t):
    _files("x")
    for name, act in (("read", lambda: content("f")), ("listing", lambda: os.listdir("d")), ("readlink", lambda: os.readlink("l"))):
        what = {"read": "f", "listing": "d", "readlink": "l"}[name]
        before = times(what, follow=False)["atime"]
        tick()
        act()
        t.says(name, times(what, follow=False)["atime"] != before)
    os.utime("f", ns=(PAST, PAST))
    os.close(os.open("f", os.O_RDONLY))
    t.says("open alone", times("f")["atime"] == PAST)
    fd = os.open("f", os.O_RDONLY | os.O_NOATIME)
    os.read(fd, 5)
    t.says("noatime", times("f")["atime"] == PAST)


@case
def new_files_have_the_time_of_now(t):
    before = os.stat(".").st_ctime_ns
    tick()
    make("f")
    os.mkdir("d")
    os.symlink("x", "l")
    for name in "fdl":
        seen = times(name, follow=False)
        t.says(name, (len(set(seen.values())) == 1, seen["mtime"] > before))
    t.says("folder", os.stat(".").st_mtime_ns >= times("f")["mtime"])


@case
def numbers_are_stable_and_unique(t):
    names = [f"f{i}" for i in range(50)]
    for name in names:
        make(name)
    os.mkdir("d")
    os.symlink("f0", "l")
    numbers = {n: os.lstat(n).st_ino for n in names + ["d", "l"]}
    t.says("unique", len(set(numbers.values())))
    t.says("listed", all(entry.inode() == numbers[entry.name] for entry in os.scandir(".")))
    os.chmod("f1", 0o600)
    make("f2", b"rewritten")
    os.rename("f3", "d/f3")
    os.truncate("f4", 100)
    os.rename("d", "d2")
    t.says("stable", [os.lstat(n).st_ino == numbers[o] for n, o in (("f1", "f1"), ("f2", "f2"), ("d2/f3", "f3"), ("f4", "f4"), ("d2", "d"))])
    with os.scandir(".") as entries:
        t.says("types", sorted({(e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False), e.is_symlink()) for e in entries}))
    t.says("one device", len({os.lstat(n).st_dev for n in os.listdir(".")} | {os.stat(".").st_dev}))


@case
def access_of_root_and_of_modes(t):
    for mode in (0, 0o111, 0o222, 0o444, 0o644, 0o100, 0o001, 0o777):
        make(f"f{mode:o}")
        os.mkdir(f"d{mode:o}")
        os.chmod(f"f{mode:o}", mode)
        os.chmod(f"d{mode:o}", mode)
        t.says(f"{mode:o}", [[os.access(f"{kind}{mode:o}", how) for how in (os.F_OK, os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.X_OK)] for kind in "fd"])
    os.symlink("nowhere", "l")
    t.tried("dangling", call, "faccessat", AT_FDCWD, "l", os.F_OK, 0)
    t.tried("dangling itself", call, "faccessat", AT_FDCWD, "l", os.F_OK, AT_SYMLINK_NOFOLLOW)
    t.tried("effective", call, "faccessat", AT_FDCWD, "f0", os.R_OK, AT_EACCESS)
    t.tried("unknown", call, "access", "f0", 64)


# --- Extended attributes ----------------------------------------------------------------------------------------------


def own(names):
    return sorted(n for n in names if not n.startswith("user.ckptfs"))


@case_for("file", "dir")
def xattrs_of_a(t, kind):
    make("x") if kind == "file" else os.mkdir("x")
    os.setxattr("x", "user.a", b"1")
    t.tried("create over", os.setxattr, "x", "user.a", b"2", os.XATTR_CREATE)
    t.tried("replace", os.setxattr, "x", "user.a", b"22", os.XATTR_REPLACE)
    t.tried("replace none", os.setxattr, "x", "user.b", b"2", os.XATTR_REPLACE)
    t.tried("create", os.setxattr, "x", "user.b", b"3", os.XATTR_CREATE)
    t.tried("both flags", os.setxattr, "x", "user.c", b"3", os.XATTR_CREATE | os.XATTR_REPLACE)
    t.tried("unknown flags", os.setxattr, "x", "user.c", b"3", 64)
    t.says("all", {n: os.getxattr("x", n) for n in own(os.listxattr("x"))})
    t.tried("remove", os.removexattr, "x", "user.a")
    t.tried("remove again", os.removexattr, "x", "user.a")
    t.tried("get removed", os.getxattr, "x", "user.a")
    t.tried("empty value", os.setxattr, "x", "user.e", b"")
    t.tried("get empty", os.getxattr, "x", "user.e")
    t.tried("any bytes", os.setxattr, "x", "user.bytes", bytes(range(256)))
    t.says("bytes", os.getxattr("x", "user.bytes") == bytes(range(256)))
    fd = os.open("x", os.O_RDONLY)
    t.tried("by descriptor", os.setxattr, fd, "user.fd", b"f")
    t.tried("from descriptor", os.getxattr, fd, "user.fd")


@case
def xattr_names(t):
    make("f")
    for name in ("user.", "user", "", "nonsense.x", "user.x.y.z", "user.ünï", "user." + "n" * 250, "user." + "n" * 251, "user." + "n" * 300, "USER.x"):
        t.tried(f"set {name[:20]} {len(name)}", os.setxattr, "f", name, b"1")
        t.tried(f"get {name[:20]} {len(name)}", os.getxattr, "f", name)
    t.says("listed", sorted(len(n) for n in own(os.listxattr("f"))))


@case
def xattr_values_of_every_size(t):
    for size in (0, 1, 100, 1000, 3000):
        make(f"f{size}")
        t.tried(f"{size}", os.setxattr, f"f{size}", "user.v", b"v" * size)
        t.says(f"{size} back", len(os.getxattr(f"f{size}", "user.v")))
    make("large")
    for size in (5000, 60_000, 65_536, 65_537):
        t.tried(f"{size}", os.setxattr, "large", "user.v", b"v" * size)
    t.says("none left", own(os.listxattr("large")))


@case
def xattr_buffers_that_are_too_small(t):
    make("f")
    os.setxattr("f", "user.a", b"0123456789")
    buffer = ctypes.create_string_buffer(20)
    for size in (0, 5, 9, 10, 20):
        t.tried(f"get {size}", call, "getxattr", "f", "user.a", buffer if size else None, size)
    for size in (1, 6, 7, 20):
        t.tried(f"list {size}", call, "listxattr", "f", buffer, size)


@case
def xattrs_of_other_kinds(t):
    make("f")
    acl = struct.pack("<IHHIHHIHHI", 2, 1, 6, 0xffffffff, 4, 4, 0xffffffff, 32, 0, 0xffffffff)
    t.tried("trusted", os.setxattr, "f", "trusted.x", b"1")
    t.tried("security", os.setxattr, "f", "security.x", b"1")
    t.tried("acl", os.setxattr, "f", "system.posix_acl_access", acl)
    t.tried("get trusted", os.getxattr, "f", "trusted.none")
    t.tried("get security", os.getxattr, "f", "security.none")
    t.tried("get capability", os.getxattr, "f", "security.capability")
    t.tried("get acl", os.getxattr, "f", "system.posix_acl_default")


@case
def xattrs_go_with_their_file(t):
    make("f")
    os.setxattr("f", "user.k", b"v")
    os.link("f", "g")
    os.rename("f", "h")
    os.chmod("h", 0o600)
    os.truncate("h", 10)
    t.says("kept", [os.getxattr(n, "user.k") for n in "gh"])
    make("n")
    os.rename("n", "h")
    t.says("new file has none", own(os.listxattr("h")))


@case
def xattrs_many_on_one_file(t):
    make("f")
    for i in range(40):
        os.setxattr("f", f"user.name{i}", str(i).encode())
    t.says("listed", own(os.listxattr("f")))
    for i in range(0, 40, 2):
        os.removexattr("f", f"user.name{i}")
    t.says("left", {n: os.getxattr("f", n) for n in own(os.listxattr("f"))})


# --- statx and statvfs ------------------------------------------------------------------------------------------------


@case
def statvfs_tells_of_the_disk(t):
    st = os.statvfs(".")
    t.says("names", st.f_namemax)
    t.says("blocks", (st.f_bsize, st.f_frsize, st.f_blocks))
    t.says("room", (0 < st.f_bavail <= st.f_bfree < st.f_blocks, 0 < st.f_ffree < st.f_files))
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    t.says("by descriptor", os.fstatvfs(fd).f_blocks == st.f_blocks)


def statx(path, flags, mask):
    buffer = ctypes.create_string_buffer(256)
    raw("statx", AT_FDCWD, ctypes.c_char_p(path.encode()), flags, ctypes.c_uint(mask), buffer)
    return buffer.raw


@case
def statx_tells_the_basics(t):
    make("f", b"12345", 0o640)
    os.utime("f", ns=(PAST + 1, PAST + 2))
    for name, flags in (("sync as stat", 0), ("force sync", 0x2000), ("don't sync", 0x4000)):
        got = statx("f", flags, 0x7ff)
        mask, blksize, _, nlink = struct.unpack_from("IIQI", got)
        mode, ino, size = struct.unpack_from("H", got, 28)[0], *struct.unpack_from("QQ", got, 32)
        t.says(name, (hex(mask & 0x7ff), nlink, oct(mode), size, ino == os.stat("f").st_ino, blksize, struct.unpack_from("qI", got, 112)))
    t.tried("both syncs", lambda: statx("f", 0x6000, 0x7ff) and None)


@case
def statx_tells_the_time_of_birth(t):
    make("f")
    t.says("told", bool(struct.unpack_from("I", statx("f", 0, 0xfff))[0] & 0x800))


@case
def changes_by_one_descriptor_are_seen_by_the_other_at_once(t):
    writer, reader = os.open("f", os.O_CREAT | os.O_RDWR), os.open("f", os.O_RDONLY)
    seen = []
    for i in range(20):
        os.write(writer, b"x" * 100)
        seen.append((os.fstat(reader).st_size, os.stat("f").st_size, len(os.pread(reader, 10000, 0))))
    os.ftruncate(writer, 50)
    seen.append((os.fstat(reader).st_size, os.stat("f").st_size))
    os.fchmod(writer, 0o600)
    seen.append((stat.S_IMODE(os.fstat(reader).st_mode), stat.S_IMODE(os.stat("f").st_mode)))
    t.says("seen", seen)


@case
def changes_by_another_process_are_seen_at_once(t):
    make("f", b"x")
    seen = []
    for i in range(10):
        os.stat("f")
        in_child(lambda: (os.chmod("f", 0o600 + i), make(f"new{i}"), os.truncate("f", i * 10)) and 0)
        seen.append((look("f"), os.path.exists(f"new{i}")))
    t.says("seen", seen)
