"""The main job: a step is written with plain file calls, completed by its marker, and is then whole, listed and immutable."""

import ctypes
import fcntl
import mmap
import os
import socket
import stat
import struct
import subprocess
import termios

import pytest

from support import trees
from support.fixtures import all_modes, both_modes, needs_root
from support.mounting import Mount, errno_name

pytestmark = pytest.mark.timeout(90)

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
FS_IOC_GETFLAGS = 0x80086601


def error_of(call, *args, **kwargs):
    """The name of the errno that a call fails with, None when it does not fail."""
    try:
        result = call(*args, **kwargs)
    except OSError as e:
        return errno_name(e)
    if isinstance(result, int) and call is os.open:
        os.close(result)
    return None


def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, offset, length):
        raise OSError(ctypes.get_errno(), "fallocate")


def everything(mount, name):
    """A step described to the last attribute, inode numbers too."""
    return trees.describe(mount / name, inodes=True)


def committed_and_kept(mount, commit, name):
    """Commits; the step must then be, byte by byte and number by number, what was staged, now and after a remount."""
    staged = everything(mount, name)
    commit(mount / name)
    after = everything(mount, name)
    # The marker came and went in the step's own directory.
    staged["."].pop("mtime_ns"), after["."].pop("mtime_ns")
    assert after == staged
    directory = os.stat(mount / name)
    mount.remount()
    again = everything(mount, name)
    again["."].pop("mtime_ns")
    assert again == staged
    assert os.stat(mount / name).st_mtime_ns == directory.st_mtime_ns
    return again


# --- What is listed, and when ---------------------------------------------------------------------------------------


@all_modes
def test_step_is_written_committed_listed_and_read_back(mount, stage, commit):
    made = stage("1000", size=300_000)
    assert mount.listing() == []
    commit(mount / "1000")
    assert mount.listing() == ["1000"]
    assert trees.files(mount / "1000") == made
    assert ".finalize" not in mount.listing("1000")
    mount.remount()
    assert mount.listing() == ["1000"]
    assert trees.files(mount / "1000") == made


@both_modes
def test_staged_step_is_in_no_listing_but_reachable_by_its_exact_name(mount, stage):
    made = stage("1000")
    assert os.listdir(mount.path) == []
    assert [e.name for e in os.scandir(mount.path)] == []
    assert subprocess.run(["find", mount.path, "-mindepth", "1"], capture_output=True, text=True, check=True).stdout == ""
    assert (mount / "1000").is_dir()
    assert trees.files(mount / "1000") == made
    assert mount.listing("1000") == ["config.json", "empty", "first", "params"]


def test_passthrough_is_used_when_the_kernel_offers_it_and_not_when_refused(world, scratch, ckptfs):
    able = {c["name"]: c for c in ckptfs.json("doctor", check=False)["checks"]}["passthrough"]
    with_it = Mount.new(world, scratch / "a")
    without = Mount.new(world, scratch / "b", options=["no_passthrough"])
    assert with_it.status()["passthrough"] is able["ok"]
    assert without.status()["passthrough"] is False
    if os.geteuid() == 0:
        assert able["ok"], f"root on a kernel of this age has passthrough: {able}"


def test_plain_files_and_folders_are_live(mount):
    (mount / "logs").mkdir()
    with open(mount / "logs/train.log", "w") as log:
        for line in range(3):
            print(f"step {line}", file=log, flush=True)
            assert (mount / "logs/train.log").read_text().count("step") == line + 1
    (mount / "config.json").write_text("{}")
    assert mount.listing() == ["config.json", "logs"]
    os.rename(mount / "config.json", mount / "logs/config.json")
    os.unlink(mount / "logs/train.log")
    before = os.stat(mount / "logs/config.json")
    mount.remount()
    assert mount.listing("logs") == ["config.json"]
    after = os.stat(mount / "logs/config.json")
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    (mount / "logs/config.json").unlink()
    (mount / "logs").rmdir()
    assert mount.listing() == []


@pytest.mark.parametrize("name, staged", [("1000", True), ("0", True), ("step_7", True), ("checkpoint-500", True), ("iter_0000100", True),
                                          ("global_step3", True), ("epoch_2", True), ("5.orbax-checkpoint-tmp", True), ("weights", False),
                                          ("v2-final", False), ("tensorboard", False)])
def test_a_name_of_step_form_is_staged_and_any_other_is_plain(mount, name, staged):
    (mount / name).mkdir()
    assert (mount.listing() == []) is staged
    assert (mount / name).is_dir()


