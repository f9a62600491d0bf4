"""Removing a committed step through the mount, as rm -r and shutil.rmtree do: in one act, or not at all."""

import errno
import os
import shutil
import subprocess
import threading

import pytest

from support import trees
from support.fixtures import all_modes, both_modes, needs_root
from support.mounting import Mount
from support.syncs import BadSyncs

pytestmark = pytest.mark.timeout(60)

REMOVERS = {"rm": lambda path: subprocess.run(["rm", "-r", path], check=True), "rmtree": shutil.rmtree}


@pytest.fixture
def step(mount, stage, commit):
    """A committed step, 1000: (path, {path in it: bytes})."""
    made = stage("1000")
    commit(mount / "1000")
    return mount / "1000", made


def refused(call, *errors):
    with pytest.raises(OSError) as e:
        call()
    assert e.value.errno in errors, e.value


@all_modes
@pytest.mark.parametrize("remover", REMOVERS)
@pytest.mark.parametrize("remounted", [False, True], ids=["just committed", "read from the store"])
def test_removed_step_is_deleted_in_one_act_and_can_be_had_back(mount, step, ckptfs, store, remover, remounted):
    path, made = step
    if remounted:
        mount.remount()
    REMOVERS[remover](path)
    for _ in range(2):
        assert mount.listing() == [] and not path.exists()
        assert ckptfs.json("ls", store) == []
        assert trees.files(mount / ".ckptfs/trash/1000") == made, "what went one by one is in the trash as a whole"
        mount.remount()
    ckptfs("undelete", store, "1000")
    assert trees.files(path) == made
    REMOVERS[remover](path)
    assert mount.listing() == []


def test_name_of_a_removed_step_can_be_given_again(mount, step, stage, commit):
    path, _ = step
    for n in range(3):
        shutil.rmtree(path)
        made = stage("1000", seed=str(n))
        commit(path)
        assert trees.files(path) == made
    mount.remount()
    assert trees.files(path) == made and len(os.listdir(mount / ".ckptfs/trash")) == 3


def test_step_in_a_folder_is_removed_and_the_folder_after_it(mount, stage, commit, ckptfs, store):
    (mount / "run").mkdir()
    stage("run/step_1")
    commit(mount / "run/step_1")
    refused(lambda: os.rmdir(mount / "run"), errno.ENOTEMPTY)
    shutil.rmtree(mount / "run")
    assert mount.listing() == [] and ckptfs.json("ls", store) == []


@both_modes
def test_half_removed_step_is_in_no_listing_and_reachable_by_its_name(mount, step, ckptfs, store):
    path, made = step
    os.unlink(path / "config.json")
    refused(lambda: os.unlink(path / "config.json"), errno.ENOENT)
    assert mount.listing() == []
    left = {p: data for p, data in made.items() if p != "config.json"}
    assert trees.files(path) == left
    refused(lambda: os.rmdir(path), errno.ENOTEMPTY)
    refused(lambda: os.rmdir(path / "params"), errno.ENOTEMPTY)
    refused(lambda: os.unlink(path / "params"), errno.EISDIR)
    refused(lambda: os.rmdir(path / "empty"), errno.ENOTDIR)
    assert trees.files(path) == left


@pytest.mark.parametrize("end", ["killed", "unmounted"])
def test_interrupted_removal_has_done_nothing(mount, step, end):
    path, made = step
    os.unlink(path / "config.json")
    shutil.rmtree(path / "params")
    if end == "killed":
        mount.kill9()
        mount.start()
    else:
        mount.remount()
    assert mount.listing() == ["1000"] and trees.files(path) == made


@pytest.mark.parametrize("options", ["amend=deny"], indirect=True)
def test_committed_files_cannot_be_changed_while_some_are_removed(mount, step):
    path, made = step
    os.unlink(path / "config.json")
    for change in (lambda: trees.write(path / "config.json", b"x"), lambda: trees.write(path / "empty", b"x"), lambda: os.rename(path / "empty", path / "e"),
                   lambda: os.mkdir(path / "d"), lambda: os.chmod(path / "empty", 0o600), lambda: os.truncate(path / "params/layer_0/w0.bin", 0)):
        refused(change, errno.EROFS)
    refused(lambda: os.rename(path, mount / "3000"), errno.EBUSY)
    del made["config.json"]
    assert trees.files(path) == made


@both_modes
def test_late_file_can_be_written_over_when_another_was_removed(mount, step, commit):
    """While its last release is still under way, as here while it is open: a save over a step that had a late file."""
    path, made = step
    fd = os.open(path / "late", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"late")
    os.close(os.dup(fd))
    assert trees.files(path) == made | {"late": b"late"}
    os.unlink(path / "config.json")
    trees.write(path / "late", b"again")
    os.close(fd)
    del made["config.json"]
    for _ in range(2):
        assert trees.files(path) == made | {"late": b"again"}
        commit(path)
    assert mount.listing() == ["1000"] and mount.errors() == []
    mount.remount()
    assert trees.files(path) == made | {"late": b"again"}


@both_modes
def test_reader_of_a_step_that_is_removed_reads_on(mount, stage, commit):
    made = stage("1000", size=300_000)
    commit(mount / "1000")
    mount.remount()  # nothing of it is in the kernel's memory
    held = {path: open(mount / "1000" / path, "rb") for path in made}
    shutil.rmtree(mount / "1000")
    for path, f in held.items():
        assert f.read() == made[path]
        f.close()


def test_watcher_never_sees_a_listed_step_that_is_not_whole(mount, stage, commit):
    made, wrong, stop = {}, [], threading.Event()

    def watch():
        while not stop.is_set():
            for name in os.listdir(mount.path):
                seen = [p for p in made[name] if not (mount / name / p).exists()]
                if seen and name in os.listdir(mount.path):
                    wrong.append((name, seen))

    for n in range(20):
        made[str(n)] = stage(str(n))
        commit(mount / str(n))
    watcher = threading.Thread(target=watch)
    watcher.start()
    for n in range(20):
        shutil.rmtree(mount / str(n))
    stop.set()
    watcher.join()
    assert wrong == [] and mount.listing() == []


def test_deletion_that_the_disk_refuses_is_an_error_and_the_step_is_back(world, store, commit, agent):
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix)
    (m / "1000").mkdir()
    made = trees.fill(m / "1000")
    commit(m / "1000")
    syncs.die()
    refused(lambda: shutil.rmtree(m / "1000"), errno.EIO)
    syncs.live()
    assert m.listing() == ["1000"] and trees.files(m / "1000") == made
    shutil.rmtree(m / "1000")
    assert m.listing() == []


@needs_root
def test_read_only_mount_removes_nothing(world, mount, step, store, scratch):
    path, made = step
    mount.umount()
    m = Mount.new(world, store, scratch / "ro", options=["ro"])
    refused(lambda: os.unlink(m / "1000/config.json"), errno.EROFS)
    refused(lambda: os.rmdir(m / "1000"), errno.EROFS)
    assert trees.files(m / "1000") == made
