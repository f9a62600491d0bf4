"""Pinned steps: nobody deletes them, by a verb or through the mount, until they are unpinned."""

import errno
import os
import shutil
import subprocess

import pytest

from support import trees
from support.fixtures import all_modes
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def saved(mount, stage, commit):
    """Steps 1000, 2000 and a/step_1: {name: {path: bytes}}."""
    (mount / "a").mkdir()
    made = {name: stage(name) for name in ("1000", "2000", "a/step_1")}
    for name in made:
        commit(mount / name)
    return made


def pinned(ckptfs, store):
    return [row["name"] for row in ckptfs.json("ls", store) if row["pinned"]]


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_pinned_step_is_not_deleted_by_rm(mount, saved, store, ckptfs, mounted):
    if not mounted:
        mount.umount()
    assert ckptfs.json("pin", store, "1000", "a/step_1") == {"ok": True}
    assert pinned(ckptfs, store) == ["1000", "a/step_1"]
    step = ckptfs.json("info", store, "1000")
    assert step["pinned"] is True and step["version"] == 2
    ckptfs("pin", store, "1000")
    assert ckptfs.json("info", store, "1000")["version"] == 2, "it was so already"
    assert ckptfs("ls", store, "--where", "pinned = true").stdout.split() == ["1000", "a/step_1"]
    assert "pinned" in ckptfs("ls", "-l", store).stdout
    for words in (["1000"], ["--now", "--yes", "1000"]):
        done = ckptfs("rm", store, *words, check=False)
        assert done.returncode == 1 and done.stderr.splitlines()[0] == "ckptfs: 1000: it is pinned, so it is not removed"
        assert done.stderr.splitlines()[1] == f"hint: `ckptfs unpin {store} 1000` first"
    done = ckptfs("rm", store, "1000/config.json", check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[1] == f"hint: `ckptfs unpin {store} 1000` first"
    done = ckptfs("rm", store, "1000", "2000", check=False)
    assert done.returncode == 1 and ckptfs("ls", store).stdout.split() == ["1000", "a/step_1"], "the others are done"
    assert ckptfs.json("latest", store)["name"] == "1000"
    assert ckptfs.json("unpin", store, "1000") == {"ok": True}
    ckptfs("rm", store, "1000")
    assert ckptfs("ls", store).stdout.split() == ["a/step_1"]


@all_modes
def test_pinned_step_is_not_removed_through_the_mount(mount, saved, store, ckptfs, mode):
    ckptfs("pin", store, "1000")
    path = mount / "1000"
    done = subprocess.run(["rm", "-r", path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Operation not permitted" in done.stderr
    for call in (lambda: os.unlink(path / "config.json"), lambda: shutil.rmtree(path)):
        with pytest.raises(OSError) as e:
            call()
        assert e.value.errno == errno.EPERM
    assert mount.listing() == ["1000", "2000", "a"] and trees.files(path) == saved["1000"]
    [line] = mount.errors()
    assert "1000" in line and "EPERM" in line and "ckptfs unpin" in line
    for _ in range(2):
        mount.remount()
        assert trees.files(path) == saved["1000"] and pinned(ckptfs, store) == ["1000"]
    ckptfs("unpin", store, "1000")
    shutil.rmtree(path)
    assert mount.listing() == ["2000", "a"]


def test_empty_pinned_step_is_not_removed(mount, store, ckptfs, commit):
    (mount / "1").mkdir()
    commit(mount / "1")
    ckptfs("pin", mount / "1")
    with pytest.raises(OSError) as e:
        os.rmdir(mount / "1")
    assert e.value.errno == errno.EPERM and mount.listing() == ["1"]


def test_pin_goes_with_a_renamed_step_and_what_is_saved_anew_has_none(mount, saved, stage, commit, store, ckptfs):
    ckptfs("pin", mount / "1000")
    os.rename(mount / "1000", mount / "best")
    assert pinned(ckptfs, store) == ["best"]
    ckptfs("mv", store, "best", "a/best")
    mount.remount()
    assert pinned(ckptfs, store) == ["a/best"]
    trees.write(mount / "a/best/.finalize", b'{"metrics":{"loss":1}}')
    assert pinned(ckptfs, store) == ["a/best"] and ckptfs.json("info", store, "a/best")["metrics"] == {"loss": 1}
    made = stage("1000", seed="anew")
    commit(mount / "1000")
    assert pinned(ckptfs, store) == ["a/best"] and trees.files(mount / "1000") == made


def test_what_cannot_be_pinned_is_said(mount, saved, stage, store, ckptfs):
    stage("3000")
    ckptfs("rm", store, "2000")
    for word, status in (("3000", 1), ("4000", 1), ("trash/2000", 2), ("1000/config.json", 2)):
        for verb in ("pin", "unpin"):
            done = ckptfs(verb, store, word, check=False)
            assert done.returncode == status and len(done.stderr.splitlines()) == 2, done.stderr
    assert pinned(ckptfs, store) == []
    top = os.open(mount / "1000", os.O_RDONLY)
    os.unlink(mount / "1000/config.json")  # as rm -r begins
    done = ckptfs("pin", store, "1000", check=False)
    os.close(top)
    assert done.returncode == 1 and "being removed" in done.stderr and pinned(ckptfs, store) == []


def test_a_file_that_was_removed_just_before_stays_gone_from_the_pinned_step(mount, saved, store, ckptfs):
    os.unlink(mount / "1000/config.json")
    ckptfs("pin", store, "1000")
    left = {path: data for path, data in saved["1000"].items() if path != "config.json"}
    for _ in range(2):
        assert pinned(ckptfs, store) == ["1000"] and trees.files(mount / "1000") == left
        wait_until(lambda: ckptfs.json("info", store, "1000")["files"] == len(left), what="the edit")
        mount.remount()


def test_pin_stays_when_a_step_is_changed_and_completed_again(mount, saved, store, ckptfs, commit):
    ckptfs("pin", store, "1000")
    trees.write(mount / "1000/config.json", b"{}")
    done = ckptfs("unpin", store, "1000", check=False)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 2, "it is being changed"
    commit(mount / "1000")
    assert pinned(ckptfs, store) == ["1000"] and (mount / "1000/config.json").read_bytes() == b"{}"
    trees.write(mount / "1000/config.json", b"[]")
    with pytest.raises(OSError):
        shutil.rmtree(mount / "1000")
    mount.remount()
    assert pinned(ckptfs, store) == ["1000"] and (mount / "1000/config.json").read_bytes() == b"{}"