def test_step_forms_in_folders(mount, commit):
    for folder, name, staged in [("run/checkpoints", "12", True), ("exp", "12", False), ("exp", "step_12", True), ("logs", "step_12", False),
                                 ("a/tensorboard/b", "run-1", False), ("logs", "9.partial_save", True)]:
        (mount / folder).mkdir(parents=True, exist_ok=True)
        (mount / folder / name).mkdir()
        assert (name not in mount.listing(folder)) is staged, f"{name} in {folder}"
    commit(mount / "exp/step_12")
    (mount / "exp/13").mkdir()  # a bare number, in a folder that holds a step by now
    assert mount.listing("exp") == ["12", "step_12"]


def test_listing_is_right_in_every_process_the_moment_close_returns(mount, agent, commit):
    looker = agent()
    for n in range(50):
        (mount / str(n)).mkdir()
        trees.write(mount / f"{n}/a", b"x")
        assert looker.run("sorted(map(int, os.listdir(path)))", path=str(mount.path)) == list(range(n))
        commit(mount / str(n))
        assert looker.run("sorted(map(int, os.listdir(path)))", path=str(mount.path)) == list(range(n + 1))


def test_control_directory_is_reachable_and_never_listed(mount, stage):
    assert ".ckptfs" not in os.listdir(mount.path)
    assert (mount / ".ckptfs").is_dir()
    assert {"status.json", "errors", "staged"} <= set(os.listdir(mount / ".ckptfs"))
    assert mount.errors() == []
    stage("1000")
    status = mount.status()
    assert status["store"] and status["version"] and status["durability"] == "local" and status["committing"] == []
    assert [s["name"] for s in status["staged"]] == ["1000"]
    assert status["last_commit"] is None and status["last_error"] is None
    for refused in (lambda: (mount / ".ckptfs/new").write_text("x"), lambda: os.mkdir(mount / ".ckptfs/sub"),
                    lambda: os.rename(mount / ".ckptfs", mount / "control"), lambda: os.rmdir(mount / ".ckptfs"),
                    lambda: os.unlink(mount / ".ckptfs/errors"), lambda: os.mkdir(mount / ".ckptfs")):
        with pytest.raises(OSError):
            refused()
    assert mount.errors() == []


def test_status_says_what_was_committed_last(mount, stage, commit):
    stage("7")
    commit(mount / "7")
    last = mount.status()["last_commit"]
    assert last["step"] == "7" and last["seconds"] < 30 and last["at"].endswith("Z")


# --- What is read back ----------------------------------------------------------------------------------------------


@both_modes
def test_attributes_links_and_names_survive_the_commit_and_a_remount(mount, commit):
    root = mount / "step_1"
    root.mkdir(mode=0o750)
    names = ["plain", "with space", "-dash", "ünïcödé-日本語-🙂", "é" * 127 + "x", ".hidden", "a'b\"c\\d%2F", "x" * 255]
    for i, name in enumerate(names):
        trees.write(root / name, trees.content(name, 1000 * i))
        os.utime(root / name, ns=(10**18 + i, 1_234_567_890_123_456_789 + i))
    os.chmod(root / "plain", 0o640)
    os.chmod(root / "-dash", 0o4755)
    os.chmod(root / ".hidden", 0o000)
    (root / "sub").mkdir()
    os.chmod(root / "sub", 0o1777)
    os.setxattr(root / "plain", "user.note", b"a\0b\xff")
    os.setxattr(root / "plain", "user.empty", b"")
    os.setxattr(root / "sub", "user.long", b"v" * 1500)
    os.link(root / "plain", root / "sub/hard")
    os.symlink("../plain", root / "sub/relative")
    os.symlink("/nowhere/at all", root / "sub/dangling")
    os.symlink("x" * 1000, root / "sub/long")
    if os.geteuid() == 0:
        os.chown(root / "with space", 12, 34)
        os.chown(root / "sub/dangling", 56, 78, follow_symlinks=False)
    os.utime(root / "sub", ns=(1, 999_999_999_000_000_001))
    os.utime(root / "sub/relative", ns=(1, 77_000_000_007), follow_symlinks=False)
    kept = committed_and_kept(mount, commit, "step_1")
    assert kept["."]["mode"] == 0o750
    assert kept["plain"]["nlink"] == 2 and kept["plain"]["ino"] == kept["sub/hard"]["ino"]
    assert kept["plain"]["xattrs"] == {"user.note": b"a\0b\xff", "user.empty": b""}
    assert kept["x" * 255]["mtime_ns"] == 1_234_567_890_123_456_796


