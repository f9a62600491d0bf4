"""Reopened steps that quiet or a restart ends: their changes are committed, or given up and kept."""

import os
import time

import pytest

from support import trees
from support.fixtures import SLOW, both_modes
from support.mounting import wait_until
from support.reopening import CHANGES, W0, append, assert_is, base, change_append, change_unlink_and_create, change_write, each_change, found, killed_in_the_middle, latest, listed, one, origin, quiet  # noqa: F401

pytestmark = pytest.mark.timeout(60)


@found
@quiet
@each_change
def test_edit_that_is_quiet_is_committed(mount, base, ckptfs, store, change):
    """None of these files holds arrays: a second is enough, whatever was done, and the step keeps its place."""
    step, files = base
    old = dict(files)
    CHANGES[change](step, files)
    assert listed(mount) == []
    wait_until(lambda: listed(mount) == ["1000"], timeout=4 * SLOW, what="the next version")
    assert_is(mount, "1000", files, ["900"])
    assert trees.files(mount / ".ckptfs/trash/1000") == old
    assert ckptfs.json("info", store, "1000")["event"] == "quiet" and mount.errors() == []
    assert ckptfs.json("sessions", store) == []


def test_edit_does_not_make_a_step_the_latest(mount, commit, ckptfs, store):
    for name in ("900", "1000"):
        (mount / name).mkdir()
        trees.fill(mount / name)
        commit(mount / name)
    mount.remount(options=["commit_quiet=1s"])
    append(mount / "900/config.json")
    wait_until(lambda: mount.listing() == ["1000", "900"], what="the next version")
    for _ in range(2):
        assert latest(mount) == "1000" and ckptfs("latest", store).stdout.strip() == "1000"
        mount.remount()


@pytest.fixture
def arrays(mount, commit, origin):
    """A committed step of two arrays and a file beside them; the mount takes what is quiet for a second."""
    step = mount / "1000"
    step.mkdir()
    files = {"a.safetensors": tensors(b"a"), "b.safetensors": tensors(b"b"), "config.json": b"{}"}
    for name, data in files.items():
        trees.write(step / name, data)
    commit(step)
    mount.remount(options=["commit_quiet=500ms"])
    return step, files


def tensors(data, size=5000):
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
    return len(header).to_bytes(8, "little") + header + data * size


@found
@both_modes
def test_arrays_that_were_written_anew_are_committed_after_the_longer_time(mount, arrays):
    step, files = arrays
    began = time.monotonic()
    files["a.safetensors"] = tensors(b"c")
    trees.write(step / "a.safetensors", files["a.safetensors"])
    wait_until(lambda: listed(mount) == ["1000"], timeout=10 * SLOW, what="the next version")
    assert time.monotonic() - began >= 3
    assert_is(mount, "1000", files)
    assert mount.errors() == []


@found
def test_arrays_that_are_cut_off_are_given_up(mount, arrays, ckptfs, store):
    step, files = arrays
    os.truncate(step / "a.safetensors", 3000)
    wait_until(mount.errors, timeout=10 * SLOW, what="a line in errors")
    assert "a.safetensors is cut off" in mount.errors()[0]
    assert_is(mount, "1000", files)
    assert [(s["name"], s["state"]) for s in ckptfs.json("sessions", store)] == [("1000", "left")]


@found
@pytest.mark.parametrize("anew", [1, 2])
def test_writer_that_is_killed_in_a_file_has_written_nothing(mount, arrays, agent, anew):
    step, files = arrays
    for name in list(files)[:anew]:
        trees.write(step / name, tensors(b"c"))
    killed_in_the_middle(agent, step / "config.json")
    wait_until(mount.errors, timeout=10 * SLOW, what="a line in errors")
    assert "was killed while it wrote a file of it" in mount.errors()[0]
    assert_is(mount, "1000", files)


