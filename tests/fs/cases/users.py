"""Who may do what: three ordinary users, all modes, and each call that asks for a permission.

A case here has two halves: `prepare` makes files as root, `act` tries calls as each user. Between them a step may have been
committed; the halves marked `reads` change nothing. Users take turns at each single call, so that an answer that the kernel has
kept for one would be seen by the next.
"""

import os
import shutil
import subprocess
import time

from frame import CASES, PREPARE, call, content, in_child, look, make, outcome, tick, times, utimens

OWNER, MEMBER, OTHER = 4001, 4002, 4003
USERS = {"owner": (OWNER, OWNER, []), "member": (MEMBER, MEMBER, [OWNER]), "other": (OTHER, OTHER, [])}
READING = set()
CHOSEN = (0, 0o111, 0o222, 0o333, 0o444, 0o555, 0o666, 0o777, 0o700, 0o070, 0o007, 0o644, 0o640, 0o604, 0o750, 0o705, 0o077, 0o400, 0o040, 0o004, 0o200, 0o020,
          0o002, 0o100, 0o010, 0o001)
# Each with tests/run --full; else each eighth of them as well as those.
MODES = range(512) if os.environ.get("CKPT_TEST_FULL", "") not in ("", "0") else sorted({*CHOSEN, *range(0, 512, 8)})


def users_case(cls):
    PREPARE[cls.__name__], CASES[cls.__name__] = cls.prepare, cls.act
    if getattr(cls, "reads", False):
        READING.add(cls.__name__)
    return cls


def become(name):
    """Effective and real ids; the saved one stays root's, so that the next one can come."""
    os.setresuid(0, 0, 0)
    if name == "root":
        os.setresgid(0, 0, 0)
        os.setgroups([])
        return
    uid, gid, groups = USERS[name]
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, 0)


def each_user(t, name, attempt, *args):
    for user in USERS:
        become(user)
        t.tried(f"{user}: {name}", attempt, *args)
    become("root")


def all_modes(t, calls, modes, path):
    """For each call and user: {outcome: modes}. Users take turns at each mode."""
    got = {(user, name): {} for name in calls for user in USERS}
    for name, attempt in calls.items():
        for mode in modes:
            for user in USERS:
                become(user)
                result = outcome(attempt, path(mode))
                got[user, name].setdefault(result if isinstance(result, str) else "ok", []).append(f"{mode:o}")
    become("root")
    for (user, name), results in got.items():
        t.says(f"{user}: {name}", {result: " ".join(which) for result, which in sorted(results.items())})


def owned(name, mode=None, uid=OWNER, gid=OWNER):
    os.chown(name, uid, gid, follow_symlinks=False)
    if mode is not None:
        os.chmod(name, mode)
    return name


def closing(*flags):
    def attempt(path):
        os.close(os.open(path, *flags))
    return attempt


FILE_READS = {
    "open to read": closing(os.O_RDONLY),
    "read": lambda path: content(path) and None,
    "access r": lambda path: call("access", path, os.R_OK),
    "access w": lambda path: call("access", path, os.W_OK),
    "access x": lambda path: call("access", path, os.X_OK),
    "getxattr": lambda path: os.getxattr(path, "user.k") and None,
    "listxattr": lambda path: os.listxattr(path) and None,
    "stat": lambda path: os.stat(path) and None,
    "open path": closing(os.O_PATH),
}
FILE_WRITES = {
    "open to write": closing(os.O_WRONLY),
    "open for both": closing(os.O_RDWR),
    "open to append": closing(os.O_WRONLY | os.O_APPEND),
    "open to truncate": closing(os.O_RDONLY | os.O_TRUNC),
    "open to create": closing(os.O_WRONLY | os.O_CREAT),
    "truncate": lambda path: os.truncate(path, 5),
    "utimens now": lambda path: os.utime(path),
    "utimens": lambda path: os.utime(path, ns=(1, 1)),
    "setxattr": lambda path: os.setxattr(path, "user.k", b"2"),
    "removexattr": lambda path: os.removexattr(path, "user.none"),
    "chown to nobody": lambda path: os.chown(path, -1, -1),
    "chmod": lambda path: os.chmod(path, os.stat(path).st_mode & 0o7777),
}


