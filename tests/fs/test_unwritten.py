"""Files of committed steps that are opened for writing: the open changes nothing, the first write reopens the step."""

import contextlib
import errno
import mmap
import os
import shutil
import sqlite3
import subprocess
import threading

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import Mount, wait_until
from support.preload import preload

pytestmark = [pytest.mark.timeout(60), both_modes]

quiet = pytest.mark.parametrize("options", ["commit_quiet=1s"], indirect=True)
BIG = b"0123456789abcdef" * (20 << 10)
FILES = {"config.json": b'{"a": 1}', "model.bin": BIG}
MODES = {"r+": os.O_RDWR, "a": os.O_WRONLY | os.O_APPEND, "touch": os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK}


@pytest.fixture
def kind(request):
    return getattr(request, "param", "raw")


# What has several names, or is in packs, is copied whenever the step is reopened, whoever changes it.
kinds = pytest.mark.parametrize("kind", ["raw", "linked", "packed", "linked and packed"], indirect=True)


@pytest.fixture
def step(mount, store, commit, ckptfs, kind):
    (mount / "1000").mkdir()
    for name, data in FILES.items():
        trees.write(mount / "1000" / name, data)
        if "linked" in kind:
            os.link(mount / "1000" / name, mount / "1000" / (name + ".2"))
    commit(mount / "1000")
    if "packed" in kind:
        ckptfs("seal", store, "1000")
        ckptfs("cool", store, "1000")
        mount.remount()
    return mount / "1000"


def versions(ckptfs, store):
    return [v["event"] for v in ckptfs.json("info", store, "1000")["versions"]]


def is_listed(mount):
    return "1000" in mount.listing()


def content(path):
    with open(path, "rb") as f:
        return f.read()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", MODES)
def test_an_open_that_writes_nothing_changes_nothing(mount, store, step, ckptfs, name, how):
    for _ in range(2):
        fd = os.open(step / name, MODES[how])
        assert is_listed(mount)
        assert os.readlink(mount / "latest") == "1000"
        assert os.fstat(fd).st_size == len(FILES[name])
        if how == "r+":
            assert os.pread(fd, 1 << 20, 0) == FILES[name]
        assert content(step / name) == FILES[name]
        os.close(fd)
    assert is_listed(mount)
    assert len(versions(ckptfs, store)) == 1


def test_touch_sets_the_time_and_leaves_the_step_listed(mount, step):
    subprocess.run(["touch", "-d", "2020-01-02", step / "model.bin"], check=True)
    subprocess.run(["touch", step / "config.json"], check=True)
    assert is_listed(mount)
    assert os.stat(step / "model.bin").st_mtime == pytest.approx(1577923200, abs=86400)
    assert content(step / "model.bin") == BIG


def change_write(fd, path):
    os.pwrite(fd, b"NEW", 7)
    return lambda old: old[:7] + b"NEW" + old[10:]


def change_truncate(fd, path):
    os.ftruncate(fd, 5)
    return lambda old: old[:5]


def change_space(fd, path):
    os.posix_fallocate(fd, 0, (1 << 20) + 1)
    return lambda old: old + bytes((1 << 20) + 1 - len(old))


def change_map(fd, path):
    with mmap.mmap(fd, 0) as m:
        m[1:4] = b"MAP"
        m.flush()
    return lambda old: old[:1] + b"MAP" + old[4:]


CHANGES = [change_write, change_truncate, change_space, change_map]


@quiet
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", CHANGES)
def test_the_first_change_reopens_the_step(mount, store, step, ckptfs, name, change):
    fd = os.open(step / name, os.O_RDWR)
    assert is_listed(mount)
    expected = change(fd, step / name)(FILES[name])
    assert not is_listed(mount)
    assert content(step / name) == expected
    assert os.fstat(fd).st_size == len(expected)
    assert os.pread(fd, 2 << 20, 0) == expected
    os.pwrite(fd, b"!", 0)
    os.fsync(fd)
    os.close(fd)
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(step / name) == b"!" + expected[1:]
    assert len(versions(ckptfs, store)) == 2
    ckptfs("verify", store, "--read-data")
    ckptfs("rm", store, "1000")
    ckptfs("undelete", store, next(r["name"] for r in ckptfs.json("ls", store, "--trash") if r["name"] != "1000"))
    assert content(step / name) == FILES[name]