@found
@pytest.mark.parametrize("anew", [1, 2])
def test_writer_that_is_killed_between_files_has_written_each_array_or_none(mount, arrays, agent, anew):
    """It has nothing open: by 1 array anew of 2 the step is half of one save and half of another."""
    step, files = arrays
    new = {name: tensors(b"%d" % n) for n, name in enumerate(list(files)[:anew])}
    a = agent()
    for name, data in new.items():
        a.run("f = open(path, 'wb'); f.write(data); f.close()", path=str(step / name), data=data)
    a.kill()
    wait_until(lambda: listed(mount) == ["1000"], timeout=10 * SLOW, what="the end of the reopened step")
    if anew == 1:
        wait_until(mount.errors, what="a line in errors")
        assert "not yet: b.safetensors" in mount.errors()[0]
    assert_is(mount, "1000", files if anew == 1 else {**files, **new})


@found
@quiet
@pytest.mark.parametrize("change", ["write", "rename dir", "unlink and create", "link"])
def test_changes_of_a_killed_writer_are_given_up_and_kept(mount, base, ckptfs, store, agent, change):
    step, files = base
    old = dict(files)
    numbers = trees.describe(step, inodes=True)
    killed_in_the_middle(agent, step / "config.json")
    files["config.json"] += b"half"
    CHANGES[change](step, files)
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    assert trees.files(step) == old and latest(mount) == "1000"
    assert trees.describe(step, inodes=True) == numbers
    assert trees.files(mount / ".ckptfs/staged/1000") == files
    wait_until(mount.errors, what="a line in errors, which comes after the end")
    assert len(mount.errors()) == 1 and "1000" in mount.errors()[0] and "the previous version is restored" in mount.errors()[0]
    assert [(s["name"], s["state"]) for s in ckptfs.json("sessions", store)] == [("1000", "left")]
    mount.remount()
    assert mount.listing() == ["1000", "900"] and trees.files(step) == old
    assert trees.files(mount / ".ckptfs/staged/1000") == files
    assert len(ckptfs.json("ls", store, "--trash")) == 0


@quiet
def test_given_up_step_can_be_changed_again_which_supersedes_the_changes_of_before(mount, one, ckptfs, store, commit, agent):
    step, files = one
    killed_in_the_middle(agent, step / W0)
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    change_append(step, files)
    assert listed(mount) == []
    commit(step)
    assert_is(mount, "1000", files)
    assert [s["state"] for s in ckptfs.json("sessions", store)] == ["left"], "it goes after staging_ttl"


@quiet
@pytest.mark.parametrize("verb", ["resume", "commit", "abort"])
@pytest.mark.parametrize("remounted", [False, True], ids=["", "after a remount"])
def test_given_up_changes_can_be_taken_up_completed_or_dropped(mount, one, ckptfs, store, commit, agent, verb, remounted):
    step, files = one
    old = dict(files)
    killed_in_the_middle(agent, step / "config.json")
    files["config.json"] += b"half"
    change_write(step, files)
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    if remounted:
        mount.remount()
    ckptfs(verb, *(["--yes"] if verb == "abort" else []), store, "1000")
    if verb == "resume":
        assert listed(mount) == [] and trees.files(step) == files
        change_append(step, files)
        commit(step)
    assert_is(mount, "1000", old if verb == "abort" else files)
    assert ckptfs.json("sessions", store) == []
    assert [r["name"] for r in ckptfs.json("ls", store, "--trash")] == ([] if verb == "abort" else ["1000"])
    assert ckptfs.json("verify", store)["bad"] == []


@pytest.mark.parametrize("end", ["killed", "unmounted"])
def test_restart_gives_up_the_changes_that_an_orderly_end_commits(mount, base, ckptfs, store, end):
    step, files = base
    old = dict(files)
    change_write(step, files)
    change_unlink_and_create(step, files)
    if end == "unmounted":
        mount.remount()
        assert_is(mount, "1000", files, ["900"])
        assert ckptfs.json("sessions", store) == [] and mount.errors() == []
        return
    mount.kill9()
    mount.start()
    assert mount.listing() == ["1000", "900"] and trees.files(step) == old
    assert trees.files(mount / ".ckptfs/staged/1000") == files
    assert ckptfs.json("verify", store)["bad"] == []
    assert any("1000" in line for line in mount.errors()), "nobody is told that the changes were not completed"
