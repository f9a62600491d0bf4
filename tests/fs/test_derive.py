"""Checkpoints derived from committed ones: hard links of committed files in staged steps and plain folders, which share the
bytes until the first change of either."""

import contextlib
import ctypes
import mmap
import os
import shutil
import stat
import subprocess
import threading

import pytest

from support import trees
from support.fixtures import all_modes, both_modes, needs_root
from support.mounting import LoopDisk, Mount, wait_until

pytestmark = pytest.mark.timeout(60)

SIZE = 300_000  # above what is given to the kernel whole
PLACES = {"staged step": "2000", "plain folder": "infer"}
LIBC = ctypes.CDLL(None, use_errno=True)


def place_of(mount, place):
    folder = mount / PLACES[place]
    folder.mkdir()
    return folder


@pytest.fixture(params=PLACES)
def place(request, mount, base):
    """An empty directory to derive into."""
    return place_of(mount, request.param)


@pytest.fixture
def base(mount, commit):
    """A committed step 1000, of some shapes of files: (path, {path in it: bytes})."""
    folder = mount / "1000"
    folder.mkdir()
    made = trees.fill(folder, size=SIZE, files=3)
    os.chmod(folder / "config.json", 0o640)
    for name in ("config.json", "params/layer_0/w0.bin"):
        os.setxattr(folder / name, "user.origin", b"a run")
    os.utime(folder / "params/layer_0/w0.bin", ns=(1, 1_600_000_000_123_456_789))
    commit(folder)
    return folder, made


def stored(store, data):
    """The raw files under sessions/ that have these bytes: {inode number: links}."""
    return {p.stat().st_ino: p.stat().st_nlink for p in store.glob("sessions/**/*") if p.is_file() and not p.is_symlink() and p.read_bytes() == data}


def preallocate(fd, offset, length):
    os.posix_fallocate(fd, offset, length)


def write_mapped(path):
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[5:8] = b"NEW"
        m.flush()


def open_and(flags, *calls):
    def change(path):
        fd = os.open(path, flags)
        try:
            for call in calls:
                call(fd)
        finally:
            os.close(fd)
    return change


def copy_into(path):
    other = path.parent / "other"
    trees.write(other, b"from elsewhere")
    with open(other, "rb") as src, open(path, "r+b") as dst:
        assert os.copy_file_range(src.fileno(), dst.fileno(), 14, 0, 100) == 14
    os.unlink(other)


def replace(path):
    trees.write(path.parent / "new", b"NEW")
    os.rename(path.parent / "new", path)


# Each changes the file at a path: (change, what it does to the bytes; None: nothing).
CHANGES = {
    "write": (open_and(os.O_WRONLY, lambda fd: os.pwrite(fd, b"NEW", 5)), lambda d: d[:5] + b"NEW" + d[8:]),
    "read and write": (open_and(os.O_RDWR, lambda fd: os.read(fd, 5), lambda fd: os.write(fd, b"NEW")), lambda d: d[:5] + b"NEW" + d[8:]),
    "append": (open_and(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"NEW")), lambda d: d + b"NEW"),
    "O_TRUNC": (open_and(os.O_WRONLY | os.O_TRUNC, lambda fd: os.write(fd, b"NEW")), lambda d: b"NEW"),
    "O_TRUNC alone": (open_and(os.O_WRONLY | os.O_TRUNC), lambda d: b""),
    "O_CREAT": (open_and(os.O_WRONLY | os.O_CREAT, lambda fd: os.write(fd, b"NEW")), lambda d: b"NEW" + d[3:]),
    "truncate": (lambda path: os.truncate(path, 7), lambda d: d[:7]),
    "truncate to nothing": (lambda path: os.truncate(path, 0), lambda d: b""),
    "truncate up": (lambda path: os.truncate(path, 400_000), lambda d: d + bytes(400_000 - len(d))),
    "ftruncate": (open_and(os.O_RDWR, lambda fd: os.ftruncate(fd, 7)), lambda d: d[:7]),
    "fallocate": (open_and(os.O_RDWR, lambda fd: preallocate(fd, 0, 400_000)), lambda d: d + bytes(400_000 - len(d))),
    "mmap": (write_mapped, lambda d: d[:5] + b"NEW" + d[8:]),
    "copy_file_range": (copy_into, lambda d: d[:100].ljust(100, b"\0") + b"from elsewhere" + d[114:]),
    "rename over": (replace, lambda d: b"NEW"),
    "chmod": (lambda path: os.chmod(path, 0o600), None),
    "fchmod": (open_and(os.O_RDONLY, lambda fd: os.fchmod(fd, 0o600)), None),
    "utime": (lambda path: os.utime(path, ns=(7, 7)), None),
    "futimens": (open_and(os.O_RDONLY, lambda fd: os.utime(fd, ns=(7, 7))), None),
    "setxattr": (lambda path: os.setxattr(path, "user.mine", b"1"), None),
    "removexattr": (lambda path: os.removexattr(path, "user.origin"), None),
    "touch": (lambda path: subprocess.run(["touch", path], check=True), None),
}
if os.geteuid() == 0:
    CHANGES["chown"] = (lambda path: os.chown(path, 12, 34), None)


