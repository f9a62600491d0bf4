"""open(2) and what hangs on a descriptor: flags, unlinked files, running programs, files without a name."""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import array

from frame import (AT_FDCWD, AT_SYMLINK_FOLLOW, call, case, case_for, content, in_child, libc, look, make, outcome, pattern, raw, tree)

OPENS = {
    "read": os.O_RDONLY,
    "write": os.O_WRONLY,
    "read and write": os.O_RDWR,
    "neither": os.O_ACCMODE,
    "truncate": os.O_WRONLY | os.O_TRUNC,
    "truncate, read": os.O_RDONLY | os.O_TRUNC,
    "append": os.O_WRONLY | os.O_APPEND,
    "create": os.O_CREAT | os.O_RDWR,
    "create, read": os.O_CREAT | os.O_RDONLY,
    "create, truncate": os.O_CREAT | os.O_TRUNC | os.O_RDWR,
    "create anew": os.O_CREAT | os.O_EXCL | os.O_RDWR,
    "anew without create": os.O_EXCL | os.O_RDWR,
    "directory": os.O_DIRECTORY,
    "directory, write": os.O_DIRECTORY | os.O_WRONLY,
    "directory, create": os.O_DIRECTORY | os.O_CREAT | os.O_RDONLY,
    "nofollow": os.O_NOFOLLOW,
    "nofollow, create": os.O_NOFOLLOW | os.O_CREAT | os.O_RDWR,
    "nofollow, directory": os.O_NOFOLLOW | os.O_DIRECTORY,
    "path": os.O_PATH,
    "path, nofollow": os.O_PATH | os.O_NOFOLLOW,
    "path, directory": os.O_PATH | os.O_DIRECTORY,
    "nonblock": os.O_NONBLOCK | os.O_RDWR,
    "sync": os.O_SYNC | os.O_RDWR,
    "dsync": os.O_DSYNC | os.O_RDWR,
    "noatime": os.O_NOATIME,
    "cloexec": os.O_CLOEXEC,
}


@case_for("file", "dir", "link", "dirlink", "dangling", "loop", "missing")
def open_flags_on(t, kind):
    for i, (name, flags) in enumerate(OPENS.items()):
        os.mkdir(f"at{i}")
        os.chdir(f"at{i}")
        if kind in ("file", "link"):
            make("f" if kind == "link" else "x", b"data")
        if kind in ("dir", "dirlink"):
            os.mkdir("d" if kind == "dirlink" else "x")
        if kind in ("link", "dirlink", "dangling", "loop"):
            os.symlink({"link": "f", "dirlink": "d", "dangling": "none", "loop": "x"}[kind], "x")
        t.says(name, (outcome(os.open, "x", flags, 0o640), tree()))
        os.chdir("..")


@case
def modes_of_new_files_under_umasks(t):
    for mask in (0, 0o022, 0o077, 0o777):
        for mode in (0, 0o400, 0o444, 0o600, 0o644, 0o666, 0o755, 0o777, 0o1644, 0o2755, 0o4755, 0o7777):
            os.umask(mask)
            fd = os.open(f"f{mask:o}-{mode:o}", os.O_CREAT | os.O_RDWR, mode)
            written = os.write(fd, b"x")
            os.close(fd)
            os.mkdir(f"d{mask:o}-{mode:o}", mode)
            os.umask(0)
            t.says(f"{mask:o} {mode:o}", (written, look(f"f{mask:o}-{mode:o}"), look(f"d{mask:o}-{mode:o}")))


@case
def a_new_file_without_any_permission_is_written_by_who_made_it(t):
    for how in (os.O_WRONLY, os.O_RDWR):
        fd = os.open(f"f{how}", os.O_CREAT | os.O_EXCL | how, 0)
        os.write(fd, b"0123456789")
        os.ftruncate(fd, 5)
        t.says(f"{how}", (os.fstat(fd).st_size, look(f"f{how}")))
        t.tried(f"read {how}", os.pread, fd, 10, 0)


