"""Changes of a committed step: it is reopened on this mount, out of every listing, until it is completed, removed or quiet."""

import contextlib
import errno
import os
import shutil
import subprocess
import threading
import time

import pytest

from support import trees
from support.fixtures import SLOW, both_modes
from support.mounting import Mount, wait_until
from support.reopening import CHANGES, W0, W1, append, assert_is, base, change_append, change_write, each_change, found, killed_in_the_middle, latest, listed, one, origin, patch, quiet  # noqa: F401

pytestmark = pytest.mark.timeout(60)


# --- While it is reopened ---------------------------------------------------------------------------------------------


@both_modes
@each_change
def test_changed_step_is_in_no_listing_and_has_the_change_by_its_name(mount, base, change):
    step, files = base
    old = dict(files)
    assert latest(mount) == "1000"
    held = {p: open(step / p, "rb") for p in old}
    numbers = {str(p.relative_to(step)): os.lstat(p).st_ino for p in [step, *step.rglob("*")]}
    CHANGES[change](step, files)
    assert mount.listing() == ["900"] and latest(mount) == "900"
    assert trees.files(step) == files
    for path, f in held.items():
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert f.read() == old[path], f"who had {path} open reads other bytes"
        f.close()
    now = {str(p.relative_to(step)): os.lstat(p).st_ino for p in [step, *step.rglob("*")]}
    assert len(set(now.values())) == len(now) - (change == "link"), "two have one number"
    for path in now:
        if path != "first" and (step / path).is_dir() and path in numbers and change != "rename dir and make anew" or path in files and old.get(path) == files[path]:
            assert now[path] == numbers[path], f"{path} has another number"
    assert os.lstat(mount / "900" / W0).st_size == 200_000
    assert mount.errors() == []


@pytest.mark.parametrize("options", ["amend=deny"], indirect=True)
@pytest.mark.parametrize("change", CHANGES)
def test_denied_changes_change_nothing(mount, one, change):
    step, files = one
    old = dict(files)
    try:
        CHANGES[change](step, files)
    except OSError as e:
        assert e.errno in (errno.EROFS, errno.EXDEV), e
    else:
        raise AssertionError("it was changed")
    if change != "unlink and create":
        assert mount.listing()[0] == "1000" and trees.files(step) == old