# --- What a link is -------------------------------------------------------------------------------------------------------


@all_modes
@pytest.mark.parametrize("remounted", [False, True], ids=["just committed", "read from the store"])
@pytest.mark.parametrize("where", PLACES)
def test_link_of_a_committed_file_is_a_file_of_its_own_at_no_cost(mount, store, base, where, remounted):
    step, made = base
    if remounted:
        mount.remount()
    place = place_of(mount, where)
    numbers = {os.lstat(p).st_ino for p in step.rglob("*")}
    for name in made:
        os.link(step / name, place / os.path.basename(name))
        mine, its = os.lstat(place / os.path.basename(name)), os.lstat(step / name)
        assert mine.st_nlink == its.st_nlink == 1 and mine.st_ino not in numbers
        numbers.add(mine.st_ino)
        for field in ("st_size", "st_mode", "st_uid", "st_gid", "st_mtime_ns"):
            assert getattr(mine, field) == getattr(its, field), field
        assert os.lstat(place / os.path.basename(name)).st_ino == mine.st_ino, "it keeps its number"
    assert trees.files(place) == {os.path.basename(name): data for name, data in made.items()}
    assert trees.files(step) == made
    assert os.getxattr(place / "config.json", "user.origin") == b"a run"
    assert os.listxattr(place / "config.json") == ["user.origin"], "marks of ours are nobody's business"
    big = made["params/layer_0/w0.bin"]
    raw = [p for p in [*store.glob("sessions/**/*"), *store.glob("tree/**/*")] if p.is_file() and not p.is_symlink() and p.stat().st_size == len(big)]
    assert len(raw) == 2 and raw[0].samefile(raw[1])


def test_link_over_what_is_there_and_to_where_nothing_may_be_made_is_refused(mount, base):
    step, made = base
    (mount / "infer").mkdir()
    trees.write(mount / "infer/w", b"mine")
    for target in ("infer/w", "1000/config.json"):
        with pytest.raises(FileExistsError):
            os.link(step / "empty", mount / target)
    with pytest.raises(OSError):
        os.link(step / "empty", mount / ".ckptfs/empty")
    with pytest.raises(OSError):
        os.link(step / "params", mount / "infer/params")
    assert (mount / "infer/w").read_bytes() == b"mine" and trees.files(step) == made


@both_modes
def test_symlinks_are_linked_too(mount, base, place):
    step, _ = base
    os.link(step / "first", place / "first", follow_symlinks=False)
    assert os.readlink(place / "first") == "params/layer_0"
    os.unlink(place / "first")
    assert os.readlink(step / "first") == "params/layer_0"