def _files(modes):
    for mode in modes:
        make(f"f{mode:03o}", b"content")
        os.setxattr(f"f{mode:03o}", "user.k", b"1")
        owned(f"f{mode:03o}", mode)


@users_case
class reading_files_of_all_512_modes:
    reads = True

    @staticmethod
    def prepare():
        _files(MODES)

    @staticmethod
    def act(t):
        all_modes(t, FILE_READS, MODES, lambda mode: f"f{mode:03o}")


@users_case
class changing_files_of_all_512_modes:
    @staticmethod
    def prepare():
        _files(MODES)

    @staticmethod
    def act(t):
        all_modes(t, FILE_WRITES, MODES, lambda mode: f"f{mode:03o}")
        t.says("modes", all(os.stat(f"f{mode:03o}").st_mode & 0o7777 == mode for mode in MODES))


FOLDER_READS = {
    "list": lambda path: os.listdir(path) and None,
    "open": closing(os.O_RDONLY),
    "stat below": lambda path: os.stat(path + "/in") and None,
    "stat of nothing below": lambda path: os.stat(path + "/no") and None,
    "open below": lambda path: os.close(os.open(path + "/in", os.O_RDONLY)),
    "stat deeper": lambda path: os.stat(path + "/sub/.") and None,
    "readlink below": lambda path: os.readlink(path + "/link") and None,
    "access x": lambda path: call("access", path, os.X_OK),
    "access r": lambda path: call("access", path, os.R_OK),
    "access w": lambda path: call("access", path, os.W_OK),
    "getxattr": lambda path: os.getxattr(path, "user.k") and None,
}


def _and_undo(do, undo):
    def attempt(path):
        do(path)
        undo(path)
    return attempt


FOLDER_WRITES = {
    "create and unlink": _and_undo(lambda path: make(path + "/new"), lambda path: os.unlink(path + "/new")),
    "mkdir and rmdir": _and_undo(lambda path: os.mkdir(path + "/new"), lambda path: os.rmdir(path + "/new")),
    "symlink": _and_undo(lambda path: os.symlink("x", path + "/new"), lambda path: os.unlink(path + "/new")),
    "link in it": _and_undo(lambda path: os.link(path + "/free", path + "/new"), lambda path: os.unlink(path + "/new")),
    "rename in it": _and_undo(lambda path: os.rename(path + "/in", path + "/new"), lambda path: os.rename(path + "/new", path + "/in")),
    "rename out": _and_undo(lambda path: os.rename(path + "/in", "out"), lambda path: os.rename("out", path + "/in")),
    "rename of a folder out": _and_undo(lambda path: os.rename(path + "/sub", "out"), lambda path: os.rename("out", path + "/sub")),
    "unlink of nothing": lambda path: os.unlink(path + "/no"),
    "create over": lambda path: os.close(os.open(path + "/in", os.O_CREAT | os.O_EXCL)),
    "create or open": lambda path: os.close(os.open(path + "/in", os.O_CREAT)),
    "setxattr": lambda path: os.setxattr(path, "user.k", b"2"),
    "utimens now": lambda path: os.utime(path),
}


def _folders(modes):
    os.chmod(".", 0o777)
    for mode in modes:
        name = f"d{mode:03o}"
        os.mkdir(name)
        owned(make(f"{name}/in", b"in"))
        owned(make(f"{name}/free"), 0o666)
        os.mkdir(f"{name}/sub")
        owned(f"{name}/sub", 0o777)
        os.symlink("in", f"{name}/link")
        os.setxattr(name, "user.k", b"1")
        owned(name, mode)


@users_case
class looking_into_folders_of_all_512_modes:
    reads = True

    @staticmethod
    def prepare():
        _folders(MODES)

    @staticmethod
    def act(t):
        all_modes(t, FOLDER_READS, MODES, lambda mode: f"d{mode:03o}")


