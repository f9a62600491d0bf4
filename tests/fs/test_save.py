"""A folder becomes a step and a step a folder, by verbs, with a mount and without one."""

import os
import signal
import subprocess

import pytest

from support import trees
from support.fixtures import needs_root
from support.mounting import LoopDisk, Mount, wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["mounted", "at rest"])
def where(request, mount):
    if request.param == "at rest":
        mount.umount()
    yield request.param
    if request.param == "at rest":
        mount.start()


@pytest.fixture
def folder(scratch):
    """A folder with all that a step may have: (path, {path: bytes})."""
    path = scratch / "out"
    path.mkdir()
    made = trees.fill(path)
    os.link(path / "config.json", path / "again.json")
    os.setxattr(path / "config.json", "user.note", b"kept")
    os.chmod(path / "config.json", 0o640)
    os.utime(path / "config.json", ns=(1, 1_234_567_890_123_456_789))
    os.chmod(path / "params", 0o750)
    os.utime(path / "params", ns=(1, 987_654_321_000_000_001))
    return path, made | {"again.json": made["config.json"]}


def like(path):
    """What must be the same of a file."""
    st = os.lstat(path)
    return (st.st_mode, st.st_size, st.st_mtime_ns, st.st_uid, st.st_gid)


def assert_same(a, b, made):
    assert trees.files(a) == trees.files(b) == made
    for path in [*made, "params"]:
        assert like(a / path) == like(b / path), path
    assert os.getxattr(b / "config.json", "user.note") == b"kept"
    assert os.stat(b / "config.json").st_ino == os.stat(b / "again.json").st_ino and os.stat(b / "config.json").st_nlink == 2


def test_folder_becomes_a_step_and_the_step_a_folder(mount, where, folder, ckptfs, store, scratch):
    path, made = folder
    (path / ".finalize").write_text("")
    saved = ckptfs.json("save", store, path, "1000")
    (path / ".finalize").unlink()
    assert (saved["step"], saved["bytes"]) == ("1000", sum(map(len, made.values())) - len(made["again.json"]))
    assert saved["files"] == len(made) - 1, "hard links are one file"
    got = ckptfs.json("get", store, "1000", scratch / "back")
    assert got == saved
    assert_same(path, scratch / "back", made)
    if where == "at rest":
        mount.start()
    assert mount.listing() == ["1000"]
    assert_same(path, mount / "1000", made)
    assert ckptfs.json("info", store, "1000")["event"] == "verb"
    assert ckptfs.json("verify", store)["bad"] == []
    mount.remount()
    assert_same(path, mount / "1000", made)
    if where == "at rest":
        mount.umount()


def test_name_is_that_of_the_folder_and_metadata_comes_from_a_file(mount, where, folder, ckptfs, store):
    path, _ = folder
    ckptfs("save", "--metadata", "-", store, path, input='{"metrics":{"loss":1.5}}')
    assert ckptfs.json("info", store, "out")["metrics"] == {"loss": 1.5}


@pytest.mark.parametrize("what", ["taken", "no folder", "fifo", "bad name", "absent target"])
def test_what_cannot_be_saved_is_refused_and_leaves_nothing(mount, where, folder, ckptfs, store, what):
    path, _ = folder
    name = "1000"
    if what == "taken":
        ckptfs("save", store, path, "1000")
    elif what == "no folder":
        path = path / "config.json"
    elif what == "fifo":
        os.mkfifo(path / "params/fifo")
    elif what == "bad name":
        (path / "a\nb").write_text("x")
    else:
        name = "absent/1000"
    before = [r["name"] for r in ckptfs.json("ls", store)]
    done = ckptfs("save", store, path, name, check=False)
    assert done.returncode == 1 and done.stderr.startswith("ckptfs: ")
    assert what != "fifo" or "params/fifo" in done.stderr
    assert [r["name"] for r in ckptfs.json("ls", store)] == before
    assert ckptfs.json("sessions", store) == []


def test_step_comes_whole_or_not_at_all(mount, where, folder, ckptfs, store, scratch):
    path, made = folder
    ckptfs("save", store, path, "1000")
    full = scratch / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    assert ckptfs("get", store, "1000", full, check=False).returncode == 1
    assert os.listdir(full) == ["mine"]
    assert ckptfs("get", store, "1000", scratch / "absent/x", check=False).returncode == 1
    [session] = os.listdir(store / "sessions")
    (store / "sessions" / session / "params/layer_0/w0.bin").unlink()
    done = ckptfs("get", store, "1000", scratch / "back", check=False)
    assert done.returncode == 1 and "params/layer_0/w0.bin" in done.stderr and "hint: " in done.stderr
    assert not any(name.startswith("back") for name in os.listdir(scratch))
    (scratch / "empty").mkdir()
    assert ckptfs("get", store, "nothing", scratch / "empty", check=False).returncode == 1