# --- Changes --------------------------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("source", ["params/layer_0/w0.bin", "config.json"], ids=["large", "small"])
def test_change_of_a_link_is_a_change_of_it_alone(mount, base, change, where, source):
    step, made = base
    act, effect = CHANGES[change]
    place = place_of(mount, where)
    os.link(step / source, place / "w")
    os.link(step / source, place / "v")
    data = made[source]
    before, untouched = trees.describe(step, inodes=True), os.lstat(place / "v")
    with open(place / "w", "rb") as reader, open(step / source, "rb") as its:
        act(place / "w")
        assert reader.read() == data, "who had it open before reads on"
        assert its.read() == data
    assert (place / "w").read_bytes() == (effect(data) if effect else data)
    assert (place / "v").read_bytes() == data and trees.files(step) == made
    assert trees.describe(step, inodes=True) == before
    now = os.lstat(place / "v")
    assert (now.st_ino, now.st_mode, now.st_mtime_ns, now.st_uid) == (untouched.st_ino, untouched.st_mode, untouched.st_mtime_ns, untouched.st_uid)
    st = os.lstat(place / "w")
    if change in ("chmod", "fchmod"):
        assert stat.S_IMODE(st.st_mode) == 0o600
    if change in ("utime", "futimens"):
        assert st.st_mtime_ns == 7
    if change == "chown":
        assert (st.st_uid, st.st_gid) == (12, 34)
    if change == "setxattr":
        assert os.getxattr(place / "w", "user.mine") == b"1"
    if change == "removexattr":
        assert os.listxattr(place / "w") == []
    if not effect and change not in ("utime", "futimens", "touch"):
        assert st.st_mtime_ns == untouched.st_mtime_ns
    assert st.st_nlink == 1
    mount.remount()
    assert trees.describe(step, inodes=True) == before
    if where == "plain folder":
        assert (place / "w").read_bytes() == (effect(data) if effect else data) and (place / "v").read_bytes() == data


@both_modes
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", [*PLACES, "reopened step"])
def test_who_comes_after_a_change_finds_the_changed_file_while_others_have_the_first_open(mount, base, change, where):
    step, made = base
    source = "params/layer_0/w0.bin"
    act, effect = CHANGES[change]
    data, path = made[source], step / source
    if where == "reopened step":
        trees.write(step / "config.json", b"{}")
    else:
        path = place_of(mount, where) / "w"
        os.link(step / source, path)
    with contextlib.ExitStack() as readers:
        before = [readers.enter_context(open(path, "rb")) for _ in range(2)]
        assert before[0].read(7) == data[:7] and os.lstat(path).st_size == len(data)
        act(path)
        assert path.read_bytes() == (effect(data) if effect else data)
        patience = 10 if where == "reopened step" else 0  # there the kernel is told behind
        wait_until(lambda: os.lstat(path).st_size == (len(effect(data)) if effect else len(data)), patience, "the new size")
        if change in ("chmod", "fchmod"):
            wait_until(lambda: stat.S_IMODE(os.lstat(path).st_mode) == 0o600, patience, "the new mode")
        assert before[0].read() == data[7:] and before[1].read() == data


@both_modes
def test_removing_and_renaming_links_touches_nothing_else(mount, base, place):
    step, made = base
    data = made["params/layer_0/w0.bin"]
    for name in ("a", "b", "c"):
        os.link(step / "params/layer_0/w0.bin", place / name)
    with open(place / "a", "rb") as reader:
        os.unlink(place / "a")
        assert reader.read() == data
    (place / "sub").mkdir()
    os.rename(place / "b", place / "sub/d")
    os.rename(place / "c", place / "sub/d")
    assert os.listdir(place) == ["sub"] and trees.files(place) == {"sub/d": data}
    os.rename(place / "sub", place / "sub2")
    assert trees.files(place) == {"sub2/d": data}
    with open(place / "sub2/d", "ab") as f:
        f.write(b"more")
    assert trees.files(place) == {"sub2/d": data + b"more"} and trees.files(step) == made