@users_case
class changing_folders_of_many_modes:
    @staticmethod
    def prepare():
        _folders(CHOSEN)

    @staticmethod
    def act(t):
        all_modes(t, FOLDER_WRITES, CHOSEN, lambda mode: f"d{mode:03o}")
        t.says("left", [sorted(os.listdir(f"d{mode:03o}")) for mode in CHOSEN] == [["free", "in", "link", "sub"]] * len(CHOSEN))


def _execute(name):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the shell may complain
    os.execv(name, ["x"])


@users_case
class programs_of_many_modes:
    reads = True

    @staticmethod
    def prepare():
        for mode in CHOSEN:
            make(f"p{mode:03o}", b"#!/bin/sh\nexit 5\n")
            shutil.copy2("/bin/true", f"b{mode:03o}")
            owned(f"p{mode:03o}", mode)
            owned(f"b{mode:03o}", mode)

    @staticmethod
    def act(t):
        for user in USERS:
            become(user)
            for kind in "pb":
                t.says(f"{user} {kind}", {f"{mode:o}": in_child(lambda: _execute(f"{kind}{mode:03o}")) for mode in CHOSEN})
            become("root")


@users_case
class programs_with_setuid:
    reads = True

    @staticmethod
    def prepare():
        shutil.copy2("/usr/bin/id", "id")
        owned("id", 0o6755)

    @staticmethod
    def act(t):
        t.says("mode", look("id"))
        become("other")
        t.says("user", int(subprocess.run(["./id", "-u"], check=True, capture_output=True).stdout) == OWNER)


@users_case
class ways_through_closed_folders:
    reads = True

    @staticmethod
    def prepare():
        os.makedirs("a/b/c")
        owned(make("a/b/c/f", b"deep"), 0o644)
        for name, mode in (("a", 0o711), ("a/b", 0o700), ("a/b/c", 0o755)):
            owned(name, mode)
        os.symlink("a/b/c/f", "short")

    @staticmethod
    def act(t):
        for path in ("a", "a/b", "a/b/c", "a/b/c/f", "short", "a/b/none", "a/none", "a/b/c/.."):
            each_user(t, f"stat {path}", lambda: os.stat(path) and None)
            each_user(t, f"list {path}", lambda: os.listdir(path) and None)
            each_user(t, f"open {path}", closing(os.O_RDONLY), path)


@users_case
class descriptors_outlive_permissions:
    @staticmethod
    def prepare():
        os.mkdir("d")
        owned(make("d/f", b"data"), 0o666)
        owned("d", 0o777)

    @staticmethod
    def act(t):
        become("other")
        fd, folder = os.open("d/f", os.O_RDWR), os.open("d", os.O_RDONLY)
        become("root")
        os.chmod("d/f", 0)
        os.chmod("d", 0)
        become("other")
        t.tried("read", os.pread, fd, 10, 0)
        t.tried("write", os.pwrite, fd, b"x", 0)
        t.tried("ftruncate", os.ftruncate, fd, 3)
        t.tried("fsync", os.fsync, fd)
        t.tried("setxattr", os.setxattr, fd, "user.k", b"1")
        t.tried("fchmod", os.fchmod, fd, 0o777)
        t.tried("list", lambda: os.listdir(folder) and None)
        t.tried("open below", os.open, "f", os.O_RDONLY, dir_fd=folder)
        t.tried("open again", os.open, f"/proc/self/fd/{fd}", os.O_RDONLY)
        t.tried("open by name", os.open, "d/f", os.O_RDONLY)
        become("root")
        os.chmod("d", 0o777)
        os.chmod("d/f", 0o644)
        become("other")
        t.tried("after it was allowed", os.open, "d/f", os.O_RDONLY)
        t.tried("but not to write", os.open, "d/f", os.O_WRONLY)


@users_case
class answers_change_with_the_mode_at_once:
    @staticmethod
    def prepare():
        owned(make("f", b"x"), 0o600)
        os.mkdir("d")
        make("d/g")
        owned("d", 0o700)

    @staticmethod
    def act(t):
        seen = []
        for i in range(12):
            become("owner")
            os.chmod("f", 0o644 if i % 2 else 0o600)
            os.chmod("d", 0o755 if i % 3 else 0o700)
            content("f")
            os.listdir("d")
            for user in ("member", "other"):
                become(user)
                seen.append((outcome(content, "f"), outcome(os.listdir, "d"), outcome(os.stat, "d/g"), os.access("f", os.R_OK)))
        become("root")
        t.says("seen", seen)