def test_inode_numbers_are_unique_and_do_not_change(mount, stage, commit):
    stage("1")
    stage("2.orbax-checkpoint-tmp")
    before = {n: everything(mount, n) for n in ("1", "2.orbax-checkpoint-tmp")}
    os.rename(mount / "2.orbax-checkpoint-tmp/params/layer_0", mount / "2.orbax-checkpoint-tmp/moved")
    commit(mount / "1")
    os.rename(mount / "2.orbax-checkpoint-tmp", mount / "2")
    mount.remount()
    after = {n: everything(mount, n) for n in ("1", "2")}
    inos = [e["ino"] for tree in after.values() for e in tree.values()] + [os.stat(mount.path).st_ino]
    assert len(set(inos)) == len(inos)
    assert {p: e["ino"] for p, e in after["1"].items()} == {p: e["ino"] for p, e in before["1"].items()}
    moved = {p.replace("params/layer_0", "moved"): e["ino"] for p, e in before["2.orbax-checkpoint-tmp"].items()}
    assert {p: e["ino"] for p, e in after["2"].items()} == moved
    listed = {e.name: e.inode() for e in os.scandir(mount / "1")}
    assert all(after["1"][name]["ino"] == ino for name, ino in listed.items())


def test_directory_of_two_thousand_files(mount, commit):
    folder = mount / "1000/d"
    folder.mkdir(parents=True)
    made = {f"file-{i:05}-{'n' * (i % 60)}": trees.content(i, i % 300) for i in range(2000)}
    for name, data in made.items():
        trees.write(folder / name, data)
    assert sorted(os.listdir(folder)) == sorted(made)
    commit(mount / "1000")
    assert sorted(os.listdir(folder)) == sorted(made)
    mount.remount()
    assert sorted(os.listdir(folder)) == sorted(made)
    assert trees.files(folder) == made


def test_sixty_levels_of_directories(mount, commit):
    path = mount / "1000"
    path.mkdir()
    for level in range(60):
        path = path / f"d{level}"
        path.mkdir()
        trees.write(path / "f", str(level).encode())
    committed_and_kept(mount, commit, "1000")
    assert (path / "f").read_bytes() == b"59"


def test_step_without_files(mount, commit):
    (mount / "1000").mkdir()
    commit(mount / "1000")
    mount.remount()
    assert mount.listing() == ["1000"] and mount.listing("1000") == []


@both_modes
def test_committed_file_reads_the_same_by_every_way(mount, commit):
    data = trees.content("big", (4 << 20) + 12345)
    (mount / "1000").mkdir()
    trees.write(mount / "1000/big", data)
    trees.write(mount / "1000/small", data[:5000])
    commit(mount / "1000")
    for name, expected in (("big", data), ("small", data[:5000])):
        fd = os.open(mount / "1000" / name, os.O_RDONLY)
        assert os.fstat(fd).st_size == len(expected)
        assert os.fstat(fd).st_blocks * 512 >= len(expected)
        assert b"".join(iter(lambda: os.read(fd, 70_001), b"")) == expected
        for offset in (0, 1, 4095, 4096, len(expected) - 1, len(expected), len(expected) + 5000):
            assert os.pread(fd, 9000, offset) == expected[offset:offset + 9000]
        with mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as m:
            assert m[:] == expected
        with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
            assert m[:] == expected
        assert os.lseek(fd, 0, os.SEEK_DATA) == 0
        os.close(fd)


