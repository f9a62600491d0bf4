"""Reopened steps that the marker completes, and the versions before them."""

import errno
import os
import shutil

import pytest

from support import trees
from support.fixtures import both_modes, needs_root
from support.mounting import LoopDisk, Mount, wait_until
from support.reopening import CHANGES, W1, append, assert_is, base, change_write, each_change, latest, listed, one, origin, patch, versions  # noqa: F401

pytestmark = pytest.mark.timeout(60)


@both_modes
@each_change
def test_marker_makes_the_next_version(mount, base, ckptfs, store, commit, change):
    step, files = base
    old, first = dict(files), os.stat(step)
    held = {p: open(step / p, "rb") for p in old}
    CHANGES[change](step, files)
    commit(step, b'{"metrics":{"loss":3}}')
    for path, f in held.items():
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert f.read() == old[path]
        f.close()
    for _ in range(2):
        assert mount.listing() == ["1000", "900"] and latest(mount) == "1000"
        assert trees.files(step) == files
        assert (os.stat(step).st_ino, os.stat(step).st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
        assert trees.files(mount / ".ckptfs/trash/1000") == old
        info = ckptfs.json("info", store, "1000")
        assert info["metrics"] == {"loss": 3} and info["version"] == len(info["versions"])
        assert [r["name"] for r in ckptfs.json("ls", store, "--trash")] == ["1000"]
        mount.remount()
    assert ckptfs("cat", store, "trash/1000", "config.json").stdout.encode() == old["config.json"]
    assert ckptfs.json("verify", store)["bad"] == [] and ckptfs.json("sessions", store) == []
    assert mount.errors() == []


@both_modes
def test_whole_step_saved_again_over_itself(mount, base, ckptfs, store, commit):
    """As a framework does that was restarted: the same names, each opened and written anew."""
    step, files = base
    old = dict(files)
    for name in files:
        files[name] = trees.content(("again", name), len(files[name]))
        trees.write(step / name, files[name])
    assert listed(mount) == []
    commit(step)
    assert_is(mount, "1000", files, ["900"])
    assert trees.files(mount / ".ckptfs/trash/1000") == old
    assert versions(ckptfs, store) == [("marker", "old"), ("marker", "current")]


def test_second_and_third_reopening(mount, base, ckptfs, store, commit):
    step, files = base
    made = [dict(files)]
    for n in range(3):
        append(step / "config.json", b"%d" % n)
        files["config.json"] += b"%d" % n
        patch(step / W1, b"%d" % n, n)
        files[W1] = files[W1][:n] + b"%d" % n + files[W1][n + 1:]
        commit(step)
        assert trees.files(step) == files
        made.append(dict(files))
        if n == 1:
            mount.remount()
    rows = sorted(ckptfs.json("ls", store, "--trash"), key=lambda row: row["deleted_at"], reverse=True)
    assert len(rows) == 3
    for row, want in zip(rows, made[2::-1]):
        assert trees.files(mount / ".ckptfs/trash" / row["name"]) == want
    assert_is(mount, "1000", files, ["900"])
    assert ckptfs.json("verify", store)["bad"] == []


def test_version_of_before_can_be_had_back_once_the_new_one_is_removed(mount, one, ckptfs, store, commit):
    step, files = one
    old = dict(files)
    change_write(step, files)
    commit(step)
    refused = ckptfs("undelete", store, "1000", check=False)
    assert refused.returncode == 1 and "hint: " in refused.stderr
    ckptfs("rm", store, "1000")
    older = next(r["name"] for r in ckptfs.json("ls", store, "--trash") if r["name"] != "1000")
    ckptfs("undelete", store, older)
    assert_is(mount, "1000", old)
    change_write(step, old)
    commit(step)
    assert_is(mount, "1000", old)


@pytest.mark.parametrize("first", ["newer", "older"])
def test_versions_that_expire_one_by_one_never_come_back(mount, one, ckptfs, store, commit, first):
    step, files = one
    old = dict(files)
    change_write(step, files)
    commit(step)
    shutil.rmtree(step)
    for n, left in enumerate([old if first == "newer" else files, None]):
        names = [r["name"] for r in ckptfs.json("ls", store, "--trash")]
        ckptfs("rm", "--now", "--yes", store, "trash/" + next(name for name in names if (name == "1000") == bool(n or first == "newer")))
        for _ in range(2):
            assert mount.listing() == []
            if left:
                assert trees.files(mount / ".ckptfs/trash/1000") == left
            mount.remount()
    assert ckptfs.json("ls", store, "--all") == []
    step.mkdir()
    trees.write(step / "a", b"a")
    commit(step)
    assert_is(mount, "1000", {"a": b"a"})


def test_superseded_version_deleted_for_good_leaves_the_new_one_whole(mount, one, ckptfs, store, commit):
    step, files = one
    change_write(step, files)
    commit(step)
    ckptfs("rm", "--now", "--yes", store, "trash/1000")
    wait_until(lambda: os.listdir(store / "trash") == [], what="the end of its files")
    assert_is(mount, "1000", files)
    assert ckptfs.json("verify", store)["bad"] == []


def test_commit_that_fails_leaves_it_reopened(mount, one, commit, agent):
    step, files = one
    change_write(step, files)
    a = agent()
    a.run("fd = os.open(path, os.O_RDWR); os.write(fd, b'half')", path=str(step / W1))
    with pytest.raises(OSError) as e:
        commit(step)
    assert e.value.errno == errno.EBUSY
    assert listed(mount) == [] and (step / W1).read_bytes()[:4] == b"half"
    a.run("os.pwrite(fd, b'more', 4); os.close(fd)")
    files[W1] = b"halfmore" + files[W1][8:]
    commit(step)
    assert_is(mount, "1000", files)


@needs_root
def test_full_disk_leaves_it_reopened(world, commit):
    disk = LoopDisk(world)
    m = Mount.new(world, disk.path / "store")
    (m / "1000").mkdir()
    files = trees.fill(m / "1000")
    commit(m / "1000")
    patch(m / "1000/config.json", b"[")
    files["config.json"] = b"[" + files["config.json"][1:]
    disk.fill_up()
    with pytest.raises(OSError) as e:
        commit(m / "1000")
    assert e.value.errno == errno.ENOSPC
    assert m.listing() == [] and trees.files(m / "1000") == files
    with pytest.raises(OSError):
        patch(m / "1000/params/layer_0/w0.bin", b"x")
    disk.make_room()
    assert trees.files(m / "1000") == files
    commit(m / "1000")
    assert_is(m, "1000", files)


@needs_root
def test_reopening_on_a_full_disk_changes_nothing(world, commit):
    disk = LoopDisk(world)
    m = Mount.new(world, disk.path / "store")
    (m / "1000").mkdir()
    files = trees.fill(m / "1000")
    commit(m / "1000")
    disk.fill_up()
    with pytest.raises(OSError) as e:
        patch(m / "1000/config.json")
    assert e.value.errno == errno.ENOSPC
    assert m.listing() == ["1000"] and trees.files(m / "1000") == files
    assert any("1000" in line for line in m.errors())
    disk.make_room()
    patch(m / "1000/config.json", b"[")
    files["config.json"] = b"[" + files["config.json"][1:]
    commit(m / "1000")
    assert_is(m, "1000", files)