@users_case
class sticky_folders:
    @staticmethod
    def prepare():
        for name, uid in (("theirs", OWNER), ("roots", 0), ("others", OTHER)):
            os.mkdir(name)
            for i in range(8):
                owned(make(f"{name}/f{i}"), 0o666)
                os.mkdir(f"{name}/d{i}")
                owned(f"{name}/d{i}", 0o777)
            os.symlink("f0", f"{name}/l")
            owned(f"{name}/l")
            owned(name, 0o1777, uid)
        os.mkdir("free")
        os.chmod("free", 0o777)

    @staticmethod
    def act(t):
        for name in ("theirs", "roots", "others"):
            for user in ("other", "member", "owner"):
                become(user)
                t.tried(f"{user} {name}: unlink", os.unlink, f"{name}/f1")
                t.tried(f"{user} {name}: rmdir", os.rmdir, f"{name}/d1")
                t.tried(f"{user} {name}: rename in it", os.rename, f"{name}/f2", f"{name}/new-{user}")
                t.tried(f"{user} {name}: rename out", os.rename, f"{name}/f3", f"free/{user}-{name}")
                t.tried(f"{user} {name}: rename over", os.rename, make(f"free/own-{user}-{name}"), f"{name}/f4")
                t.tried(f"{user} {name}: rename a folder", os.rename, f"{name}/d2", f"{name}/newd-{user}")
                t.tried(f"{user} {name}: create", os.open, f"{name}/mine-{user}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
                t.tried(f"{user} {name}: open to create", os.open, f"{name}/f5", os.O_CREAT | os.O_WRONLY, 0o666)
                t.tried(f"{user} {name}: open to write", os.open, f"{name}/f5", os.O_WRONLY)
                t.tried(f"{user} {name}: follow", os.stat, f"{name}/l")
                t.tried(f"{user} {name}: unlink the own", os.unlink, f"{name}/mine-{user}")
                t.tried(f"{user} {name}: xattr of the folder", os.setxattr, name, "user.x", b"1")
        become("root")


@users_case
class links_to_files_of_others:
    @staticmethod
    def prepare():
        os.chmod(".", 0o777)
        for mode in (0o600, 0o644, 0o666, 0o4666, 0o4755, 0o2777, 0o444):
            owned(make(f"f{mode:o}"), mode)
        os.symlink("f644", "l")
        owned("l")

    @staticmethod
    def act(t):
        for user in ("other", "member", "owner"):
            become(user)
            for name in ("f600", "f644", "f666", "f4666", "f4755", "f2777", "f444", "l"):
                t.tried(f"{user} {name}", os.link, name, f"{user}-{name}", follow_symlinks=False)
        become("root")


@users_case
class modes_are_changed_by_owners_only:
    @staticmethod
    def prepare():
        for user in (*USERS, "again"):
            owned(make(f"f-{user}"), 0o666)
            os.mkdir(f"d-{user}")
            owned(f"d-{user}", 0o777)
        owned(make("foreign"), 0o666, OWNER, 9999)
        os.mkdir("foreignd")
        owned("foreignd", 0o777, OWNER, 9999)

    @staticmethod
    def act(t):
        for user in USERS:
            become(user)
            for name in (f"f-{user}", f"d-{user}"):
                for mode in (0o600, 0o4755, 0o2755, 0o1777, 0o7777):
                    t.says(f"{user} {name} {mode:o}", (outcome(os.chmod, name, mode), look(name)))
        become("owner")
        for name in ("foreign", "foreignd"):
            for mode in (0o2755, 0o6777, 0o2644):
                t.says(f"{name} {mode:o}", (outcome(os.chmod, name, mode), look(name)))
        fd = os.open("f-again", os.O_RDWR)
        become("other")
        t.tried("fchmod by another", os.fchmod, fd, 0o600)
        become("root")


@users_case
class owners_and_groups_are_changed_by_few:
    @staticmethod
    def prepare():
        os.chmod(".", 0o777)
        for user in USERS:
            owned(make(f"f-{user}"), 0o6777)
            owned(make(f"own-{user}"), 0o6777, *USERS[user][:2])
            os.symlink("x", f"l-{user}")
            owned(f"l-{user}", None, *USERS[user][:2])

    @staticmethod
    def act(t):
        for user, (uid, gid, groups) in USERS.items():
            become(user)
            for name in (f"f-{user}", f"own-{user}", f"l-{user}"):
                for i, (who, group) in enumerate([(uid, -1), (0, -1), (OTHER, -1), (-1, gid), (-1, OWNER), (-1, 9999), (uid, gid), (-1, -1)]):
                    result = outcome(os.lchown, name, who, group)
                    st = os.lstat(name)
                    t.says(f"{user} {name} {i} {who} {group}", (result, st.st_uid, st.st_gid, oct(st.st_mode)))
        become("root")


@users_case
class times_are_set_by_owners_and_touched_by_writers:
    @staticmethod
    def prepare():
        for mode in CHOSEN:
            owned(make(f"f{mode:03o}"), mode)

    @staticmethod
    def act(t):
        omit = (1 << 30) - 2
        now = (1 << 30) - 1
        ways = {"now": ((0, now), (0, now)), "explicit": ((1, 1), (2, 2)), "atime now, mtime explicit": ((0, now), (2, 2)),
                "mtime now alone": ((0, omit), (0, now)), "mtime alone": ((0, omit), (3, 3)), "nothing": ((0, omit), (0, omit))}
        all_modes(t, {name: (lambda path, way=way: utimens(path, *way)) for name, way in ways.items()}, CHOSEN, lambda mode: f"f{mode:03o}")


@users_case
class what_users_make_is_theirs:
    @staticmethod
    def prepare():
        os.chmod(".", 0o777)
        for name, mode, gid in (("open", 0o777, 0), ("setgid", 0o2777, 9999), ("sticky", 0o1777, 0), ("setgidown", 0o2777, OWNER)):
            os.mkdir(name)
            owned(name, mode, 0, gid)

    @staticmethod
    def act(t):
        for user in USERS:
            for folder in ("open", "setgid", "sticky", "setgidown"):
                for mask in (0, 0o027):
                    for mode in (0o666, 0o777, 0o4755, 0o2755, 0o2644, 0o1755, 0o6770):
                        at = f"{folder}/{user}-{mask:o}-{mode:o}"
                        become(user)
                        os.umask(mask)
                        os.close(os.open(at + "f", os.O_CREAT | os.O_EXCL | os.O_RDWR, mode))
                        os.mkdir(at + "d", mode)
                        os.mknod(at + "n", 0o100000 | mode)
                        if mode == 0o666:
                            os.symlink("x", at + "l")
                        become("root")
                        os.umask(0o022)
                        made = {}
                        for kind in "fdnl":
                            if os.path.lexists(at + kind):
                                st = os.lstat(at + kind)
                                made[kind] = (st.st_uid, st.st_gid, oct(st.st_mode))
                        t.says(at, made)


@users_case
class setuid_goes_off_when_others_write:
    @staticmethod
    def prepare():
        for i in range(10):
            for user in (*USERS, "root"):
                for mode in (0o6777, 0o2767, 0o4777):
                    owned(make(f"{i}-{user}-{mode:o}", b"x" * 5000), mode)
        make("source", b"y" * 100)

    @staticmethod
    def act(t):
        def writing(body, flags=os.O_RDWR):
            def way(name):
                fd = os.open(name, flags)
                try:
                    body(fd)
                finally:
                    os.close(fd)
            return way

        def splice(fd):
            ours, theirs = os.pipe()
            os.write(theirs, b"z")
            os.splice(ours, fd, 1)

        ways = {
            "write": writing(lambda fd: os.write(fd, b"y")), "ftruncate": writing(lambda fd: os.ftruncate(fd, 3)), "truncate": lambda name: os.truncate(name, 3),
            "open to truncate": writing(lambda fd: None, os.O_WRONLY | os.O_TRUNC), "fallocate": writing(lambda fd: call("fallocate", fd, 0, 0, 9000)),
            "copy_file_range": writing(lambda fd: os.copy_file_range(os.open("source", os.O_RDONLY), fd, 50)), "splice": writing(splice),
            "open alone": writing(lambda fd: None), "write of nothing": writing(lambda fd: os.write(fd, b"")),
            "append": writing(lambda fd: os.write(fd, b"y"), os.O_WRONLY | os.O_APPEND),
        }
        for i, (way, act) in enumerate(ways.items()):
            for user in (*USERS, "root"):
                for mode in (0o6777, 0o2767, 0o4777):
                    become(user)
                    result = outcome(act, f"{i}-{user}-{mode:o}")
                    become("root")
                    t.says(f"{user} {way} {mode:o}", (result, look(f"{i}-{user}-{mode:o}")[:2]))
        time.sleep(1.1)  # what a kernel may have kept of the attributes
        for i, way in enumerate(ways):
            for user in (*USERS, "root"):
                for mode in (0o6777, 0o2767, 0o4777):
                    t.says(f"in the end {user} {way} {mode:o}", look(f"{i}-{user}-{mode:o}")[:2])


@users_case
class folders_are_moved_by_who_may_write_them:
    @staticmethod
    def prepare():
        os.chmod(".", 0o777)
        for mode in (0o777, 0o755, 0o555, 0o700):
            for user in USERS:
                for i in range(2):
                    os.mkdir(f"d{mode:o}-{user}{i}")
                    owned(f"d{mode:o}-{user}{i}", mode)
        os.mkdir("to")
        os.chmod("to", 0o777)

    @staticmethod
    def act(t):
        for mode in (0o777, 0o755, 0o555, 0o700):
            for user in USERS:
                become(user)
                t.tried(f"{user} {mode:o}: new name", os.rename, f"d{mode:o}-{user}0", f"n{mode:o}-{user}")
                t.tried(f"{user} {mode:o}: new parent", os.rename, f"d{mode:o}-{user}1", f"to/n{mode:o}-{user}")
        become("root")


@users_case
class what_only_owners_may_ask_for:
    @staticmethod
    def prepare():
        owned(make("f", b"x"), 0o666)

    @staticmethod
    def act(t):
        import fcntl
        each_user(t, "noatime", closing(os.O_RDONLY | os.O_NOATIME), "f")

        def lease():
            fd = os.open("f", os.O_RDONLY)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(fd)
        each_user(t, "lease", lease)
        each_user(t, "setxattr trusted", os.setxattr, "f", "trusted.x", b"1")
        each_user(t, "getxattr trusted", os.getxattr, "f", "trusted.x")
        each_user(t, "fifo", os.mkfifo, "fifo")
        each_user(t, "device", os.mknod, "dev", 0o020600, os.makedev(1, 3))
        each_user(t, "chroot", os.chroot, ".")


@users_case
class links_count_for_the_file_not_the_folder:
    @staticmethod
    def prepare():
        os.mkdir("closed")
        os.mkdir("open")
        owned(make("closed/f", b"x"), 0o600)
        os.link("closed/f", "open/f")
        owned("closed", 0o700)
        os.chmod("open", 0o777)

    @staticmethod
    def act(t):
        for path in ("closed/f", "open/f"):
            each_user(t, f"read {path}", closing(os.O_RDONLY), path)
        become("owner")
        os.chmod("closed/f", 0o644)
        for path in ("open/f", "closed/f"):
            each_user(t, f"read {path} when open", closing(os.O_RDONLY), path)
        each_user(t, "unlink", os.unlink, "open/f")
        t.says("left", look("closed/f"))


@users_case
class a_write_by_another_moves_the_times:
    @staticmethod
    def prepare():
        owned(make("f", b"x"), 0o666)

    @staticmethod
    def act(t):
        before = times("f")
        tick()
        become("other")
        fd = os.open("f", os.O_WRONLY)
        os.write(fd, b"y")
        os.close(fd)
        become("root")
        after = times("f")
        t.says("moved", sorted(name for name in before if before[name] != after[name]))
        st = os.stat("f")
        t.says("owner", (st.st_uid, st.st_gid))
