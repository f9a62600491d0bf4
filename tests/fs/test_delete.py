"""Deleting steps and having them back, by verbs: with a mount and without one."""

import os
import shutil
import subprocess
import time

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import Mount, wait_until
from support.syncs import BadSyncs

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["mounted", "at rest"])
def where(request, mount):
    """Verbs act on a store that is mounted, or that is not."""
    class Where:
        def __init__(self):
            self.rest = request.param == "at rest"

        def __enter__(self):
            if self.rest:
                mount.umount()

        def __exit__(self, *_):
            if self.rest:
                mount.start()
    return Where()


@pytest.fixture
def saved(mount, stage, commit):
    """Steps 1000, 2000 and a/step_1: {name: {path: bytes}}."""
    (mount / "a").mkdir()
    made = {name: stage(name) for name in ("1000", "2000", "a/step_1")}
    for name in made:
        commit(mount / name)
    return made


def names(ckptfs, store, *options):
    return [row["name"] for row in ckptfs.json("ls", store, *options)]


def test_deleted_step_is_gone_from_listings_and_comes_back_as_it_was(mount, saved, where, ckptfs, store):
    before = ckptfs.json("info", store, "1000")
    with where:
        ckptfs("rm", store, "1000", "a/step_1")
        assert names(ckptfs, store) == ["2000"]
        rows = ckptfs.json("ls", store, "--trash")
        assert sorted((r["name"], r["state"]) for r in rows) == [("1000", "trash"), ("a/step_1", "trash")]
        assert all(r["deleted_at"] > r["committed_at"] for r in rows)
        assert ckptfs("cat", store, "1000", "config.json", check=False).returncode == 1
        assert ckptfs("cat", store, "trash/1000", "config.json").stdout.encode() == saved["1000"]["config.json"]
    assert mount.listing() == ["2000", "a"] and not (mount / "1000").exists() and mount.listing("a") == []
    assert sorted(os.listdir(mount / ".ckptfs/trash")) == ["1000", "step_1"]
    assert trees.files(mount / ".ckptfs/trash/1000") == saved["1000"]
    with where:
        ckptfs("undelete", store, "1000", "trash/a/step_1")
    assert mount.listing() == ["1000", "2000", "a"] and mount.listing("a") == ["step_1"]
    for name, made in saved.items():
        assert trees.files(mount / name) == made
    after = ckptfs.json("info", store, "1000")
    assert after["version"] == before["version"] + 2 and [v["event"] for v in after["versions"]] == ["marker", "delete", "marker"]
    assert {k: after[k] for k in ("files", "bytes", "metrics", "number")} == {k: before[k] for k in ("files", "bytes", "metrics", "number")}
    assert ckptfs.json("verify", store)["bad"] == []


def test_name_of_a_deleted_step_is_free_and_each_that_had_it_can_be_had_back(mount, saved, stage, commit, ckptfs, store):
    ckptfs("rm", store, "1000")
    again = stage("1000", seed="again")
    commit(mount / "1000")
    assert trees.files(mount / "1000") == again
    refused = ckptfs("undelete", store, "1000", check=False)
    assert refused.returncode == 1 and "hint: " in refused.stderr
    ckptfs("rm", store, "1000")
    mount.remount()
    newest, older = names(ckptfs, store, "--trash")
    assert newest == "1000" and older.startswith("1000.")
    assert trees.files(mount / ".ckptfs/trash" / newest) == again
    assert trees.files(mount / ".ckptfs/trash" / older) == saved["1000"]
    ckptfs("undelete", store, older)
    assert trees.files(mount / "1000") == saved["1000"]
    assert names(ckptfs, store, "--trash") == ["1000"]


@both_modes
def test_what_is_open_of_a_deleted_step_can_be_read_to_its_end(mount, stage, commit, ckptfs, store):
    made = stage("1000", size=300_000)
    commit(mount / "1000")
    mount.remount()  # nothing of it is in the kernel's memory
    held = {path: open(mount / "1000" / path, "rb") for path in made}
    folder = os.open(mount / "1000", os.O_RDONLY)
    ckptfs("rm", store, "1000")
    for path, f in held.items():
        assert f.read() == made[path]
        f.close()
    assert set(os.listdir(folder)) >= {path.split("/")[0] for path in made}
    os.close(folder)
    assert not (mount / "1000").exists()


def test_a_step_that_rm_r_has_removed_comes_back_whole_while_a_file_of_it_is_open(mount, saved, ckptfs, store):
    """The kernel never again lists a directory that it has removed, and knows it as long as what was in it is open."""
    before = trees.describe(mount / "1000", inodes=True)
    held = os.open(mount / "1000/params/layer_1/w1.bin", os.O_RDONLY)
    shutil.rmtree(mount / "1000")
    assert mount.listing() == ["2000", "a"]
    ckptfs("undelete", store, "1000")
    assert trees.describe(mount / "1000", inodes=True) == before
    assert os.pread(held, 1 << 20, 0) == saved["1000"]["params/layer_1/w1.bin"]
    os.close(held)
    shutil.rmtree(mount / "1000")
    ckptfs("undelete", store, "1000")
    assert trees.describe(mount / "1000", inodes=True) == before and mount.errors() == []