@quiet
@kinds
def test_all_who_have_it_open_have_the_change(mount, step, agent):
    reads, other, late = (os.open(step / "model.bin", flags) for flags in (os.O_RDWR, os.O_RDWR, os.O_WRONLY))
    a = agent()
    a.run("fd = os.open(path, os.O_RDONLY)", path=str(step / "model.bin"))
    os.pwrite(other, b"ONE", 0)
    os.pwrite(late, b"TWO", 3)
    assert os.pread(reads, 8, 0) == b"ONETWO67"
    assert content(step / "model.bin")[:8] == b"ONETWO67"
    for fd in (reads, other, late):
        os.close(fd)
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(step / "model.bin") == b"ONETWO" + BIG[6:]


@quiet
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("listed_first", [False, True])
@kinds
def test_who_opens_it_for_reading_meanwhile_sees_what_is_written_then(mount, step, agent, name, listed_first):
    writer = os.open(step / name, os.O_RDWR)
    if listed_first:  # the kernel knows the file itself by the name then
        [e.stat() for e in os.scandir(step)]
    a = agent()
    a.run("import mmap; fd = os.open(path, os.O_RDONLY); m = mmap.mmap(fd, 0, prot=mmap.PROT_READ); m[:8]", path=str(step / name))
    with open(step / name, "rb", buffering=0) as reader:
        assert reader.read(2) == FILES[name][:2]
        os.pwrite(writer, b"NEW", 2)
        assert reader.read(3) == b"NEW"
    assert a.run("os.pread(fd, 3, 2), m[2:5]") == (b"NEW", b"NEW")
    with open(step / name, "r+b", buffering=0) as other, mmap.mmap(other.fileno(), 0) as m:
        m[0:2] = b"MM"
        assert os.pread(writer, 5, 0) == b"MMNEW" == a.run("m[:5]")
        os.pwrite(writer, b"!", 0)
        assert m[:5] == b"!MNEW"
        assert os.fstat(writer).st_ino == os.fstat(other.fileno()).st_ino == os.stat(step / name).st_ino
    os.close(writer)
    a.kill()


@quiet
@pytest.mark.parametrize("name", FILES)
@kinds
def test_moved_out_it_is_written_where_it_is(mount, store, step, ckptfs, name):
    fd = os.open(step / name, os.O_RDWR)
    os.rename(step / name, mount / "out.bin")
    os.pwrite(fd, b"NEW", 0)
    new = b"NEW" + FILES[name][3:]
    assert content(mount / "out.bin") == new
    os.pwrite(fd, b"more", 3)
    os.fsync(fd)
    os.close(fd)
    assert content(mount / "out.bin") == b"NEWmore" + FILES[name][7:]
    wait_until(lambda: is_listed(mount), timeout=20)
    assert not (step / name).exists()
    ckptfs("verify", store, "--read-data")


@quiet
def test_who_truncates_it_at_the_open_while_others_have_it_open_unwritten(mount, step):
    fd = os.open(step / "model.bin", os.O_RDWR)
    other = os.open(step / "model.bin", os.O_WRONLY | os.O_TRUNC)
    assert os.fstat(fd).st_size == 0
    os.pwrite(other, b"0123", 0)
    os.pwrite(fd, b"4", 4)
    assert os.pread(fd, 100, 0) == b"01234"
    os.close(fd)
    os.close(other)
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(step / "model.bin") == b"01234"


def test_a_file_that_is_open_is_reopened_by_its_descriptor(mount, step):
    """By /proc no name is looked up: what is told to look again comes back with the same file."""
    reader = os.open(step / "model.bin", os.O_RDONLY)
    writer = os.open(step / "model.bin", os.O_RDWR)
    again = os.open(f"/proc/self/fd/{reader}", os.O_RDONLY)
    assert os.pread(again, 16, 0) == BIG[:16]
    for fd in (reader, writer, again):
        os.close(fd)
    assert is_listed(mount)


@quiet
def test_who_has_it_open_unwritten_holds_up_no_commit_of_others_changes(mount, step):
    fd = os.open(step / "model.bin", os.O_RDWR)
    trees.write(step / "config.json", b"{}")
    os.close(fd)
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(step / "config.json") == b"{}"


