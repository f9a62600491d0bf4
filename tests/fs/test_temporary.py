"""Temporary steps: each goes to the trash when another is committed after it in its folder, unless it is made permanent."""

import os
import subprocess
import time

import pytest

from support import trees
from support.fixtures import both_modes
from support.last_acts import eformer
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)
TEMPORARY = b'{"temporary":true}'


@pytest.fixture
def save(mount, stage, commit):
    """save("1000", TEMPORARY): {path: bytes} of a committed step."""
    def make(name, text=b""):
        (mount / name).parent.mkdir(exist_ok=True)
        made = stage(name)
        commit(mount / name, text)
        return made
    return make


def xattr(path):
    return os.getxattr(path, "user.ckptfs.temporary").decode()


def gone(mount, name):
    wait_until(lambda: not os.path.lexists(mount / name), timeout=30, what=f"the end of {name}")


def trash(ckptfs, store):
    return [row["name"] for row in ckptfs.json("ls", "--trash", store)]


@both_modes
def test_the_last_temporary_step_alone_survives_the_next_commit(mount, save, store, ckptfs, mode):
    made = save("1000", TEMPORARY)
    assert xattr(mount / "1000") == "true"
    save("a/step_1", TEMPORARY)
    save("2000", TEMPORARY)
    gone(mount, "1000")
    assert mount.listing() == ["2000", "a"] and mount.listing("a") == ["step_1"], "another folder's commits do not count"
    assert trees.files(mount / ".ckptfs/trash/1000") == made and trash(ckptfs, store) == ["1000"]
    save("3000")
    assert xattr(mount / "3000") == "false"
    gone(mount, "2000")
    save("1000")  # the name is free
    time.sleep(6)
    assert mount.listing() == ["1000", "3000", "a"] and mount.errors() == []
    assert mount.status()["removing"] == 0


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_promoted_and_pinned_steps_stay(mount, save, store, ckptfs, scratch, mounted):
    for name in ("1000", "2000"):
        save(name, TEMPORARY)
        ckptfs("promote" if name == "1000" else "pin", mount / name)
    if not mounted:
        mount.umount()
    assert ckptfs.json("promote", store, "1000") == {"ok": True}
    step = ckptfs.json("info", store, "1000")
    assert step["temporary"] is False and step["version"] == 2, "once is enough"
    assert ckptfs("ls", store, "--where", "temporary = true").stdout.split() == ["2000"]
    (scratch / "from").mkdir()
    trees.fill(scratch / "from")
    ckptfs("save", store, scratch / "from", "3000")
    time.sleep(6 if mounted else 0)
    assert ckptfs("ls", store).stdout.split() == ["1000", "2000", "3000"]
    ckptfs("rm", store, "1000")
    for word, status in (("1000", 1), ("trash/1000", 2), ("2000/config.json", 2)):
        done = ckptfs("promote", store, word, check=False)
        assert done.returncode == status and len(done.stderr.splitlines()) == 2, done.stderr


def test_verbs_without_a_mount_do_it_by_themselves(mount, save, store, ckptfs, scratch):
    save("1000", TEMPORARY)
    (scratch / "from").mkdir()
    trees.fill(scratch / "from")
    (scratch / "meta").write_bytes(TEMPORARY)
    (mount / "a").mkdir()
    mount.umount()
    ckptfs("save", "--metadata", scratch / "meta", store, scratch / "from", "2000")
    assert ckptfs("ls", store).stdout.split() == ["2000"] and trash(ckptfs, store) == ["1000"]
    ckptfs("save", store, scratch / "from", "a/1")
    assert ckptfs("ls", store).stdout.split() == ["2000", "a/1"]
    ckptfs("save", store, scratch / "from", "3000")
    assert ckptfs("ls", store).stdout.split() == ["3000", "a/1"]
    ckptfs("undelete", store, "2000")
    assert ckptfs("ls", store).stdout.split() == ["2000", "3000", "a/1"]
    ckptfs("save", store, scratch / "from", "4000")
    assert ckptfs("ls", store).stdout.split() == ["2000", "3000", "4000", "a/1"], "it is permanent now"


def test_an_open_file_of_it_is_read_to_its_end(mount, save):
    made = save("1000", TEMPORARY)
    name = "params/layer_0/w0.bin"
    with open(mount / "1000" / name, "rb") as f:
        head = f.read(100)
        save("2000")
        gone(mount, "1000")
        assert head + f.read() == made[name]


def test_a_step_that_is_changed_or_removed_just_then_is_left_alone(mount, save, commit, store, ckptfs):
    save("1000", TEMPORARY)
    trees.write(mount / "1000/config.json", b"{}")  # reopened
    save("2000", TEMPORARY)
    top = os.open(mount / "2000", os.O_RDONLY)
    os.unlink(mount / "2000/config.json")  # as rm -r begins
    save("3000")
    time.sleep(6)
    os.close(top)
    assert (mount / "1000").exists() and (mount / "2000").exists() and trash(ckptfs, store) == []
    commit(mount / "1000")
    assert xattr(mount / "1000") == "false" and (mount / "1000/config.json").read_bytes() == b"{}"


@pytest.mark.parametrize("how", ["kill9", "umount"])
def test_what_is_left_by_a_mount_that_ended_goes_after_the_next_commit(mount, save, store, ckptfs, how):
    save("1000", TEMPORARY)
    save("2000", TEMPORARY)
    getattr(mount, how)()
    mount.start()
    time.sleep(6)
    assert mount.listing() == ["1000", "2000"], "a mount alone deletes nothing"
    ckptfs("promote", store, "1000")
    save("3000")
    gone(mount, "2000")
    assert mount.listing() == ["1000", "3000"]
    mount.kill9()
    mount.start()
    assert mount.listing() == ["1000", "3000"] and trash(ckptfs, store) == ["2000"]


def test_a_frameworks_own_word_counts_and_its_own_removal_is_let_by(mount, stage, store, ckptfs):
    for name in ("run-50", "run-100"):
        for _ in eformer(str(mount / name)):
            pass
        assert xattr(mount / name) == "true"
    subprocess.run(["rm", "-r", mount / "run-50"], check=True)  # as eFormer does after its save
    for _ in eformer(str(mount / "run-150")):
        pass
    gone(mount, "run-100")
    assert mount.listing() == ["run-150"] and mount.errors() == []