def test_step_of_the_name_is_kept_unless_it_is_forced(mount, where, folder, ckptfs, store, scratch):
    path, made = folder
    other = scratch / "other"
    other.mkdir()
    (other / "model.bin").write_bytes(b"new weights")
    ckptfs("save", store, path, "1000")
    before = ckptfs.json("info", store, "1000")
    done = ckptfs("save", store, other, "1000", check=False)
    assert done.returncode == 1 and done.stderr.startswith("ckptfs: 1000: File exists\n") and "--force" in done.stderr
    if mount.alive():
        done = ckptfs("begin", store, "1000", check=False)
        assert done.returncode == 1 and "1000: File exists" in done.stderr and "save --force" in done.stderr
        assert sorted(os.listdir(mount / "1000")) == sorted(os.listdir(path))
        reader = open(mount / "1000/config.json", "rb")
    ckptfs("pin", store, "1000")
    assert ckptfs.json("save", store, other, "1000", "--force") == {"step": "1000", "files": 1, "bytes": 11}
    after = ckptfs.json("info", store, "1000")
    assert (after["version"] > before["version"], after["files"], after["bytes"], after["pinned"]) == (True, 1, 11, True)
    assert ckptfs("ls", store).stdout == "1000\n" and ckptfs("ls", "--trash", store).stdout == "1000\n" and ckptfs.json("sessions", store) == []
    assert ckptfs("cat", store, "1000", "model.bin").stdout == "new weights"
    if mount.alive():
        assert os.listdir(mount / "") == ["1000"] and os.listdir(mount / "1000") == ["model.bin"] and (mount / "1000/model.bin").read_bytes() == b"new weights"
        assert reader.read() == made["config.json"] and not os.path.exists(mount / "1000/config.json"), "who reads the old one keeps it"
        reader.close()
    got = scratch / "got"
    ckptfs("get", store, "trash/1000", got)
    assert_same(path, got, made)
    ckptfs("save", store, path, "1000", "--force")
    ckptfs("save", store, other, "2000", "--force")
    ckptfs("verify", store, "--read-data")
    if mount.alive():
        assert sorted(os.listdir(mount / "1000")) == sorted(os.listdir(path)) and mount.errors() == []
        mount.remount()
        assert sorted(os.listdir(mount / "1000")) == sorted(os.listdir(path))
    assert ckptfs("ls", store).stdout.split() == ["1000", "2000"]


def test_deleted_step_can_be_got_out_of_the_trash(mount, where, folder, ckptfs, store, scratch):
    path, made = folder
    ckptfs("save", store, path, "1000")
    ckptfs("rm", store, "1000")
    ckptfs("get", store, "trash/1000", scratch / "back")
    assert_same(path, scratch / "back", made)


@needs_root
@pytest.mark.parametrize("mounted", [True, False])
def test_full_disk_ends_a_save_with_nothing_left(world, scratch, ckptfs, mounted):
    disk = LoopDisk(world, 64)
    store = disk.path / "store"
    ckptfs("init", store)
    big = scratch / "big"
    big.mkdir()
    (big / "small").write_bytes(b"x")
    (big / "zz").write_bytes(bytes(100_000_000))
    if mounted:
        Mount.new(world, store)
    done = ckptfs("save", store, big, "1000", check=False)
    assert done.returncode == 1 and "big/zz" in done.stderr
    assert ckptfs.json("ls", store) == [] and ckptfs.json("sessions", store) == []
    wait_until(lambda: os.statvfs(disk.path).f_bavail * 4096 > 40_000_000, what="the end of what was copied")
    (big / "zz").unlink()
    ckptfs("save", store, big, "1000")


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_save_leaves_nothing(mount, where, ckptfs, store, scratch, sig):
    many = scratch / "many"
    many.mkdir()
    for n in range(5_000):
        (many / str(n)).touch()
    save = subprocess.Popen([ckptfs.path, "save", store, many, "1000"], stderr=subprocess.PIPE)
    wait_until(lambda: any(os.scandir(s.path) for s in os.scandir(store / "sessions")), 10, "the first file")
    save.send_signal(sig)
    assert save.wait(20) == 128 + sig
    assert ckptfs.json("ls", store) == [] and ckptfs.json("sessions", store) == []
