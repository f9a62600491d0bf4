"""The limits of unfinished work: work_limit and user_limit. What is refused at them, what goes on, and what makes room."""

import errno
import os
import re
import shutil
import subprocess
import time

import pytest

from support import checkpoint_files, trees
from support.fixtures import both_modes, needs_root
from support.mounting import Mount, wait_until

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20
USER, OTHER = 4003, 4004


@pytest.fixture
def options():
    return ["work_limit=4MiB"]


def errno_of(call, *args):
    with pytest.raises(OSError) as e:
        call(*args)
    return e.value.errno


def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def open_for_writing(path, flags=0):
    os.close(os.open(path, os.O_WRONLY | flags))


def append(path):
    with open(path, "ab", buffering=0) as f:
        f.write(b"x")


def lines(mount, subject="work_limit"):
    return [line.split("\t") for line in mount.errors() if line.split("\t")[1] == subject]


def fill(mount, folder="1", name="big"):
    """Fills the limit up, and waits until the mount knows: the kernel writes in passthrough without a word to it."""
    (mount / folder).mkdir(exist_ok=True)
    with open(mount / folder / name, "wb", buffering=0) as f:
        if mount.mode == "passthrough":
            f.write(b"x" * 4 * MIB)
        else:
            with pytest.raises(OSError):
                while True:
                    f.write(b"x" * 4096)
    wait_until(lambda: lines(mount), 10)


# --- At the limit -----------------------------------------------------------------------------------------------------


@both_modes
def test_at_the_limit_nothing_more_is_written(mount):
    (mount / "1/sub").mkdir(parents=True)
    trees.write(mount / "1/small", b"x")
    trees.write(mount / "1/sub/.finalize", b"x")  # none, down there
    fill(mount)
    for call, *args in ((create, mount / "1/new"), (create, mount / "1/sub/new"), (create, mount / "new.pt"), (os.mkdir, mount / "2"), (os.mknod, mount / "1/node"),
                        (open_for_writing, mount / "1/small"), (open_for_writing, mount / "1/small", os.O_APPEND), (os.truncate, mount / "1/small", 10)):
        assert errno_of(call, *args) == errno.ENOSPC, (call, args)
    assert sorted(os.listdir(mount / "1")) == ["big", "small", "sub"] and mount.listing() == []
    # What takes nothing, or gives something back.
    assert (mount / "1/small").read_bytes() == b"x"
    os.truncate(mount / "1/small", 0)
    os.rename(mount / "1/small", mount / "1/sub/small")
    os.link(mount / "1/sub/small", mount / "1/again")
    os.symlink("big", mount / "1/link")
    os.mkdir(mount / "1/more")
    os.unlink(mount / "1/big")
    time.sleep(0.1)  # so soon it looks again
    create(mount / "1/new")


@both_modes
def test_plain_files_trackers_and_committed_steps_are_never_refused(mount, stage, commit):
    stage("0", files=2)
    commit(mount / "0")
    trees.write(mount / "latest.txt", b"0")
    fill(mount)
    trees.write(mount / "log", b"x" * 5 * MIB)
    trees.write(mount / "latest.txt", b"1")
    assert (mount / "latest.txt").read_bytes() == b"1"
    trees.write(mount / "0/late", b"x" * MIB)
    (mount / "logs").mkdir()
    assert "late" in os.listdir(mount / "0")
    assert errno_of(append, mount / "0/config.json") == errno.ENOSPC  # else it would be reopened, in no listing, and to no end
    assert errno_of(open_for_writing, mount / "0/config.json", os.O_TRUNC) == errno.ENOSPC
    assert mount.listing() == ["0", "latest.txt", "log", "logs"]
    shutil.rmtree(mount / "0")
    assert errno_of(create, mount / "1/new") == errno.ENOSPC


@both_modes
@pytest.mark.parametrize("end", ["marker", "verb", "last act", "rename of the last file", "rename"])
def test_a_commit_works_and_makes_room_at_once(mount, ckptfs, store, end):
    folder = {"last act": "checkpoint-1", "rename": "1.orbax-checkpoint-tmp-0"}.get(end, "1")
    if "last" in end:
        (mount / folder).mkdir()
        trees.write(mount / folder / ("__0_0.distcp" if folder == "1" else "optimizer.pt"), checkpoint_files.zip_file())
    fill(mount, folder)
    assert errno_of(create, mount / folder / "new") == errno.ENOSPC
    if end == "marker":
        trees.write(mount / "1/.finalize", b"{}")
    elif end == "verb":
        ckptfs("commit", store, "1")
    elif end == "last act":
        trees.write(mount / folder / "trainer_state.json", b'{"global_step": 1}')
    elif end == "rename of the last file":
        trees.write(mount / "1/.metadata.tmp", b"x")
        os.rename(mount / "1/.metadata.tmp", mount / "1/.metadata")
    else:
        os.rename(mount / folder, mount / "1")
    (mount / "2").mkdir()
    trees.write(mount / "2/a", b"x" * MIB)
    assert mount.listing() == ["checkpoint-1" if end == "last act" else "1"]