@case
def reading_and_writing_against_the_mode_of_the_descriptor(t):
    make("f", b"data")
    for name, flags in (("read", os.O_RDONLY), ("write", os.O_WRONLY), ("path", os.O_PATH)):
        fd = os.open("f", flags)
        t.tried(f"{name}: read", os.read, fd, 10)
        t.tried(f"{name}: write", os.write, fd, b"x")
        t.tried(f"{name}: pread", os.pread, fd, 10, 0)
        t.tried(f"{name}: pwrite", os.pwrite, fd, b"x", 0)
        t.tried(f"{name}: ftruncate", os.ftruncate, fd, 1)
        t.tried(f"{name}: fsync", os.fsync, fd)
        t.tried(f"{name}: fchmod", os.fchmod, fd, 0o640)
        t.tried(f"{name}: fstat", os.fstat, fd)
        t.tried(f"{name}: futimens", os.utime, fd)
        t.tried(f"{name}: setxattr", os.setxattr, fd, "user.x", b"1")
        t.tried(f"{name}: lseek", os.lseek, fd, 1, os.SEEK_SET)
        t.tried(f"{name}: fallocate", call, "fallocate", fd, 0, 0, 10)
        t.tried(f"{name}: fchdir", os.fchdir, fd)
        t.tried(f"{name}: flock", fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    t.says("left", (look("f"), content("f")))


@case
def a_folder_as_a_file(t):
    os.mkdir("d")
    fd = os.open("d", os.O_RDONLY)
    t.tried("read", os.read, fd, 10)
    t.tried("write", os.write, fd, b"x")
    t.tried("ftruncate", os.ftruncate, fd, 0)
    t.tried("truncate", os.truncate, "d", 0)
    t.tried("fallocate", call, "fallocate", fd, 0, 0, 10)
    t.tried("fsync", os.fsync, fd)
    t.tried("fdatasync", os.fdatasync, fd)
    t.tried("mmap", lambda: __import__("mmap").mmap(fd, 4096, prot=1))
    t.tried("sendfile", os.sendfile, os.open("d/f", os.O_CREAT | os.O_WRONLY), fd, 0, 10)
    t.tried("fchmod", os.fchmod, fd, 0o700)
    t.says("mode", look("d"))


@case
def open_to_truncate(t):
    make("f", pattern(10000))
    reader = os.open("f", os.O_RDONLY)
    t.says("before", len(os.pread(reader, 20000, 0)))
    fd = os.open("f", os.O_RDWR | os.O_TRUNC)
    t.says("after", (os.fstat(fd).st_size, os.pread(reader, 10, 0), look("f")))
    os.pwrite(fd, b"end", 5000)
    t.says("hole", (os.fstat(reader).st_size, os.pread(reader, 10, 4995)))
    os.close(fd)
    t.says("closed", look("f"))


@case
def open_exclusively_over_everything(t):
    make("f")
    os.mkdir("d")
    os.symlink("none", "l")
    for name in "fdl":
        t.tried(name, os.open, name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        t.tried(f"{name} nofollow", os.open, name, os.O_CREAT | os.O_NOFOLLOW | os.O_WRONLY)


@case
def an_unlinked_file_lives_while_it_is_open(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o644)
    os.write(fd, b"first")
    os.unlink("f")
    t.says("name", (outcome(os.stat, "f"), os.listdir(".")))
    os.write(fd, b" second")
    t.says("content", (os.pread(fd, 100, 0), os.fstat(fd).st_nlink, os.fstat(fd).st_size))
    t.tried("ftruncate", os.ftruncate, fd, 3)
    t.tried("fchmod", os.fchmod, fd, 0o600)
    t.tried("fchown", os.fchown, fd, 12, 34)
    t.tried("futimens", os.utime, fd, ns=(5, 7))
    t.tried("setxattr", os.setxattr, fd, "user.k", b"v")
    t.tried("getxattr", os.getxattr, fd, "user.k")
    t.tried("listxattr", os.listxattr, fd)
    t.tried("fallocate", call, "fallocate", fd, 0, 0, 5000)
    t.tried("fsync", os.fsync, fd)
    t.tried("seek", os.lseek, fd, 0, os.SEEK_END)
    st = os.fstat(fd)
    t.says("attributes", (st.st_size, oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns > 7))
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    os.pwrite(again, b"AGAIN", 0)
    t.says("opened again", os.pread(fd, 5, 0))
    make("f", b"another")
    t.says("another of that name", (os.pread(fd, 5, 0), content("f"), os.fstat(fd).st_ino != os.stat("f").st_ino))
    t.tried("fchmod after", os.fchmod, fd, 0o640)
    t.says("other's mode", look("f"))


@case
def an_unlinked_file_that_has_another_name(t):
    fd = os.open("a", os.O_CREAT | os.O_RDWR)
    os.link("a", "b")
    os.unlink("a")
    os.write(fd, b"through")
    t.says("other name", (content("b"), os.fstat(fd).st_nlink))
    os.unlink("b")
    t.says("none", os.fstat(fd).st_nlink)
    os.write(fd, b" again")
    t.says("content", os.pread(fd, 100, 0))


@case
def names_used_again_while_the_old_files_are_open(t):
    fds = []
    for i in range(20):
        fd = os.open("f", os.O_CREAT | os.O_EXCL | os.O_RDWR)
        os.write(fd, str(i).encode())
        os.unlink("f")
        fds.append(fd)
    t.says("contents", [os.pread(fd, 10, 0) for fd in fds])
    t.says("numbers", len({os.fstat(fd).st_ino for fd in fds}))


@case
def descriptors_that_share_their_offset(t):
    make("f", b"0123456789")
    fd = os.open("f", os.O_RDWR)
    twin, own = os.dup(fd), os.open("f", os.O_RDWR)
    os.read(fd, 3)
    t.says("dup", os.read(twin, 2))
    t.says("own", os.read(own, 2))
    pid = os.fork()
    if not pid:
        os.lseek(fd, 8, os.SEEK_SET)
        os._exit(0)
    os.waitpid(pid, 0)
    t.says("child", os.read(fd, 5))
    os.close(fd)
    os.lseek(twin, 0, os.SEEK_SET)
    t.says("after close", os.read(twin, 3))
    t.tried("closed", os.read, fd, 1)


@case
def a_descriptor_that_goes_to_another_process(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.unlink("f")
    ours, theirs = socket.socketpair()

    def child():
        got = array.array("i")
        _, extra, _, _ = theirs.recvmsg(1, socket.CMSG_LEN(4))
        got.frombytes(extra[0][2][:4])
        os.write(got[0], b"from afar")
    pid = os.fork()
    if not pid:
        child()
        os._exit(0)
    ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.waitpid(pid, 0)
    t.says("content", (os.pread(fd, 20, 0), os.lseek(fd, 0, os.SEEK_CUR)))


@case
def flags_of_an_open_file(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    mask = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK
    t.says("getfl", oct(fcntl.fcntl(fd, fcntl.F_GETFL) & mask))
    os.write(fd, b"abc")
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"X")
    t.says("append off", content("f"))
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"Y")
    t.says("append on", (content("f"), os.lseek(fd, 0, os.SEEK_CUR)))
    t.tried("direct", fcntl.fcntl, fd, fcntl.F_SETFL, os.O_DIRECT)
    t.tried("nonblock", fcntl.fcntl, fd, fcntl.F_SETFL, os.O_NONBLOCK)
    t.says("getfd", (fcntl.fcntl(fd, fcntl.F_GETFD), fcntl.fcntl(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100), fcntl.F_GETFD)))


@case
def leases_as_the_filesystem_grants_them(t):
    make("f")
    fd = os.open("f", os.O_RDONLY)
    t.tried("read lease", fcntl.fcntl, fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    t.tried("get", fcntl.fcntl, fd, fcntl.F_GETLEASE)
    t.tried("drop", fcntl.fcntl, fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    writer = os.open("f", os.O_WRONLY)
    t.tried("with a writer", fcntl.fcntl, fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    t.says("writer", writer > 0)


@case
def files_without_a_name(t):
    t.tried("open", os.open, ".", os.O_TMPFILE | os.O_RDWR, 0o640)
    t.tried("read only", os.open, ".", os.O_TMPFILE | os.O_RDONLY)
    make("f")
    t.tried("in a file", os.open, "f", os.O_TMPFILE | os.O_RDWR)
    t.tried("in nothing", os.open, "no", os.O_TMPFILE | os.O_RDWR)


@case
def files_without_a_name_get_one(t):
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
    except OSError:
        return  # another case says so
    os.write(fd, b"nameless")
    t.says("before", (os.fstat(fd).st_nlink, os.listdir(".")))
    t.tried("link", call, "linkat", AT_FDCWD, f"/proc/self/fd/{fd}", AT_FDCWD, "named", AT_SYMLINK_FOLLOW)
    t.says("after", (os.fstat(fd).st_nlink, tree()))
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640)
    t.tried("never to be linked", call, "linkat", AT_FDCWD, f"/proc/self/fd/{fd}", AT_FDCWD, "never", AT_SYMLINK_FOLLOW)


@case
def programs_run_from_here(t):
    make("script", b"#!/bin/sh\necho said $1 >out\nexit 7\n", 0o755)
    t.says("script", (subprocess.run(["./script", "it"], check=False).returncode, content("out")))
    shutil.copy2("/bin/true", "true")
    t.says("binary", subprocess.run(["./true"], check=False).returncode)
    os.chmod("script", 0o644)
    t.says("not executable", in_child(lambda: os.execv("./script", ["x"])))
    make("junk", b"\0\1\2", 0o755)
    t.says("no program", in_child(lambda: os.execv("./junk", ["x"])))
    make("lost", b"#!/no/such/interpreter\n", 0o755)
    t.says("no interpreter", in_child(lambda: os.execv("./lost", ["x"])))


@case
def programs_that_run_are_not_written(t):
    shutil.copy2("/bin/sleep", "sleep")
    running = subprocess.Popen(["./sleep", "30"])
    while not os.readlink(f"/proc/{running.pid}/exe").endswith("/sleep"):
        pass
    t.tried("open to write", os.open, "sleep", os.O_WRONLY)
    t.tried("truncate", os.truncate, "sleep", 10)
    t.tried("open to truncate", os.open, "sleep", os.O_WRONLY | os.O_TRUNC)
    t.tried("rename", os.rename, "sleep", "moved")
    t.tried("chmod", os.chmod, "moved", 0o700)
    t.tried("unlink", os.unlink, "moved")
    running.kill()
    running.wait()
    shutil.copy2("/bin/sleep", "sleep")
    writer = os.open("sleep", os.O_WRONLY)
    t.says("written while it starts", in_child(lambda: os.execv("./sleep", ["sleep", "0"])))
    os.close(writer)
    t.says("then", in_child(lambda: os.execv("./sleep", ["sleep", "0"])))


@case
def fifos_sockets_and_devices(t):
    t.tried("fifo", os.mkfifo, "fifo")
    t.tried("node", os.mknod, "node", 0o010600)
    t.tried("null", os.mknod, "null", 0o020600, os.makedev(1, 3))
    t.tried("block", os.mknod, "block", 0o060600, os.makedev(7, 0))
    with socket.socket(socket.AF_UNIX) as s:
        t.tried("socket", s.bind, "socket")
    t.tried("file by mknod", os.mknod, "plain", 0o100640)
    t.tried("folder by mknod", os.mknod, "dir", 0o040700)
    t.tried("over a file", os.mknod, "plain", 0o100640)
    t.tried("fifo over a file", os.mkfifo, "plain")
    t.says("file", look("plain"))


@case
def ioctls(t):
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"12345")
    os.lseek(fd, 2, os.SEEK_SET)
    t.tried("FIONREAD", lambda: struct.unpack("i", fcntl.ioctl(fd, 0x541B, b"\0" * 4))[0])
    t.tried("TCGETS", fcntl.ioctl, fd, 0x5401, b"\0" * 64)
    t.tried("FICLONE", fcntl.ioctl, os.open("g", os.O_CREAT | os.O_RDWR), 0x40049409, fd)
    t.tried("FIBMAP", lambda: fcntl.ioctl(fd, 1, b"\0" * 4) and None)
    t.tried("FS_IOC_GETFLAGS", lambda: fcntl.ioctl(fd, 0x80086601, b"\0" * 8) and None)
    t.tried("FS_IOC_GETVERSION", lambda: fcntl.ioctl(fd, 0x80087601, b"\0" * 8) and None)
    t.tried("FIEMAP", lambda: fcntl.ioctl(fd, 0xC020660B, b"\0" * 8 + b"\xff" * 8 + b"\0" * 16) and None)
    t.tried("nonsense", fcntl.ioctl, fd, 0x12345678)


@case
def handles_by_which_servers_find_files(t):
    make("f")
    handle = (ctypes.c_uint * 40)(128)
    mount_id = ctypes.c_int()
    t.tried("name_to_handle_at", lambda: raw("name_to_handle_at", AT_FDCWD, ctypes.c_char_p(b"f"), handle, ctypes.byref(mount_id), 0) and None)


@case
def changes_are_told_to_inotify(t):
    watcher = libc.inotify_init1(os.O_NONBLOCK)
    os.mkdir("d")
    libc.inotify_add_watch(watcher, b"d", 0x3c6)  # modify attrib moved_from moved_to create delete
    make("d/f", b"x")
    os.chmod("d/f", 0o600)
    os.rename("d/f", "d/g")
    os.unlink("d/g")
    os.mkdir("d/sub")
    data, at, seen = os.read(watcher, 65536), 0, []
    while at < len(data):
        _, mask, _, size = struct.unpack_from("iIII", data, at)
        seen.append((hex(mask), data[at + 16:at + 16 + size].rstrip(b"\0")))
        at += 16 + size
    t.says("seen", seen)


@case
def the_limit_of_a_files_size(t):
    import resource
    make("f", b"x" * 100)
    fd = os.open("f", os.O_RDWR)

    def child():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        results = [outcome(os.pwrite, fd, b"y" * 10000, 0), outcome(os.pwrite, fd, b"y", 8192), outcome(os.ftruncate, fd, 8193),
                   outcome(os.ftruncate, fd, 8192), outcome(os.truncate, "f", 100000), outcome(call, "fallocate", fd, 0, 0, 10000)]
        make("results", repr(results).encode())

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    in_child(child)
    t.says("limits", (content("results"), limit == resource.getrlimit(resource.RLIMIT_FSIZE)))

    def killed():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.pwrite(fd, b"y", 5000)
    t.says("signal", in_child(killed))
    t.says("size", os.stat("f").st_size)