@both_modes
def test_link_that_moves_to_another_tree_is_still_shared(mount, base):
    step, made = base
    data = made["params/layer_0/w0.bin"]
    for folder in ("2000", "3000", "infer"):
        (mount / folder).mkdir()
    at = mount / "2000/w"
    os.link(step / "params/layer_0/w0.bin", at)
    for to in ("3000/w", "infer/w", "2000/w"):
        os.rename(at, mount / to)
        at = mount / to
        assert at.read_bytes() == data and os.lstat(at).st_nlink == 1
    with open(at, "r+b") as f:
        f.write(b"NEW")
    assert at.read_bytes() == b"NEW" + data[3:] and trees.files(step) == made


@both_modes
def test_first_writers_that_come_at_once_all_get_through(mount, base, place):
    """As on a plain file: each writes a part of its own, and none is lost."""
    step, made = base
    source = "params/layer_0/w0.bin"
    for turn in range(10):
        path, data = place / f"w{turn}", bytearray(made[source])
        os.link(step / source, path)
        start, failures = threading.Barrier(6), []

        def write(n, path=path, start=start, failures=failures):
            start.wait()
            try:
                fd = os.open(path, os.O_WRONLY)
                os.pwrite(fd, b"%d" % n * 1000, n * 1000)
                os.close(fd)
            except OSError as e:
                failures.append(e)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for n in range(6):
            data[n * 1000:n * 1000 + 1000] = b"%d" % n * 1000
        assert failures == [] and path.read_bytes() == data
    assert trees.files(step) == made


def test_file_that_replaces_a_link_while_it_is_copied_stays(world, store, commit):
    """The copy is of what had the name when the change began, and must not take the name from what has it since."""
    m = Mount.new(world, store)
    (m / "1000").mkdir()
    trees.write(m / "1000/w", b"0" * (64 << 20))
    commit(m / "1000")
    (m / "infer").mkdir()
    for turn in range(6):
        path = m / f"infer/w{turn}"
        os.link(m / "1000/w", path)
        trees.write(m / "infer/new", b"NEW")
        writer = threading.Thread(target=open_quietly, args=(path,))
        writer.start()
        os.rename(m / "infer/new", path)
        writer.join()
        assert path.read_bytes()[:3] == b"NEW" and path.stat().st_size <= 64, "the newer file was lost"
    for turn in range(6):
        path = m / f"infer/u{turn}"
        os.link(m / "1000/w", path)
        writer = threading.Thread(target=open_quietly, args=(path,))
        writer.start()
        os.unlink(path)
        writer.join()
        assert not path.exists(), "what was removed came back"


def open_quietly(path):
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY))


@pytest.mark.parametrize("mode_bits", [0o444, 0o000])
@pytest.mark.parametrize("user", ["root", pytest.param("other", marks=needs_root)])
def test_files_that_may_not_be_written_or_read_can_be_derived(world, store, commit, agent, mode_bits, user):
    m = Mount.new(world, store, options=["allow_other"] if os.geteuid() == 0 else [])
    if os.geteuid() == 0:
        os.chmod(m.path, 0o777)
    a = agent(uid=4321) if user == "other" else agent()
    a.run("""
os.mkdir(root + '/1000')
fd = os.open(root + '/1000/w', os.O_WRONLY | os.O_CREAT, mode)
os.write(fd, b'bytes')
os.close(fd)
os.close(os.open(root + '/1000/.finalize', os.O_WRONLY | os.O_CREAT, 0o644))
os.mkdir(root + '/infer')
os.link(root + '/1000/w', root + '/infer/w')
os.chmod(root + '/infer/w', 0o644)
fd = os.open(root + '/infer/w', os.O_WRONLY | os.O_APPEND)
os.write(fd, b' and more')
os.close(fd)
""", root=str(m.path), mode=mode_bits)
    assert a.run("open(root + '/infer/w').read()") == "bytes and more"
    assert a.run("os.lstat(root + '/1000/w').st_mode & 0o7777") == mode_bits
    assert a.run("os.lstat(root + '/1000/w').st_size") == 5