@quiet
@kinds
def test_a_write_after_anothers_commit_reopens_it_again(mount, store, step, ckptfs):
    fd = os.open(step / "model.bin", os.O_RDWR)
    trees.write(step / "config.json", b"{}")
    wait_until(lambda: is_listed(mount), timeout=20)
    os.pwrite(fd, b"NEW", 0)
    assert not is_listed(mount)
    os.close(fd)
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(step / "model.bin") == b"NEW" + BIG[3:]
    assert content(step / "config.json") == b"{}"
    assert versions(ckptfs, store).count("quiet") == 2


@pytest.mark.parametrize("within", [False, True])
def test_a_reader_of_a_small_file_reads_on_when_another_takes_its_name(mount, step, within):
    """Nothing of it may be in the page cache, and the daemon may not have had it open yet."""
    new = (step if within else mount) / "new.json"
    trees.write(new, b"new")
    fd = os.open(step / "config.json", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.replace(new, step / "config.json")
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.pread(fd, 100, 0) == FILES["config.json"]
    os.close(fd)
    assert content(step / "config.json") == b"new"


@pytest.mark.parametrize("how", ["removed", "moved out", "moved beside"])
@pytest.mark.parametrize("anew", [False, True], ids=["gone", "made again"])
@kinds
def test_a_reader_of_a_small_file_reads_on_when_it_is_gone(mount, step, kind, how, anew):
    path = step / "config.json"
    fd = os.open(path, os.O_RDONLY)
    if how == "removed":
        path.unlink()
    else:
        os.rename(path, mount / "out.json" if how == "moved out" else step / "config.json~")
    if anew:
        trees.write(path, b"new")
        assert content(path) == b"new"
    assert os.pread(fd, 100, 0) == FILES["config.json"]
    os.close(fd)
    assert path.exists() == anew


def write_at_once(mount, commit, steps, writers):
    """Some are led to the second node while others reopen the step and copy the file."""
    failures = []

    def write(path, start, n):
        start.wait()
        try:
            fd = os.open(path, os.O_RDWR)
            os.pwrite(fd, bytes([n]) * 1000, n * 1000)
            os.close(fd)
        except OSError as e:
            failures.append((path, n, e))

    for step in (mount / str(1000 + k) for k in range(steps)):
        step.mkdir()
        for name in ("a", "b"):
            trees.write(step / name, bytes([255]) * 1000 * writers)
        commit(step)
        start = threading.Barrier(writers)
        threads = [threading.Thread(target=write, args=(step / "ab"[n % 2], start, n)) for n in range(writers)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert failures == []
        for k, name in enumerate("ab"):
            assert content(step / name) == b"".join(bytes([n if n % 2 == k else 255]) * 1000 for n in range(writers))


def test_writers_that_open_it_at_once_all_write(mount, commit):
    write_at_once(mount, commit, steps=15, writers=8)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("writers", [8, 40])
def test_writers_that_open_it_at_once_all_write_where_threads_stand_still(world, store, scratch, mode, commit, writers):
    """Between any two locks others may come in: other opens, the reopening, a first write, the copy."""
    uneven = scratch / "uneven"
    m = Mount.new(world, store, mode=mode, prefix=preload(world, "uneven_unlocks", UNEVEN_UNLOCKS=uneven))
    uneven.touch()
    write_at_once(m, commit, steps=80 // writers, writers=writers)
    uneven.unlink()


@quiet
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("when", ["before", "after", "and unlinked"])
def test_a_file_of_two_names_is_written_under_both(mount, store, step, ckptfs, name, when):
    one, other = step / name, step / "other"
    if when == "before":
        os.link(one, other)
    fd = os.open(one, os.O_RDWR)
    if when != "before":
        os.link(one, other)
    if when == "and unlinked":
        os.unlink(one)
    os.pwrite(fd, b"NEW", 0)
    new = b"NEW" + FILES[name][3:]
    assert os.pread(fd, 1 << 20, 0) == new
    os.close(fd)
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(other) == new
    assert not one.exists() if when == "and unlinked" else content(one) == new
    ckptfs("verify", store, "--read-data")
    ckptfs("rm", store, "1000")
    for older in [r["name"] for r in ckptfs.json("ls", store, "--trash") if r["name"] != "1000"]:
        ckptfs("undelete", store, older)
        assert content(one) == FILES[name]
        ckptfs("rm", store, "1000")


@quiet
def test_a_folder_that_is_renamed_takes_it_along(mount, commit):
    (mount / "1000/a").mkdir(parents=True)
    trees.write(mount / "1000/a/config.json", b"{}")
    commit(mount / "1000")
    fd = os.open(mount / "1000/a/config.json", os.O_RDWR)
    os.rename(mount / "1000/a", mount / "1000/b")
    os.pwrite(fd, b"[]", 0)
    os.close(fd)
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(mount / "1000/b/config.json") == b"[]"
    assert os.listdir(mount / "1000") == ["b"]


@pytest.mark.parametrize("lose", ["unlink", "rm", "rm -r", "replace", "make again", "link another"])
@kinds
def test_what_lost_its_name_is_written_for_nobody(mount, store, step, ckptfs, lose, kind):
    fd = os.open(step / "config.json", os.O_RDWR)
    if lose == "unlink":
        os.unlink(step / "config.json")
    elif lose == "rm":
        ckptfs("rm", store, "1000")
    elif lose == "rm -r":
        shutil.rmtree(step)
    elif lose == "make again":
        os.unlink(step / "config.json")
        trees.write(step / "config.json", b"new")
    elif lose == "link another":
        trees.write(step / "other.json", b"new")
        os.unlink(step / "config.json")
        os.link(step / "other.json", step / "config.json")
    else:
        trees.write(mount / "new.json", b"new")
        os.replace(mount / "new.json", step / "config.json")
    os.pwrite(fd, b"XX", 0)
    assert os.pread(fd, 100, 0) == b"XX" + FILES["config.json"][2:]
    os.ftruncate(fd, 3)
    assert os.fstat(fd).st_size == 3 and os.pread(fd, 100, 0) == b"XX" + FILES["config.json"][2:3]
    os.close(fd)
    if lose in ("replace", "make again", "link another"):
        assert content(step / "config.json") == b"new"
        assert is_listed(mount) or kind != "raw"  # nobody changed it
    else:
        assert not (step / "config.json").exists()


def test_its_attributes_are_the_files(mount, step):
    """By the descriptor and by the name, whichever changed them."""
    path = step / "model.bin"
    os.stat(path)
    fd = os.open(path, os.O_RDWR)
    os.utime(fd, (1, 1))
    os.fchmod(fd, 0o600)
    assert os.stat(path).st_mtime == 1 and os.stat(path).st_mode & 0o777 == 0o600
    os.chmod(path, 0o640)
    assert os.fstat(fd).st_mode & 0o777 == 0o640 and os.fstat(fd).st_ino == os.stat(path).st_ino
    os.close(fd)
    assert is_listed(mount)


@quiet
def test_a_reader_of_the_version_reads_on(mount, step, agent):
    """The writer has another inode, so that what the kernel reads for others never changes."""
    a = agent()
    a.run("fd = os.open(path, os.O_RDONLY); m = os.pread(fd, 4, 0)", path=str(step / "model.bin"))
    fd = os.open(step / "model.bin", os.O_RDWR)
    os.pwrite(fd, b"NEW", 0)
    os.close(fd)
    assert a.run("os.pread(fd, 4, 0)") == b"0123"
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(step / "model.bin") == b"NEW" + BIG[3:]


@quiet
def test_others_who_truncate_it_cut_it_for_who_has_it_open(mount, step):
    fd = os.open(step / "model.bin", os.O_RDWR)
    trees.write(step / "model.bin", b"short")
    assert os.fstat(fd).st_size == 5
    assert os.pread(fd, 100, 0) == b"short"
    os.pwrite(fd, b"er", 5)
    os.close(fd)
    assert content(step / "model.bin") == b"shorter"


@quiet
def test_killed_in_its_first_write_the_version_is_back(mount, step, agent):
    a = agent()
    a.run("fd = os.open(path, os.O_RDWR); os.pwrite(fd, b'NEW', 0)", path=str(step / "model.bin"))
    assert not is_listed(mount)
    a.kill()
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(step / "model.bin") == BIG


@pytest.mark.parametrize("options", ["commit_quiet=4s"], indirect=True)
def test_killed_in_the_middle_of_a_resave_the_version_is_back_after_commit_quiet(mount, commit, agent):
    """And not after six times that, as changes are committed."""
    (mount / "1000").mkdir()
    array = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000,), }".ljust(117) + b"\n" + bytes(1000)
    for name in ("a.npy", "b.npy"):
        trees.write(mount / "1000" / name, array)
    commit(mount / "1000")
    a = agent()
    a.run("fd = os.open(path, os.O_WRONLY | os.O_TRUNC); os.write(fd, data)", path=str(mount / "1000/a.npy"), data=array[:500])
    assert not is_listed(mount)
    a.kill()
    wait_until(lambda: is_listed(mount), timeout=15)
    assert content(mount / "1000/a.npy") == array


@quiet
def test_killed_before_its_first_write_nothing_happens(mount, step, agent):
    a = agent()
    a.run("fd = os.open(path, os.O_RDWR)", path=str(step / "model.bin"))
    a.kill()
    assert is_listed(mount)
    assert content(step / "model.bin") == BIG


@pytest.mark.parametrize("options", ["amend=deny"], indirect=True)
def test_denied(mount, step):
    with pytest.raises(OSError) as e:
        os.open(step / "model.bin", os.O_RDWR)
    assert e.value.errno == errno.EROFS


@quiet
def test_of_a_sealed_step(mount, store, step, ckptfs):
    ckptfs("seal", store, "1000")
    ckptfs("cool", store, "1000")
    fd = os.open(step / "model.bin", os.O_RDWR)
    assert is_listed(mount)
    assert os.pread(fd, 16, 0) == BIG[:16]
    os.pwrite(fd, b"NEW", 0)
    os.close(fd)
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(step / "model.bin") == b"NEW" + BIG[3:]


@quiet
@pytest.mark.parametrize("closed", [True, False])
def test_a_step_is_renamed_right_after_its_text_was_edited(mount, step, closed):
    """A script appends a note and gives the step its last name. While a file is open for writing the step keeps its name."""
    f = open(step / "config.json", "ab", buffering=0)
    f.write(b"\n")
    if closed:
        f.close()
        os.rename(step, mount / "1000-best")
        assert content(mount / "1000-best/config.json") == FILES["config.json"] + b"\n"
    else:
        with pytest.raises(OSError) as e:
            os.rename(step, mount / "1000-best")
        assert e.value.errno == errno.EBUSY
        f.close()
        assert content(step / "config.json") == FILES["config.json"] + b"\n"


@quiet
@pytest.mark.parametrize("remove", ["array", "text"])
def test_a_file_beside_is_removed_and_made_again(mount, store, ckptfs, commit, remove):
    """As an editor's working file; then it compares the number of what it edits before and after it opens it."""
    (mount / "1000").mkdir()
    trees.write(mount / "1000/config.json", FILES["config.json"])
    commit(mount / "1000")
    swap, path = mount / "1000/working.tmp", mount / "1000/config.json"
    trees.write(swap, b"\x93NUMPY\x01\x00" + bytes(120) if remove == "array" else b"")
    swap.unlink()
    kept = os.open(swap, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    if remove == "text":
        assert is_listed(mount)
        before = os.stat(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        assert os.fstat(fd).st_ino == before.st_ino
        os.ftruncate(fd, 0)
        os.write(fd, b"{}")
        os.close(fd)
    else:  # an array that is removed and made again is one change of the step
        assert not is_listed(mount)
    os.close(kept)
    swap.unlink()
    wait_until(lambda: is_listed(mount), timeout=20)
    assert content(path) == (b"{}" if remove == "text" else FILES["config.json"])
    assert os.listdir(mount / "1000") == ["config.json"]
    ckptfs("verify", store, "--read-data")


@quiet
@pytest.mark.parametrize("kind", ["raw", "linked", "packed"], indirect=True)
def test_its_number_stays_while_it_is_open(mount, commit, ckptfs, store, kind):
    """sqlite compares the file's number before each transaction."""
    (mount / "1000").mkdir()
    path = mount / "1000/run.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table t(n)")
        db.commit()
    if kind == "linked":
        os.link(path, mount / "1000/other.db")
    commit(mount / "1000")
    if kind == "packed":
        ckptfs("seal", store, "1000")
        ckptfs("cool", store, "1000")
        mount.remount()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("insert into t values(1)")
        db.commit()
        assert not is_listed(mount)
        db.execute("insert into t values(2)")
        db.commit()
        fd = os.open(path, os.O_RDONLY)
        assert os.fstat(fd).st_ino == os.stat(path).st_ino
        os.close(fd)
    wait_until(lambda: is_listed(mount), timeout=20)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("select n from t").fetchall() == [(1,), (2,)]