def test_deleted_for_good_is_gone_from_the_disk(mount, saved, where, ckptfs, store):
    sessions = len(os.listdir(store / "sessions"))
    with where:
        assert ckptfs("rm", "--now", store, "1000", check=False, stdin=subprocess.DEVNULL).returncode == 2, "nobody could be asked"
        ckptfs("rm", "--now", "--yes", store, "1000")
        ckptfs("rm", store, "2000")
        ckptfs("rm", "--now", "--yes", store, "trash/2000")
        assert names(ckptfs, store, "--all") == ["a/step_1"]
        assert ckptfs("undelete", store, "2000", check=False).returncode == 1
    wait_until(lambda: len(os.listdir(store / "sessions")) == sessions - 2 and os.listdir(store / "trash") == [], what="the end of the files")
    assert mount.listing() == ["a"]


def test_trash_empties_itself(mount, saved, ckptfs, store):
    ckptfs("rm", store, "1000")
    mount.remount(options=["trash=1s"])
    ckptfs("rm", store, "2000")
    time.sleep(1.5)
    mount.remount()
    wait_until(lambda: names(ckptfs, store, "--trash") == [], 5, "the end of what has expired")
    wait_until(lambda: len(os.listdir(store / "sessions")) == 1 and os.listdir(store / "trash") == [], 5, "the end of its files")
    assert names(ckptfs, store) == ["a/step_1"]


def test_deleted_steps_cannot_be_changed_in_the_trash(mount, saved, ckptfs, store):
    ckptfs("rm", store, "1000")
    kept = mount / ".ckptfs/trash/1000"
    for change in (lambda: trees.write(kept / "config.json", b"x"), lambda: os.unlink(kept / "config.json"), lambda: os.mkdir(kept / "d"),
                   lambda: os.rename(kept, mount / "3000"), lambda: trees.write(kept / ".finalize", b""), lambda: os.rmdir(kept)):
        with pytest.raises(OSError):
            change()
    assert trees.files(kept) == saved["1000"]


def test_step_whose_place_is_taken_or_gone_stays_in_the_trash(mount, saved, where, ckptfs, store, scratch):
    ckptfs("rm", store, "1000", "a/step_1")
    os.rmdir(mount / "a")
    ckptfs("begin", store, "plain")
    (mount / "plain/f").write_bytes(b"x")
    ckptfs("commit", store, "plain")
    ckptfs("rm", store, "plain")
    (mount / "plain").mkdir()
    with where:
        labels = names(ckptfs, store, "--trash")
        [orphan] = [name for name in labels if name.endswith("step_1")]
        for name in ("plain", orphan):
            done = ckptfs("undelete", store, name, check=False)
            assert done.returncode == 1 and "hint: " in done.stderr
        assert sorted(names(ckptfs, store, "--trash")) == sorted(labels)
        ckptfs("get", store, f"trash/{orphan}", scratch / "back")
        assert trees.files(scratch / "back") == saved["a/step_1"]
        ckptfs("undelete", store, "1000")
    assert trees.files(mount / "1000") == saved["1000"]


def test_deletion_survives_the_daemons_death(mount, saved, ckptfs, store):
    ckptfs("rm", store, "1000")
    mount.kill9()
    mount.start()
    assert mount.listing() == ["2000", "a"]
    ckptfs("undelete", store, "1000")
    mount.kill9()
    mount.start()
    assert mount.listing() == ["1000", "2000", "a"] and trees.files(mount / "1000") == saved["1000"]


@pytest.mark.parametrize("words", [["nothing"], ["trash/1000"], ["1000/nothing"], ["latest~7"]])
def test_what_is_no_step_is_refused_and_the_others_are_done(mount, saved, ckptfs, store, words):
    done = ckptfs("rm", store, *words, "2000", check=False)
    assert done.returncode in (1, 2) and done.stderr.startswith("ckptfs: ")
    assert mount.listing() == ["1000", "a"]


def test_a_disk_that_refuses_is_told_of_alike_with_and_without_a_mount(world, store, commit, ckptfs):
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix)
    for name in ("1000", "2000"):
        (m / name).mkdir()
        trees.fill(m / name)
        commit(m / name)
    syncs.die()
    mounted = ckptfs("rm", store, "1000", check=False)
    syncs.live()
    ckptfs("rm", store, "1000")
    m.umount()
    syncs.die()
    at_rest = subprocess.run([*syncs.prefix, str(ckptfs), "rm", store, "2000"], capture_output=True, text=True, timeout=30, check=False)
    assert (mounted.returncode, at_rest.returncode) == (1, 1)
    assert mounted.stderr.splitlines()[-1] == at_rest.stderr.splitlines()[-1] == "hint: look at the disk (`dmesg`), then try again"