@needs_root
def test_another_users_file_is_not_his_by_a_link(world, store, commit, agent):
    m = Mount.new(world, store, options=["allow_other"])
    os.chmod(m.path, 0o777)
    (m / "1000").mkdir()
    trees.write(m / "1000/w", b"root's", 0o644)
    commit(m / "1000")
    a = agent(uid=4321)
    a.run("os.mkdir(root + '/infer')", root=str(m.path))
    with contextlib.suppress(OSError):  # the kernel may refuse links of what one may not write
        a.run("os.link(root + '/1000/w', root + '/infer/w')")
        assert a.errno_of("os.open(root + '/infer/w', os.O_WRONLY)") == "EACCES"
        assert a.errno_of("os.chmod(root + '/infer/w', 0o666)") == "EPERM"
    assert (m / "1000/w").read_bytes() == b"root's"


# --- Whole steps ----------------------------------------------------------------------------------------------------------


def linked_copy(source, target):
    subprocess.run(["cp", "-al", source, target], check=True)


@all_modes
@pytest.mark.parametrize("remounted", [False, True], ids=["just committed", "read from the store"])
def test_step_is_derived_without_a_byte_having_moved(mount, store, base, commit, ckptfs, remounted):
    step, made = base
    if remounted:
        mount.remount()
    linked_copy(step, mount / "2000")
    assert mount.listing() == ["1000"]
    staged = {p: os.lstat(mount / "2000" / p).st_ino for p in made}
    commit(mount / "2000")
    for _ in range(2):
        assert mount.listing() == ["1000", "2000"]
        assert trees.files(mount / "2000") == trees.files(step) == made
        mine, its = trees.describe(mount / "2000", inodes=True), trees.describe(step, inodes=True)
        assert not {e["ino"] for e in mine.values()} & {e["ino"] for e in its.values()}
        assert {p: e["ino"] for p, e in mine.items() if p in staged} == staged, "the commit changes no number"
        for entries in (mine, its):
            for e in entries.values():
                del e["ino"]
        del mine["."]["mtime_ns"], its["."]["mtime_ns"]
        assert mine == its
        mount.remount()
    for data in made.values():
        if data:
            assert list(stored(store, data).values()) == [2]
    assert ckptfs.json("verify", store)["bad"] == []


@both_modes
def test_derived_step_with_changes_has_them_and_the_first_has_not(mount, base, commit, ckptfs, store):
    step, made = base
    linked_copy(step, mount / "2000")
    trees.write(mount / "2000/config.json", b"{}")
    os.truncate(mount / "2000/params/layer_1/w1.bin", 10)
    os.unlink(mount / "2000/empty")
    trees.write(mount / "2000/new", b"new")
    commit(mount / "2000")
    want = dict(made, **{"config.json": b"{}", "params/layer_1/w1.bin": made["params/layer_1/w1.bin"][:10], "new": b"new"})
    del want["empty"]
    for _ in range(2):
        assert trees.files(mount / "2000") == want and trees.files(step) == made
        mount.remount()
    assert ckptfs.json("verify", store)["bad"] == []


def test_hard_links_in_a_step_can_be_derived(mount, commit, ckptfs, store):
    (mount / "1000").mkdir()
    trees.write(mount / "1000/a", b"one file")
    os.link(mount / "1000/a", mount / "1000/b")
    commit(mount / "1000")
    assert os.lstat(mount / "1000/a").st_nlink == 2
    linked_copy(mount / "1000", mount / "2000")
    trees.write(mount / "2000/a", b"changed")
    assert (mount / "1000/a").read_bytes() == (mount / "1000/b").read_bytes() == b"one file"
    commit(mount / "2000")
    for _ in range(2):
        assert (mount / "2000/a").read_bytes() == b"changed"
        assert os.lstat(mount / "1000/a").st_ino == os.lstat(mount / "1000/b").st_ino and os.lstat(mount / "1000/a").st_nlink == 2
        assert (mount / "1000/a").read_bytes() == (mount / "1000/b").read_bytes() == b"one file"
        mount.remount()
    assert ckptfs.json("verify", store)["bad"] == []