@both_modes
@pytest.mark.parametrize("how", ["abort", "rm"])
def test_what_is_dropped_makes_room_at_once(mount, ckptfs, store, how):
    fill(mount)
    assert errno_of(os.mkdir, mount / "2") == errno.ENOSPC
    if how == "abort":
        ckptfs("abort", "--yes", store, "1")
    else:
        shutil.rmtree(mount / "1")
    (mount / "2").mkdir()
    trees.write(mount / "2/a", b"x")


def test_through_the_daemon_no_byte_too_many_is_written(world, store):
    mount = Mount.new(world, store, mode="daemon", options=["work_limit=4MiB"])
    (mount / "1").mkdir()
    fd = os.open(mount / "1/a", os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(4):
        assert os.pwrite(fd, b"x" * MIB, os.lseek(fd, 0, os.SEEK_END)) == MIB
    assert errno_of(os.pwrite, fd, b"x", 4 * MIB) == errno.ENOSPC
    assert os.pwrite(fd, b"y" * MIB, MIB) == MIB  # that is there already
    assert errno_of(os.posix_fallocate, fd, 4 * MIB, MIB) == errno.ENOSPC
    os.ftruncate(fd, MIB)
    os.pwrite(fd, b"z" * MIB, MIB)
    os.close(fd)
    assert os.stat(mount / "1/a").st_size == 2 * MIB
    (mount / "source").write_bytes(b"x" * 3 * MIB)
    done = subprocess.run(["cp", mount / "source", mount / "1/copy"], check=False, capture_output=True, text=True)
    assert done.returncode == 1 and "No space left" in done.stderr


def test_fallocate_is_asked_in_passthrough_too(mount):
    (mount / "1").mkdir()
    with open(mount / "1/a", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 3 * MIB)
        assert errno_of(os.posix_fallocate, f.fileno(), 3 * MIB, 2 * MIB) == errno.ENOSPC
        os.posix_fallocate(f.fileno(), 0, 3 * MIB)


# --- What counts ------------------------------------------------------------------------------------------------------


@both_modes
def test_what_is_shared_with_a_step_is_free(mount, commit):
    fill(mount)
    commit(mount / "1")
    for copy in ("2", "3", "4"):
        subprocess.run(["cp", "-al", mount / "1", mount / copy], check=True)
    assert mount.status()["work_bytes"] == 0
    trees.write(mount / "4/new", b"x" * MIB)
    assert mount.status()["work_bytes"] == MIB
    commit(mount / "2")
    assert mount.listing() == ["1", "2"]


@both_modes
def test_left_over_sessions_of_a_killed_daemon_count(mount, ckptfs, store):
    fill(mount)
    mount.kill9()
    mount.start()
    assert mount.status()["work_bytes"] >= 4 * MIB
    assert errno_of(os.mkdir, mount / "2") == errno.ENOSPC
    assert errno_of(create, mount / "a.pt") == errno.ENOSPC
    session, = ckptfs.json("sessions", store)
    assert session["state"] == "interrupted"
    ckptfs("abort", "--yes", store, session["id"])
    (mount / "2").mkdir()
    create(mount / "a.pt")


@both_modes
def test_new_content_of_a_file_step_counts_until_it_is_published(mount):
    with open(mount / "a.pt", "wb", buffering=0) as f:
        f.write(b"x" * 3 * MIB)
        assert mount.status()["work_bytes"] == 3 * MIB
        with open(mount / "b.pt", "wb", buffering=0) as g:
            assert g.write(b"x" * 2 * MIB) == (MIB if mount.mode == "daemon" else 2 * MIB)
            if mount.mode == "daemon":
                assert errno_of(g.write, b"x") == errno.ENOSPC
            wait_until(lambda: lines(mount), 10)
            assert errno_of(create, mount / "c.pt") == errno.ENOSPC
    assert mount.status()["work_bytes"] == 0
    create(mount / "c.pt")


def test_what_was_cut_off_by_the_limit_is_not_published(world, store):
    import numpy as np

    mount = Mount.new(world, store, mode="daemon", options=["work_limit=1MiB"])
    with pytest.raises(OSError):
        np.save(mount / "a.npy", np.zeros(MIB))
    assert mount.listing() == []


# --- Each user --------------------------------------------------------------------------------------------------------


@needs_root
@both_modes
def test_each_user_has_a_limit_of_his_own(world, store, mode, agent):
    mount = Mount.new(world, store, mode=mode, options=["allow_other", "user_limit=2MiB"])
    mount.path.chmod(0o777)
    for name, uid in (("1", USER), ("2", OTHER)):
        agent(uid=uid).run("os.mkdir(path); open(path + '/a', 'wb').write(bytes(1 << 20))", path=str(mount / name))
    user, other = agent(uid=USER), agent(uid=OTHER)
    user.run("fd = os.open(path, os.O_WRONLY | os.O_CREAT); os.write(fd, bytes(1 << 20)); os.close(fd)", path=str(mount / "1/b"))
    if mode == "passthrough":
        wait_until(lambda: lines(mount, "user_limit"), 10)
    for code in ("open(path + '/1/c', 'wb')", "open(path + '/1/a', 'ab')", "os.mkdir(path + '/3')", "open(path + '/a.pt', 'wb')"):
        assert user.errno_of(code, path=str(mount.path)) == "EDQUOT"
    other.run("open(path, 'wb').write(b'x')", path=str(mount / "2/b"))
    (mount / "3").mkdir()
    trees.write(mount / "3/a", b"x" * 4 * MIB)
    line, = lines(mount, "user_limit")
    assert line[2] == "EDQUOT" and f"user {USER} takes 2MiB of the 2MiB" in line[3]
    user.run("open(path, 'w').close(); os.mkdir(other)", path=str(mount / "1/.finalize"), other=str(mount / "4"))


# --- What is said -----------------------------------------------------------------------------------------------------


@both_modes
def test_it_is_said_once_and_shown(mount, ckptfs, store):
    assert (mount.status()["work_bytes"], mount.status()["work_limit"]) == (0, 4 * MIB)
    fill(mount)
    for _ in range(20):
        assert errno_of(create, mount / "1/new") == errno.ENOSPC
    line, = lines(mount)
    # Blocks that are being written down are counted twice by ext4 for a moment.
    assert line[2] == "ENOSPC" and re.fullmatch(r"unfinished work takes \d+[KM]iB of the 4MiB of work_limit: nothing more can be written", line[3])
    assert "`ckptfs abort`" in line[4] and "work_limit" in line[4] and "commit" in line[4]
    wait_until(lambda: (mount.status()["work_bytes"], mount.status()["work_limit"]) == (4 * MIB, 4 * MIB))
    assert re.search(rf"^work +{4 * MIB} of {4 * MIB} bytes$", (mount / ".ckptfs/status").read_text(), re.M)
    assert re.search(r"^work +4\.0MiB of 4\.0MiB \(work_limit\)$", ckptfs("status", store).stdout, re.M)
    metrics = (mount / ".ckptfs/metrics").read_text()
    assert f"\nckptfs_work_bytes {4 * MIB}\n" in metrics and f"\nckptfs_work_limit_bytes {4 * MIB}\n" in metrics
    mount.umount()
    assert ckptfs.json("status", store)["work_bytes"] is None  # the limit was the mount's
    ckptfs("config", store, "work_limit=8MiB")
    assert ckptfs.json("status", store)["work_bytes"] == 4 * MIB


@pytest.mark.parametrize("options", [[]])
def test_without_a_limit_nothing_is_refused(mount, stage, store, ckptfs):
    stage("1")
    assert mount.status()["work_bytes"] is None and mount.status()["work_limit"] is None  # nobody walks for it
    assert "work " not in (mount / ".ckptfs/status").read_text() and "ckptfs_work_" not in (mount / ".ckptfs/metrics").read_text()
    assert ckptfs.json("config", store, "work_limit") == {"work_limit": {"value": None, "default": None, "of": "node", "help": ckptfs.json("config", store)["work_limit"]["help"]}}


@pytest.mark.parametrize("word", ["work_limit=", "work_limit=0", "work_limit=-1", "work_limit=4XB", "work_limit=much", "work_limit=100KiB", "work_limit=2000PiB", "work_limit",
                                  "user_limit=50%", "user_limit=", "user_limit"])
def test_what_is_no_size_is_refused(world, store, ckptfs, word):
    (world.scratch / "m").mkdir()
    done = ckptfs("mount", store, world.scratch / "m", "-o", word, check=False)
    assert done.returncode == 2 and done.stderr.startswith(f"ckptfs: -o {word}: ") and "wants a size from 1MiB" in done.stderr
    if "=" in word and not word.endswith("="):
        ckptfs("init", store)
        assert ckptfs("config", store, word, check=False).returncode == 2


def test_the_store_says_it_and_a_mount_may_say_otherwise(world, store, ckptfs):
    ckptfs("init", "--set", "work_limit=4MiB", store)
    mount = Mount.new(world, store)
    assert mount.status()["work_limit"] == 4 * MIB
    mount.remount(["work_limit=none"])
    assert mount.status()["work_limit"] is None
    fill_freely = mount / "1"
    fill_freely.mkdir()
    trees.write(fill_freely / "a", b"x" * 5 * MIB)
    mount.remount([])
    assert errno_of(os.mkdir, mount / "2") == errno.ENOSPC
    source = world.scratch / "source"
    source.mkdir()
    (source / "a").write_bytes(b"x")
    for mounted in (True, False):  # what goes past the mount, or needs none
        done = ckptfs("save", store, source, "3", check=False)
        assert done.returncode == 1 and "No space left" in done.stderr and "hint: " in done.stderr
        if mounted:
            done = ckptfs("begin", store, "3", check=False)
            assert done.returncode == 1 and "No space left" in done.stderr
            mount.umount()
    for session in ckptfs.json("sessions", store):
        ckptfs("abort", "--yes", store, session["id"])
    ckptfs("save", store, source, "3")
