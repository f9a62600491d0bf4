"""Renaming committed steps: through the mount and by the verb."""

import ctypes
import errno
import os
import shutil

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import errno_name

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["rename", "verb", "verb at rest"])
def move(request, mount, ckptfs, store):
    """Renames a step, by paths from the root of the mount; returns the errno's name or None."""
    def rename(old, new):
        if request.param == "rename":
            try:
                os.rename(mount / old, mount / new)
            except OSError as e:
                return errno_name(e)
            return None
        if request.param == "verb at rest":
            mount.umount()
        done = ckptfs("mv", store, old, new, check=False)
        if request.param == "verb at rest":
            mount.start()
        assert done.returncode in (0, 1)
        assert (done.returncode == 0) == (done.stderr == "")
        return "refused" if done.returncode else None
    return rename


@pytest.fixture
def saved(mount, stage, commit):
    made = {name: stage(name) for name in ("1000", "2000")}
    for name in made:
        commit(mount / name)
    return made


def test_renamed_step_is_listed_under_its_new_name_alone(mount, saved, move, ckptfs, store):
    inode = os.stat(mount / "1000").st_ino
    assert move("1000", "best") is None
    for _ in range(2):
        assert mount.listing() == ["2000", "best"] and not (mount / "1000").exists()
        assert trees.files(mount / "best") == saved["1000"]
        assert os.stat(mount / "best").st_ino == inode
        assert [r["name"] for r in ckptfs.json("ls", store, "--all")] == ["2000", "best"], "nothing is in the trash"
        assert ckptfs.json("info", store, "best")["number"] is None
        mount.remount()
    assert ckptfs.json("verify", store)["bad"] == []


def test_step_goes_into_a_folder_and_back(mount, saved, move, ckptfs, store):
    (mount / "kept").mkdir()
    for _ in range(3):
        assert move("1000", "kept/1000") is None
        assert mount.listing() == ["2000", "kept"] and mount.listing("kept") == ["1000"]
        assert trees.files(mount / "kept/1000") == saved["1000"]
        mount.remount()
        assert trees.files(mount / "kept/1000") == saved["1000"]
        assert move("kept/1000", "1000") is None
        assert mount.listing() == ["1000", "2000", "kept"] and mount.listing("kept") == []
    mount.remount()
    assert trees.files(mount / "1000") == saved["1000"]
    assert ckptfs.json("verify", store)["bad"] == []


def test_old_name_is_free_and_what_gets_it_is_another_step(mount, saved, move, stage, commit, ckptfs, store):
    assert move("1000", "best") is None
    again = stage("1000", seed="again")
    commit(mount / "1000")
    mount.remount()
    assert trees.files(mount / "1000") == again and trees.files(mount / "best") == saved["1000"]
    shutil.rmtree(mount / "best")
    ckptfs("rm", "--now", "--yes", store, "trash/best")
    mount.remount(options=["trash=0s"])
    assert trees.files(mount / "1000") == again and mount.listing() == ["1000", "2000"]


def test_what_cannot_be_is_refused_and_changes_nothing(mount, saved, move, stage):
    stage("3000")
    (mount / "plain").mkdir()
    (mount / "file").write_text("x")
    for old, new, why in (("1000", "2000", "ENOTEMPTY"), ("1000", "absent/1000", "ENOENT"), ("1000", "file/1000", "ENOTDIR"), ("1000", "file", "ENOTDIR"),
                          ("absent", "4000", "ENOENT"), ("1000", "3000/1000", "EXDEV")):
        assert move(old, new) in (why, "refused"), (old, new)
    assert set(mount.listing()) >= {"1000", "2000"}
    assert trees.files(mount / "1000") == saved["1000"] and trees.files(mount / "2000") == saved["2000"]


@both_modes
def test_reader_reads_on_while_its_step_gets_another_name(mount, stage, commit):
    made = stage("1000", size=300_000)
    commit(mount / "1000")
    mount.remount()
    held = {path: open(mount / "1000" / path, "rb") for path in made}
    os.rename(mount / "1000", mount / "other")
    for path, f in held.items():
        assert f.read() == made[path]
        f.close()
    assert trees.files(mount / "other") == made


def test_renamed_step_can_be_deleted_undeleted_and_given_metadata(mount, saved, commit, ckptfs, store):
    os.rename(mount / "1000", mount / "best")
    commit(mount / "best", b'{"metrics":{"loss":0.5}}')
    assert ckptfs.json("info", store, "best")["metrics"] == {"loss": 0.5}
    shutil.rmtree(mount / "best")
    assert os.listdir(mount / ".ckptfs/trash") == ["best"]
    ckptfs("undelete", store, "best")
    mount.remount()
    assert trees.files(mount / "best") == saved["1000"]
    os.rename(mount / "best", mount / "1000")
    mount.kill9()
    mount.start()
    assert trees.files(mount / "1000") == saved["1000"] and mount.listing() == ["1000", "2000"]


def test_rename_over_a_step_with_exchange_or_noreplace_is_refused(mount, saved, client):
    libc = ctypes.CDLL(None, use_errno=True)
    for flags, error in ((1, errno.EEXIST), (2, errno.EINVAL)):
        assert libc.renameat2(-100, str(mount / "1000").encode(), -100, str(mount / "2000").encode(), flags) == -1
        assert ctypes.get_errno() == error
    assert mount.listing() == ["1000", "2000"]


@pytest.mark.parametrize("name", ["./best", "plain/../best", "plain//best", "/", ".ckptfs"])
def test_names_that_look_like_another_place_are_refused(mount, saved, ckptfs, store, name):
    (mount / "plain").mkdir()
    assert ckptfs("mv", store, "1000", name, check=False).returncode in (1, 2)
    assert ckptfs("begin", store, name, check=False).returncode in (1, 2)
    assert mount.listing() == ["1000", "2000", "plain"]


def test_new_name_is_in_the_folder_where_one_is(mount, stage, commit, ckptfs):
    (mount / "kept").mkdir()
    made = stage("kept/step_1")
    commit(mount / "kept/step_1")
    ckptfs("mv", "step_1", "best", cwd=mount / "kept")
    assert mount.listing("kept") == ["best"] and trees.files(mount / "kept/best") == made