def test_link_of_a_link_is_one_more_of_its_own(mount, base, place):
    step, made = base
    os.link(step / "config.json", place / "a")
    os.link(place / "a", place / "b")
    assert os.lstat(place / "a").st_ino != os.lstat(place / "b").st_ino and os.lstat(place / "a").st_nlink == os.lstat(place / "b").st_nlink == 1
    with open(place / "a", "ab") as f:
        f.write(b"more")
    assert trees.files(place) == {"a": made["config.json"] + b"more", "b": made["config.json"]} and trees.files(step) == made
    os.link(place / "a", place / "c")  # it is an ordinary file now
    assert os.lstat(place / "c").st_nlink == 2
    with open(place / "c", "ab") as f:
        f.write(b" still")
    assert (place / "a").read_bytes() == made["config.json"] + b"more still"


def test_derived_step_keeps_its_files_when_the_first_is_gone_for_good(mount, base, commit, ckptfs, store):
    step, made = base
    linked_copy(step, mount / "2000")
    (mount / "infer").mkdir()
    os.link(step / "params/layer_0/w0.bin", mount / "infer/w")
    commit(mount / "2000")
    ckptfs("rm", "--now", "--yes", store, "1000")
    wait_until(lambda: os.listdir(store / "trash") == [], what="the end of its files")
    for _ in range(2):
        assert mount.listing() == ["2000", "infer"] and trees.files(mount / "2000") == made
        assert (mount / "infer/w").read_bytes() == made["params/layer_0/w0.bin"]
        mount.remount()
    with open(mount / "infer/w", "ab") as f:
        f.write(b"more")
    assert trees.files(mount / "2000") == made
    assert ckptfs.json("verify", store)["bad"] == []


@both_modes
def test_reader_of_a_step_that_is_gone_for_good_is_not_disturbed_by_a_change_of_its_last_link(mount, base, ckptfs, store):
    step, made = base
    data = made["params/layer_0/w0.bin"]
    (mount / "infer").mkdir()
    os.link(step / "params/layer_0/w0.bin", mount / "infer/w")
    with open(step / "params/layer_0/w0.bin", "rb") as reader, open(mount / "infer/w", "rb") as other:
        ckptfs("rm", "--now", "--yes", store, "1000")
        wait_until(lambda: os.listdir(store / "trash") == [], what="the end of its files")
        with open(mount / "infer/w", "r+b") as f:
            f.write(b"NEW")
        assert reader.read() == data and other.read() == data
    assert (mount / "infer/w").read_bytes() == b"NEW" + data[3:]


def test_derived_from_derived(mount, base, commit, ckptfs, store):
    step, made = base
    want = {"1000": dict(made)}
    for n in range(2000, 6000, 1000):
        linked_copy(mount / str(n - 1000), mount / str(n))
        want[str(n)] = dict(want[str(n - 1000)], **{"config.json": b"%d" % n})
        trees.write(mount / str(n) / "config.json", b"%d" % n)
        commit(mount / str(n))
    assert list(stored(store, made["params/layer_0/w0.bin"]).values()) == [5]
    for n in ("1000", "3000"):
        ckptfs("rm", "--now", "--yes", store, n)
        del want[n]
    for _ in range(2):
        assert mount.listing() == sorted(want)
        for name, files in want.items():
            assert trees.files(mount / name) == files
        mount.remount()
    assert ckptfs.json("verify", store)["bad"] == []


def test_step_derived_into_a_plain_folder_and_completed_there(mount, base, commit, ckptfs, store):
    step, made = base
    linked_copy(step / "params", mount / "infer")
    trees.write(mount / "infer/layer_0/w0.bin", b"tuned")
    want = {p.removeprefix("params/"): data for p, data in made.items() if p.startswith("params/")}
    want["layer_0/w0.bin"] = b"tuned"
    mount.remount()
    assert trees.files(mount / "infer") == want and trees.files(step) == made
    mount.kill9()
    mount.start()
    assert trees.files(mount / "infer") == want and trees.files(step) == made