@both_modes
def test_mapping_of_a_reader_keeps_its_bytes(mount, one):
    import mmap
    step, files = one
    with open(step / W0, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        first = m[:4096]
        patch(step / W0, b"x" * 150_000)
        assert m[:] == files[W0] and first == files[W0][:4096]


@both_modes
def test_process_that_is_inside_works_on(mount, base, agent, commit):
    step, files = base
    a = agent()
    a.run("os.chdir(step)", step=str(step / "params/layer_0"))
    change_write(step, files)
    assert a.run("open('w0.bin', 'rb').read()") == files[W0]
    assert a.run("os.getcwd()") == str(step / "params/layer_0") and a.run("os.listdir('.')") == ["w0.bin"]
    a.run("f = open('more', 'w'); f.write('x'); f.close()")
    files["params/layer_0/more"] = b"x"
    commit(step)
    assert a.run("open('w0.bin', 'rb').read()") == files[W0] and sorted(a.run("os.listdir('.')")) == ["more", "w0.bin"]
    assert a.run("os.getcwd()") == str(step / "params/layer_0")
    assert trees.files(step) == files and "1000" in mount.listing()
    a.run("os.chdir('/')")


@quiet
@pytest.mark.parametrize("end", ["committed", "given up"])
def test_process_that_is_inside_sees_its_end(mount, base, agent, end):
    step, files = base
    old = dict(files)
    a = agent()
    a.run("os.chdir(step)", step=str(step / "params/layer_0"))
    if end == "given up":
        killed_in_the_middle(agent, step / "config.json")
    change_write(step, files)
    assert a.run("open('w0.bin', 'rb').read()") == files[W0]
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    assert a.run("open('w0.bin', 'rb').read()") == (old if end == "given up" else files)[W0]
    assert sorted(a.run("os.listdir('..')")) == sorted(os.listdir(step / "params"))
    a.run("os.chdir('/')")


def test_reopening_costs_no_bytes_and_no_time(mount, store, commit):
    step = mount / "1000"
    step.mkdir()
    for d in range(20):
        (step / f"d{d}").mkdir()
        for n in range(100):
            trees.write(step / f"d{d}/f{n}", b"%d" % (d * 100 + n) * 3000)
    commit(step)
    mount.remount()
    before = int(subprocess.run(["du", "-s", "-B1", store], check=True, capture_output=True, text=True).stdout.split()[0])
    began = time.monotonic()
    patch(step / "d7/f7")
    assert time.monotonic() - began < 3 * SLOW
    after = int(subprocess.run(["du", "-s", "-B1", store], check=True, capture_output=True, text=True).stdout.split()[0])
    assert after - before < 1 << 20
    assert (step / "d7/f7").read_bytes() == b"NEW" + (b"707" * 3000)[3:]
    commit(step)
    assert mount.listing() == ["1000"] and len(trees.files(step)) == 2000


def test_two_clients_that_change_at_once_are_both_heard(mount, base, commit):
    step, files = base
    start, failures = threading.Barrier(8), []

    def change(n):
        start.wait()
        try:
            path = step / (W0 if n % 2 else W1)
            patch(path, b"%d" % n * 1000, n * 1000)
            if n == 3:
                os.rename(step / "config.json", step / "c.json")
        except OSError as e:
            failures.append(e)

    threads = [threading.Thread(target=change, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for n in range(8):
        path = W0 if n % 2 else W1
        files[path] = files[path][:n * 1000] + b"%d" % n * 1000 + files[path][n * 1000 + 1000:]
    files["c.json"] = files.pop("config.json")
    assert failures == [] and trees.files(step) == files
    commit(step)
    assert_is(mount, "1000", files, ["900"])


def test_remover_and_writer_at_once_are_both_heard(mount, commit):
    """What was removed one by one before somebody reopened the step is missing in it."""
    for turn in range(5):
        step = mount / f"{turn + 1}"
        step.mkdir()
        for n in range(100):
            trees.write(step / f"f{n:02}", b"x" * 100)
        commit(step)
        start = threading.Barrier(2)

        def remove(step=step, start=start):
            start.wait()
            for n in range(1, 100):
                os.unlink(step / f"f{n:02}")

        remover = threading.Thread(target=remove)
        remover.start()
        start.wait()
        time.sleep(0.001 * turn)
        patch(step / "f00")
        remover.join()
        assert os.listdir(step) == ["f00"]


@quiet
def test_open_writer_keeps_it_reopened(mount, one):
    step, files = one
    with open(step / W0, "r+b") as f:
        f.write(b"NEW")
        f.flush()
        time.sleep(3.5)
        assert listed(mount) == []
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    files[W0] = b"NEW" + files[W0][3:]
    assert trees.files(step) == files


# --- Removed ----------------------------------------------------------------------------------------------------------


@found
@both_modes
@each_change
def test_removed_step_is_deleted_and_the_version_of_before_is_in_the_trash(mount, base, ckptfs, store, change):
    step, files = base
    old = dict(files)
    CHANGES[change](step, files)
    shutil.rmtree(step)
    for _ in range(2):
        assert mount.listing() == ["900"] and not step.exists()
        assert trees.files(mount / ".ckptfs/trash/1000") == old
        assert ckptfs.json("sessions", store) == []
        mount.remount()
    ckptfs("undelete", store, "1000")
    assert_is(mount, "1000", old, ["900"])


def test_step_that_is_not_empty_is_not_removed(mount, one):
    step, files = one
    change_write(step, files)
    with pytest.raises(OSError) as e:
        os.rmdir(step)
    assert e.value.errno == errno.ENOTEMPTY
    assert trees.files(step) == files


def test_aborted_session_is_the_version_of_before(mount, base, ckptfs, store):
    step, files = base
    old = dict(files)
    with open(step / W0, "rb") as reader:
        change_write(step, files)
        ckptfs("abort", "--yes", store, "1000")
        assert mount.listing() == ["1000", "900"] and trees.files(step) == old
        assert reader.read() == old[W0]
    assert ckptfs.json("sessions", store) == []
    change_append(step, old)
    assert trees.files(step) == old and listed(mount) == []


def test_session_committed_by_verb(mount, base, ckptfs, store):
    step, files = base
    change_write(step, files)
    assert [(s["name"], s["state"]) for s in ckptfs.json("sessions", store)] == [("1000", "live")]
    ckptfs("commit", store, "1000")
    assert_is(mount, "1000", files, ["900"])
    assert ckptfs.json("info", store, "1000")["event"] == "verb"


# --- Beside it --------------------------------------------------------------------------------------------------------


def test_reopened_step_is_not_renamed_and_its_name_not_taken(mount, one, commit):
    step, files = one
    change_write(step, files)
    with pytest.raises(OSError) as e:
        os.rename(step, mount / "2000")
    assert e.value.errno == errno.EBUSY
    with pytest.raises(FileExistsError):
        step.mkdir()
    (mount / "3000").mkdir()
    with pytest.raises(OSError):
        os.rename(mount / "3000", step)
    commit(step)
    os.rename(step, mount / "2000")
    assert_is(mount, "2000", files)


def test_other_mounts_and_verbs_see_the_version_of_before(world, mount, store, one, ckptfs, commit):
    step, files = one
    old = dict(files)
    other = Mount.new(world, store, path=world.scratch / "other", options=["ro"])
    change_write(step, files)
    assert other.listing() == ["1000"] and trees.files(other / "1000") == old
    assert [r["name"] for r in ckptfs.json("ls", store)] == ["1000"]
    assert ckptfs("cat", store, "1000", "config.json").stdout.encode() == old["config.json"]
    assert ckptfs.json("verify", store)["bad"] == []
    commit(step)
    assert other.listing() == ["1000"]
    other.remount()
    assert other.listing() == ["1000"] and trees.files(other / "1000") == files


def test_verbs_that_would_change_a_reopened_step_are_refused_or_done_whole(mount, one, ckptfs, store, commit):
    step, files = one
    old = dict(files)
    change_write(step, files)
    for verb in (("rm", "1000"), ("mv", "1000", "2000"), ("rm", "--now", "--yes", "1000")):
        done = ckptfs(verb[0], *[w for w in verb[1:] if w.startswith("-")], store, *[w for w in verb[1:] if not w.startswith("-")], check=False)
        assert done.returncode == 1 and "hint: " in done.stderr
        assert trees.files(step) == files and listed(mount) == []
    commit(step)
    assert_is(mount, "1000", files)
    assert trees.files(mount / ".ckptfs/trash/1000") == old


def test_link_and_copy_of_a_reopened_step(mount, base, commit):
    step, files = base
    change_write(step, files)
    shutil.copytree(step, mount / "3000", symlinks=True)
    commit(mount / "3000")
    assert trees.files(mount / "3000") == files
    commit(step)
    subprocess.run(["cp", "-al", step, mount / "2000"], check=True)
    change_append(step, files)
    commit(mount / "2000")
    commit(step)
    assert trees.files(step) == files and mount.listing() == ["1000", "2000", "3000", "900"]


def test_modes_and_owners_and_attributes_are_kept(mount, commit):
    step = mount / "1000"
    step.mkdir()
    trees.fill(step)
    os.chmod(step / "params", 0o750)
    os.chmod(step / W0, 0o444)
    os.setxattr(step / "params", "user.note", b"dir")
    os.setxattr(step / W0, "user.note", b"file")
    os.utime(step / "params/layer_1", ns=(5, 5))
    os.utime(step / "first", ns=(6, 6), follow_symlinks=False)
    os.chmod(step, 0o700)
    commit(step)
    before = trees.describe(step, inodes=True)
    append(step / "config.json")
    for _ in range(2):
        now = trees.describe(step, inodes=True)
        assert {p for p in now if now[p] != before[p]} <= {"config.json", ".", "first"}
        assert {**now["first"], "ino": 0} == {**before["first"], "ino": 0} and {**now["."], "mtime_ns": 0} == {**before["."], "mtime_ns": 0}
        with contextlib.suppress(OSError):
            commit(step)


def test_hard_links_of_the_step_are_hard_links_in_it(mount, commit):
    step = mount / "1000"
    step.mkdir()
    trees.write(step / "a", b"one file")
    os.link(step / "a", step / "b")
    trees.write(step / "c", b"other")
    commit(step)
    append(step / "c")
    assert os.lstat(step / "a").st_nlink == 2 and os.lstat(step / "a").st_ino == os.lstat(step / "b").st_ino
    append(step / "a")
    commit(step)
    assert_is(mount, "1000", {"a": b"one fileNEW", "b": b"one fileNEW", "c": b"otherNEW"})
    assert trees.files(mount / ".ckptfs/trash/1000") == {"a": b"one file", "b": b"one file", "c": b"other"}