def test_direct_io_reads_and_writes(mount, commit):
    data = trees.content("direct", 1 << 20)
    buffer = mmap.mmap(-1, 1 << 20)  # page-aligned, as O_DIRECT wants
    buffer[:] = data
    (mount / "1000").mkdir()
    fd = os.open(mount / "1000/f", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    for offset in range(0, 1 << 20, 1 << 18):
        assert os.pwritev(fd, [memoryview(buffer)[offset:offset + (1 << 18)]], offset) == 1 << 18
    os.close(fd)
    with open(mount / "1000/f", "ab") as f:
        f.write(b"an unaligned tail")
    commit(mount / "1000")
    fd = os.open(mount / "1000/f", os.O_RDONLY | os.O_DIRECT)
    back = mmap.mmap(-1, 1 << 20)
    assert os.preadv(fd, [back], 0) == 1 << 20
    assert back[:] == data
    os.close(fd)
    assert (mount / "1000/f").read_bytes() == data + b"an unaligned tail"


# --- What a staged step can do --------------------------------------------------------------------------------------


@both_modes
def test_rename_over_a_file_and_of_an_open_file(mount, commit):
    root = mount / "1000"
    (root / "d").mkdir(parents=True)
    trees.write(root / "model", b"old")
    reader = os.open(root / "model", os.O_RDONLY)
    writer = os.open(root / ".tmpX", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    os.ftruncate(writer, 6)
    os.pwrite(writer, b"new", 0)
    ino = os.fstat(writer).st_ino
    before = os.fstat(writer).st_mtime_ns
    os.rename(root / ".tmpX", root / "model")
    assert (os.fstat(writer).st_ino, os.stat(root / "model").st_ino) == (ino, ino)
    assert os.fstat(writer).st_mtime_ns == before
    os.pwrite(writer, b"est", 3)
    os.close(writer)
    assert os.read(reader, 10) == b"old"
    assert os.fstat(reader).st_nlink == 0
    os.close(reader)
    os.rename(root / "d", root / "e")
    os.rename(root / "model", root / "e/model")
    commit(root)
    assert trees.files(root) == {"e/model": b"newest"}


@both_modes
def test_unlinked_file_is_usable_while_open(mount, commit):
    (mount / "1000").mkdir()
    trees.write(mount / "1000/keep", b"k")
    fd = os.open(mount / "1000/gone", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"first")
    os.unlink(mount / "1000/gone")
    os.write(fd, b" second")
    assert os.pread(fd, 100, 0) == b"first second"
    assert os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_size == 12
    os.ftruncate(fd, 3)
    assert os.fstat(fd).st_size == 3
    os.close(fd)
    commit(mount / "1000")
    assert trees.files(mount / "1000") == {"keep": b"k"}


@both_modes
def test_reader_that_is_open_across_the_commit_reads_on(mount, stage, commit):
    made = stage("1000")
    fd = os.open(mount / "1000/params/layer_0/w0.bin", os.O_RDONLY)
    first = os.read(fd, 10)
    commit(mount / "1000")
    assert first + b"".join(iter(lambda: os.read(fd, 8192), b"")) == made["params/layer_0/w0.bin"]
    os.close(fd)


def test_shared_mapping_writes_while_staged(mount, commit):
    (mount / "1000").mkdir()
    fd = os.open(mount / "1000/m", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 100_000)
    with mmap.mmap(fd, 100_000, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as m:
        m[:] = trees.content("mapped", 100_000)
        m.flush()
        assert os.pread(fd, 100_000, 0) == trees.content("mapped", 100_000)
    os.close(fd)
    commit(mount / "1000")
    assert (mount / "1000/m").read_bytes() == trees.content("mapped", 100_000)


@both_modes
def test_sparse_files_truncate_and_fallocate(mount, commit):
    (mount / "1000").mkdir()
    fd = os.open(mount / "1000/f", os.O_CREAT | os.O_RDWR)
    fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1 << 20)
    assert os.fstat(fd).st_size == 0
    os.posix_fallocate(fd, 0, 8192)
    assert os.fstat(fd).st_size == 8192
    os.pwrite(fd, b"\xff" * 12288, 0)
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096)
    os.truncate(mount / "1000/f", 10_000)
    os.ftruncate(fd, 3_000_000)
    os.pwrite(fd, b"end", 2_999_997)
    os.close(fd)
    expected = b"\xff" * 4096 + b"\0" * 4096 + b"\xff" * 1808
    expected += b"\0" * (2_999_997 - len(expected)) + b"end"
    assert (mount / "1000/f").read_bytes() == expected
    commit(mount / "1000")
    mount.remount()
    assert (mount / "1000/f").read_bytes() == expected


def test_holes_of_a_committed_file_are_told_truly_or_not_at_all(mount, commit):
    (mount / "1000").mkdir()
    with open(mount / "1000/f", "wb") as f:
        f.write(b"a" * 4096)
        f.truncate(1 << 20)
        f.seek(1 << 20)
        f.write(b"z" * 4096)
    commit(mount / "1000")
    fd = os.open(mount / "1000/f", os.O_RDONLY)
    assert os.lseek(fd, 0, os.SEEK_DATA) == 0
    hole = os.lseek(fd, 0, os.SEEK_HOLE)
    assert hole in (4096, (1 << 20) + 4096)
    assert os.lseek(fd, hole - 1, os.SEEK_DATA) == hole - 1
    os.close(fd)


def test_copy_file_range_inside_a_step_and_out_of_a_committed_one(mount, commit):
    data = trees.content("cfr", 500_000)
    (mount / "1000").mkdir()
    trees.write(mount / "1000/a", data)

    def copy(source, target):
        a, b = os.open(source, os.O_RDONLY), os.open(target, os.O_CREAT | os.O_WRONLY)
        left = len(data)
        while left:
            done = os.copy_file_range(a, b, left)
            assert done > 0
            left -= done
        os.close(a), os.close(b)

    copy(mount / "1000/a", mount / "1000/b")
    commit(mount / "1000")
    copy(mount / "1000/a", mount / "plain-copy")
    for path in ("1000/b", "plain-copy"):
        assert (mount / path).read_bytes() == data


@both_modes
def test_locks_of_all_three_kinds_exclude_another_process(mount, agent):
    (mount / "1000").mkdir()
    path = mount / "1000/manifest.ocdbt.__lock"
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    other = agent()
    other.run("fd = os.open(path, os.O_RDWR)", path=str(path))
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
    free = struct.pack("hhqqi4x", fcntl.F_UNLCK, 0, 0, 0, 0)
    ofd_setlk = 37
    kinds = {
        "flock": (lambda: fcntl.flock(fd, fcntl.LOCK_EX), "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", lambda: fcntl.flock(fd, fcntl.LOCK_UN)),
        "posix": (lambda: fcntl.lockf(fd, fcntl.LOCK_EX), "fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", lambda: fcntl.lockf(fd, fcntl.LOCK_UN)),
        "ofd": (lambda: fcntl.fcntl(fd, ofd_setlk, whole), f"fcntl.fcntl(fd, {ofd_setlk}, {whole!r})", lambda: fcntl.fcntl(fd, ofd_setlk, free)),
    }
    for kind, (lock, other_lock, unlock) in kinds.items():
        lock()
        assert other.errno_of(other_lock) in ("EAGAIN", "EACCES"), kind
        unlock()
        assert other.errno_of(other_lock) is None, kind
        other.run("fcntl.flock(fd, fcntl.LOCK_UN); fcntl.lockf(fd, fcntl.LOCK_UN)")
        other.run("fcntl.fcntl(fd, 37, unlock)", unlock=free)
    os.close(fd)


@both_modes
def test_o_tmpfile_works_or_is_refused_in_the_same_way_each_time(mount, commit):
    (mount / "1000").mkdir()
    outcomes = {error_of(os.open, mount / "1000", os.O_TMPFILE | os.O_RDWR, 0o644) for _ in range(3)}
    assert outcomes in ({None}, {"EOPNOTSUPP"})
    if outcomes == {None}:
        fd = os.open(mount / "1000", os.O_TMPFILE | os.O_RDWR, 0o644)
        os.write(fd, b"no name yet")
        assert mount.listing("1000") == []
        os.link(f"/proc/self/fd/{fd}", mount / "1000/named", src_dir_fd=fd, follow_symlinks=True)  # without src_dir_fd Python calls link(2)
        os.close(fd)
        assert (mount / "1000/named").read_bytes() == b"no name yet"
    commit(mount / "1000")


@pytest.mark.parametrize("where", ["1000", "plain", "."])
def test_devices_fifos_sockets_and_ioctls_are_refused(mount, where):
    if where != ".":
        (mount / where).mkdir()
    path = mount / where / "node"
    for kind in (stat.S_IFIFO, stat.S_IFSOCK) + (stat.S_IFCHR, stat.S_IFBLK) * (os.geteuid() == 0):
        assert error_of(os.mknod, path, kind | 0o600, os.makedev(1, 3)) == "EPERM"
    with socket.socket(socket.AF_UNIX) as s:
        os.chdir(mount / where)
        try:
            assert error_of(s.bind, "node") == "EPERM"
        finally:
            os.chdir("/")
    assert not path.exists()
    trees.write(path, b"x")
    fd = os.open(path, os.O_RDWR)
    assert error_of(fcntl.ioctl, fd, termios.TCGETS, b"\0" * 64) == "ENOTTY"
    assert error_of(fcntl.ioctl, fd, FS_IOC_GETFLAGS, b"\0" * 8) in ("ENOTTY", "EOPNOTSUPP")
    os.close(fd)


def test_statfs_is_that_of_the_disk(mount, store):
    ours, disk = os.statvfs(mount.path), os.statvfs(store)
    assert ours.f_blocks * ours.f_frsize == disk.f_blocks * disk.f_frsize
    assert abs(ours.f_bavail * ours.f_frsize - disk.f_bavail * disk.f_frsize) < 1 << 30
    assert ours.f_namemax == 255
    assert ours.f_files > 0
    assert ours.f_flag & os.ST_NOSUID and ours.f_flag & os.ST_NODEV


class TestAllowOther:
    @pytest.fixture
    def options(self):
        return ["allow_other"]

    @needs_root
    @both_modes
    @pytest.mark.parametrize("where", ["1000", "plain"])
    def test_setuid_bit_clears_when_another_user_writes(self, mount, agent, where):
        (mount / where).mkdir()
        path = mount / where / "tool"
        change = {"write": "os.write(fd, b'y')", "pwrite": "os.pwrite(fd, b'z', 0)", "truncate": "os.ftruncate(fd, 1)"}
        other = agent(uid=65534)
        for how, code in change.items():
            trees.write(path, b"x" * 5000)
            os.chmod(path, 0o6777)
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o6777
            other.run(f"fd = os.open(path, os.O_RDWR); {code}; os.close(fd)", path=str(path))
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o777, how

    @needs_root
    @both_modes
    def test_owner_and_mode_are_the_callers_and_permissions_hold(self, mount, agent, commit, world):
        os.chmod(mount.path, 0o777)
        other = agent(uid=65534)
        other.run("os.umask(0o027); os.mkdir(p); os.mkdir(p + '/sub')", p=str(mount / "1000"))
        other.run("fd = os.open(p + '/sub/f', os.O_CREAT | os.O_WRONLY, 0o666); os.write(fd, b'theirs'); os.close(fd)")
        for path, permissions in (("1000", 0o750), ("1000/sub", 0o750), ("1000/sub/f", 0o640)):
            st = os.stat(mount / path)
            assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (65534, 65534, permissions)
        third = agent(uid=65533)
        assert third.errno_of("os.listdir(p)", p=str(mount / "1000")) == "EACCES"
        assert third.errno_of("os.open(p + '/.finalize', os.O_CREAT | os.O_WRONLY)") == "EACCES"
        other.run("fd = os.open(p + '/.finalize', os.O_CREAT | os.O_WRONLY, 0o644); os.close(fd)")
        assert mount.listing() == ["1000"]
        assert third.errno_of("os.listdir(p)", p=str(mount / "1000")) == "EACCES"
        assert other.run("open(p + '/sub/f', 'rb').read()") == b"theirs"
        os.mkdir(mount / "2000", 0o755)
        trees.write(mount / "2000/secret", b"root only", 0o600)
        commit(mount / "2000")
        mount.remount()
        assert other.errno_of("open(p, 'rb').read()", p=str(mount / "2000/secret")) == "EACCES"
        assert (mount / "2000/secret").read_bytes() == b"root only"


# --- After the commit -----------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("options", ["amend=deny"], indirect=True)
def test_committed_step_cannot_be_changed(mount, stage, commit):
    made = stage("1000")
    commit(mount / "1000")
    (mount / "plain").mkdir()
    trees.write(mount / "plain/f", b"outside")
    step, file, sub = mount / "1000", mount / "1000/config.json", mount / "1000/params"
    before = everything(mount, "1000")
    refused = {
        "open for writing": lambda: os.open(file, os.O_WRONLY),
        "open for reading and writing": lambda: os.open(file, os.O_RDWR),
        "open to append": lambda: os.open(file, os.O_WRONLY | os.O_APPEND),
        "open and truncate": lambda: os.open(file, os.O_WRONLY | os.O_TRUNC),
        "open to create": lambda: os.open(step / "new", os.O_CREAT | os.O_WRONLY),
        "create deeper": lambda: os.open(sub / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR),
        "mkdir": lambda: os.mkdir(step / "newdir"),
        "mkdir deeper": lambda: os.mkdir(sub / "newdir"),
        "symlink": lambda: os.symlink("x", step / "newlink"),
        "hard link inside": lambda: os.link(file, step / "hard"),
        "rename inside": lambda: os.rename(file, step / "other"),
        "rename out": lambda: os.rename(file, mount / "plain/stolen"),
        "rename in": lambda: os.rename(mount / "plain/f", step / "planted"),
        "truncate": lambda: os.truncate(file, 1),
        "chmod": lambda: os.chmod(file, 0o600),
        "chmod of the step": lambda: os.chmod(step, 0o700),
        "chown": lambda: os.chown(file, 1, 1),
        "utime": lambda: os.utime(file),
        "utime of a directory": lambda: os.utime(sub, ns=(1, 1)),
        "setxattr": lambda: os.setxattr(file, "user.x", b"1"),
    }
    outcome = {what: error_of(call) for what, call in refused.items()}
    assert outcome == dict.fromkeys(refused, "EROFS")
    # Across two parents it is another filesystem or a read-only one, as the kernel sees first.
    assert error_of(os.link, mount / "plain/f", step / "linked") in ("EROFS", "EXDEV")
    assert error_of(os.mkdir, step) == "EEXIST"
    assert error_of(os.mkdir, sub) == "EEXIST"
    assert error_of(os.rmdir, step) == "ENOTEMPTY"
    assert error_of(os.rmdir, sub) == "ENOTEMPTY"
    assert everything(mount, "1000") == before
    mount.remount()
    assert everything(mount, "1000") == before
    assert trees.files(step) == made
    assert (mount / "plain/f").read_bytes() == b"outside"


def test_link_of_a_committed_file_can_never_change_it(mount, stage, commit):
    """Deriving by hard links comes later; until then it may be refused, never share bytes that can be written."""
    made = stage("1000")
    commit(mount / "1000")
    (mount / "2000").mkdir()
    for target in (mount / "copy.json", mount / "2000/copy.json"):
        error = error_of(os.link, mount / "1000/config.json", target)
        assert error in (None, "EXDEV", "EPERM", "EROFS", "EOPNOTSUPP")
        if error is None:
            target.write_bytes(b"changed")
            os.chmod(target, 0o600)
    assert trees.files(mount / "1000") == made
    assert os.stat(mount / "1000/config.json").st_nlink == 1


def test_marker_content_is_kept_as_metadata(mount, stage, commit, ckptfs, store):
    stage("1000")
    commit(mount / "1000", b'{"temporary": true, "extras": {"git": "abc", "n": [1, 2.5, null]}, "metrics": {"loss": 1.25}, "world_size": 8}\n')
    for remounted in (False, True):
        info = ckptfs.json("info", store, "1000")
        assert info["extras"] == {"git": "abc", "n": [1, 2.5, None]}
        assert info["metrics"] == {"loss": 1.25}
        assert info["temporary"] is True
        assert info["state"] == "committed" and info["version"] == 1 and info["number"] == 1000
        assert info["event"] == "marker"
        assert [v["version"] for v in info["versions"]] == [1]
        mount.remount()
    stage("1001")
    commit(mount / "1001")
    info = ckptfs.json("info", store, "1001")
    assert (info["extras"], info["metrics"], info["temporary"]) == ({}, {}, False)


@pytest.mark.timeout(120)
def test_copies_out_by_cp_and_rsync_are_equal(mount, commit, scratch):
    root = mount / "step_3"
    root.mkdir()
    trees.fill(root, files=20)
    os.chmod(root / "config.json", 0o600)
    os.utime(root / "empty", ns=(5, 1_111_111_111_111_111_111))
    os.setxattr(root / "config.json", "user.k", b"v")
    os.link(root / "config.json", root / "config2.json")
    commit(root)
    mount.remount()
    want = trees.describe(root)
    subprocess.run(["cp", "-a", root, scratch / "by-cp"], check=True)
    assert trees.describe(scratch / "by-cp") == want
    subprocess.run(["rsync", "-aHX", "--modify-window=-1", f"{mount.path}/", f"{scratch}/by-rsync/"], check=True)
    assert os.listdir(scratch / "by-rsync") == ["step_3"]
    got = trees.describe(scratch / "by-rsync/step_3")
    assert got == want
    # A second pass finds nothing to do, so times and sizes do not move.
    again = subprocess.run(["rsync", "-aHXi", "--modify-window=-1", f"{mount.path}/", f"{scratch}/by-rsync/"], check=True, capture_output=True, text=True)
    assert again.stdout == ""
    subprocess.run(["cp", "-r", mount.path, scratch / "whole"], check=True)
    assert os.listdir(scratch / "whole") == ["step_3"]
    assert trees.files(scratch / "whole/step_3") == trees.files(root)


@pytest.mark.parametrize("tool", [["cp", "-a"], ["rsync", "-aHX", "--modify-window=-1"]])
def test_copies_in_by_cp_and_rsync_end_with_the_marker(mount, commit, scratch, tool):
    source = scratch / "5000"
    source.mkdir()
    made = trees.fill(source, files=20)
    os.utime(source / "params/layer_1", ns=(5, 222_222_222_222_222_222))
    subprocess.run([*tool, source, mount.path], check=True)
    assert mount.listing() == []
    subprocess.run(["touch", mount / "5000/.finalize"], check=True)
    mount.remount()
    assert mount.listing() == ["5000"] and trees.files(mount / "5000") == made
    want, got = trees.describe(source), trees.describe(mount / "5000")
    want["."].pop("mtime_ns"), got["."].pop("mtime_ns")
    assert got == want


def test_tar_of_a_committed_step_has_its_data(mount, stage, commit, scratch):
    made = stage("1000")
    commit(mount / "1000")
    subprocess.run(["tar", "-cSf", scratch / "t.tar", "-C", mount.path, "1000"], check=True)
    subprocess.run(["tar", "-xf", scratch / "t.tar", "-C", scratch], check=True)
    assert trees.files(scratch / "1000") == made


def test_verbs_see_the_step_beside_the_mount_and_without_it(mount, stage, commit, ckptfs, store):
    made = stage("1000")
    stage("2000")
    commit(mount / "1000")
    for _ in range(2):
        listed = ckptfs.json("ls", store)
        assert [(s["name"], s["number"], s["state"], s["files"], s["bytes"]) for s in listed] == [
            ("1000", 1000, "committed", len(made), sum(map(len, made.values())))]
        raw = subprocess.run([ckptfs.path, "cat", store, "1000", "params/layer_0/w0.bin"], check=True, capture_output=True).stdout
        assert raw == made["params/layer_0/w0.bin"]
        sizes = {f["path"]: f["bytes"] for f in ckptfs.json("ls", store, "1000") if f["type"] == "file"}
        assert sizes == {p: len(d) for p, d in made.items()}
        assert ckptfs.json("verify", store)["bad"] == []
        if mount.alive():
            mount.umount()


@pytest.mark.timeout(120)
def test_many_writers_at_once_in_one_step(mount, agent, commit):
    (mount / "1000").mkdir()
    writers = [agent() for _ in range(6)]
    code = """
import hashlib
for i in range(60):
    d = f"{root}/rank{rank}/{i % 5}"
    os.makedirs(d, exist_ok=True)
    fd = os.open(f"{d}/{i}.part", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    data = hashlib.sha256(f"{rank}/{i}".encode()).digest() * (i * 40 + 1)
    for k in range(0, len(data), 3000):
        os.write(fd, data[k:k + 3000])
    if i % 3 == 0:
        os.fsync(fd)
    os.rename(f"{d}/{i}.part", f"{d}/{i}")
    os.close(fd)
shared = os.open(f"{root}/shared", os.O_CREAT | os.O_WRONLY)
os.pwrite(shared, bytes([rank]) * 10000, rank * 10000)
os.close(shared)
"""
    for rank, w in enumerate(writers):
        w.start(code, root=str(mount / "1000"), rank=rank)
    for w in writers:
        w.result(timeout=60)
    commit(mount / "1000")
    mount.remount()
    files = trees.files(mount / "1000")
    assert len(files) == 6 * 60 + 1
    assert files["shared"] == b"".join(bytes([r]) * 10000 for r in range(6))
    assert all(len(d) == 32 * (int(p.split("/")[-1]) * 40 + 1) and d[:32] * (len(d) // 32) == d for p, d in files.items() if p != "shared")


def test_xattrs_list_replace_and_remove_while_staged(mount):
    (mount / "1000").mkdir()
    path = mount / "1000/f"
    trees.write(path, b"x")
    os.setxattr(path, "user.a", b"1", os.XATTR_CREATE)
    assert error_of(os.setxattr, path, "user.a", b"2", os.XATTR_CREATE) == "EEXIST"
    assert error_of(os.setxattr, path, "user.b", b"2", os.XATTR_REPLACE) == "ENODATA"
    os.setxattr(path, "user.a", b"22", os.XATTR_REPLACE)
    assert os.getxattr(path, "user.a") == b"22"
    assert [n for n in os.listxattr(path) if not n.startswith("user.ckptfs")] == ["user.a"]
    os.removexattr(path, "user.a")
    assert error_of(os.getxattr, path, "user.a") == "ENODATA"