@both_modes
def test_interrupted_derived_session_goes_on_and_its_changes_touch_nothing_else(mount, base, commit, ckptfs, store):
    step, made = base
    linked_copy(step, mount / "2000")
    trees.write(mount / "2000/config.json", b"before the crash")
    mount.kill9()
    mount.start()
    assert mount.listing() == ["1000"] and trees.files(step) == made
    assert trees.files(mount / "2000") == dict(made, **{"config.json": b"before the crash"})
    with open(mount / "2000/params/layer_0/w0.bin", "r+b") as f:
        f.write(b"after it")
    os.chmod(mount / "2000/params/layer_1/w1.bin", 0o600)
    assert trees.files(step) == made and stat.S_IMODE(os.lstat(step / "params/layer_1/w1.bin").st_mode) == 0o644
    commit(mount / "2000")
    want = dict(made, **{"config.json": b"before the crash"})
    want["params/layer_0/w0.bin"] = b"after it" + made["params/layer_0/w0.bin"][8:]
    for _ in range(2):
        assert trees.files(mount / "2000") == want and trees.files(step) == made
        mount.remount()
    assert ckptfs.json("verify", store)["bad"] == []


@both_modes
def test_bytes_go_from_a_committed_file_to_a_staged_one_without_a_stop(mount, base, place):
    step, made = base
    data = made["params/layer_0/w0.bin"]
    with open(step / "params/layer_0/w0.bin", "rb") as src, open(place / "w", "w+b") as dst:
        done = 0
        while done < len(data):
            done += os.copy_file_range(src.fileno(), dst.fileno(), len(data) - done)
        dst.seek(0)
        assert dst.read() == data
    assert trees.files(step) == made


def test_shutil_copies_and_links(mount, base, commit):
    step, made = base
    shutil.copytree(step, mount / "2000", symlinks=True, copy_function=os.link)
    commit(mount / "2000")
    shutil.copytree(step, mount / "3000", symlinks=True)
    commit(mount / "3000")
    assert trees.files(mount / "2000") == trees.files(mount / "3000") == made


@needs_root
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["ext4", "xfs", "xfs without reflink", "btrfs"])
def test_derives_on_every_disk(world, commit, ckptfs, kind):
    mkfs = {"ext4": None, "xfs": ["mkfs.xfs", "-q"], "xfs without reflink": ["mkfs.xfs", "-q", "-m", "reflink=0"], "btrfs": ["mkfs.btrfs", "-q"]}[kind]
    if mkfs and not shutil.which(mkfs[0]):
        pytest.skip(f"no {mkfs[0]} on this machine")
    disk = LoopDisk(world, 400, mkfs=mkfs) if mkfs else LoopDisk(world, 400)
    store = disk.path / "store"
    m = Mount.new(world, store)
    (m / "1000").mkdir()
    made = trees.fill(m / "1000", size=SIZE, files=3)
    big = made["big"] = trees.content("big", 100 << 20)
    trees.write(m / "1000/big", big)
    commit(m / "1000")
    for n in range(4):
        linked_copy(m / "1000", m / f"{2000 + n}")
    with open(m / "2000/big", "r+b") as f:
        f.write(b"NEW")
    os.chmod(m / "2001/params/layer_0/w0.bin", 0o600)
    for n in range(4):
        commit(m / f"{2000 + n}")
    for _ in range(2):
        for name in ("1000", "2001", "2002", "2003"):
            assert trees.files(m / name) == made
        assert trees.files(m / "2000") == dict(made, big=b"NEW" + big[3:])
        m.remount()
    trees.write(m / "2003/config.json", b"again")
    commit(m / "2003")
    assert trees.files(m / "2003") == dict(made, **{"config.json": b"again"}) and trees.files(m / "1000") == made
    m.umount()
    assert ckptfs.json("verify", store)["bad"] == []
