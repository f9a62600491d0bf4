"""Files that editors and desktops make in a committed step: they work as on ext4, and no version has them."""

import errno
import os
import shutil
import subprocess
import sys
import time

import pytest

from support import trees
from support.fixtures import both_modes, needs_root
from support.mounting import wait_until

pytestmark = [pytest.mark.timeout(60), pytest.mark.parametrize("options", ["commit_quiet=1s"], indirect=True)]

ARRAY = b"\x93NUMPY\x01\x00" + b"a" * 5000
FILES = {"config.json": b'{"a": 1}\n', "sub/notes.txt": b"notes\n", "saved~": b"a backup that was saved with it\n", "array.npy": ARRAY}
NAMES = [".config.json.swp", ".config.json.swx", "4913", "config.json~", ".#config.json", "#config.json#", ".nfs00000000a1",
         ".DS_Store", ".fuse_hidden0000a1"]


@pytest.fixture
def step(mount, commit):
    (mount / "1000").mkdir()
    for path, data in FILES.items():
        trees.put(mount / "1000" / path, data)
    commit(mount / "1000")
    return mount / "1000"


@pytest.fixture
def version(ckptfs, store):
    return lambda: ckptfs.json("info", store, "1000")["version"]


@pytest.fixture
def is_unchanged(mount, store, ckptfs, version):
    """The step is listed, no version was made, and verify agrees."""
    def check():
        assert "1000" in mount.listing() and version() == 1
        assert ckptfs.json("verify", store, "--read-data")["bad"] == [] and mount.errors() == []
    return check


def with_files(**more):
    return dict(FILES, **more)


@both_modes
@pytest.mark.parametrize("folder", ["", "sub"])
def test_they_work_as_on_ext4_and_no_version_has_them(mount, step, is_unchanged, folder):
    where = step / folder
    for name in NAMES:
        path = where / name
        with open(path, "xb") as f:
            f.write(b"0123456789")
        with pytest.raises(FileExistsError):
            os.mkdir(path)
        with open(path, "r+b") as f:
            f.seek(4)
            f.write(b"xx")
        with open(path, "ab") as f:
            f.write(b"end")
        os.truncate(path, 12)
        os.chmod(path, 0o600)
        assert path.read_bytes() == b"0123xx6789en" and os.stat(path).st_mode & 0o777 == 0o600
    assert set(NAMES) < set(os.listdir(where))
    is_unchanged()
    mount.remount()  # what was swapped is found again
    assert set(NAMES) < set(os.listdir(where)) and (where / NAMES[0]).read_bytes() == b"0123xx6789en"
    for name in NAMES:
        os.unlink(where / name)
        with pytest.raises(FileNotFoundError):
            os.stat(where / name)
    assert trees.files(step) == FILES
    is_unchanged()


def test_a_link_a_folder_and_their_names(step, is_unchanged):
    os.symlink("me@host.1", step / ".#config.json")
    assert os.readlink(step / ".#config.json") == "me@host.1"
    os.link(step / "config.json", step / "config.json~")
    assert (step / "config.json~").read_bytes() == FILES["config.json"]
    (step / ".ipynb_checkpoints/deep").mkdir(parents=True)
    (step / ".ipynb_checkpoints/deep/a-checkpoint.ipynb").write_bytes(b"{}")
    assert sorted(os.listdir(step)) == sorted({p.split("/")[0] for p in FILES} | {".#config.json", "config.json~", ".ipynb_checkpoints"})
    os.rename(step / "config.json~", step / "4913")
    with pytest.raises(OSError) as e:
        os.rmdir(step / ".ipynb_checkpoints")
    assert e.value.errno == errno.ENOTEMPTY
    shutil.rmtree(step / ".ipynb_checkpoints")
    os.unlink(step / ".#config.json")
    os.unlink(step / "4913")
    assert trees.files(step) == FILES
    is_unchanged()


def test_such_a_name_that_was_saved_with_the_step_is_the_step_s(mount, step, version):
    with open(step / "saved~", "ab") as f:
        f.write(b"more")
    assert (step / "saved~").read_bytes() == FILES["saved~"] + b"more"
    wait_until(lambda: version() == 2, what="the edit")
    os.unlink(step / "saved~")
    wait_until(lambda: version() == 3, what="the removal")
    (step / "saved~").write_bytes(b"beside")
    assert (step / "saved~").read_bytes() == b"beside" and os.listdir(step).count("saved~") == 1
    os.rename(step / "saved~", step / "config.json")
    assert trees.files(step) == {p: b"beside" if p == "config.json" else d for p, d in FILES.items() if p != "saved~"}
    mount.remount()
    assert (step / "config.json").read_bytes() == b"beside"


@both_modes
def test_a_backup_is_made_by_rename_and_the_file_written_anew(mount, step, version):
    """As vim does with backupcopy=no, and emacs."""
    held = open(step / "config.json", "rb")
    swap = open(step / ".config.json.swp", "xb")
    os.rename(step / "config.json", step / "config.json~")
    assert (step / "config.json~").read_bytes() == FILES["config.json"]
    with open(step / "config.json", "xb") as f:
        f.write(b"{}")
    assert (step / "config.json").read_bytes() == b"{}" and held.read() == FILES["config.json"]
    held.close()
    os.unlink(step / "config.json~")
    swap.close()
    os.unlink(step / ".config.json.swp")
    wait_until(lambda: version() > 1, what="the edit")
    for _ in range(2):
        assert trees.files(step) == with_files(**{"config.json": b"{}"}) and mount.listing() == ["1000"]
        mount.remount()


def test_a_backup_is_put_back(mount, step):
    os.rename(step / "config.json", step / "config.json~")
    assert "config.json" not in os.listdir(step)
    os.rename(step / "config.json~", step / "config.json")
    for _ in range(2):
        assert trees.files(step) == FILES
        mount.remount()


def test_vim(mount, step, version):
    if not shutil.which("vim"):
        pytest.skip("vim is not installed")
    for i, options in enumerate(["backupcopy=yes", "backupcopy=no", "backup backupskip="]):
        subprocess.run(["vim", "-u", "NONE", "-es", "-c", f"set nocompatible swapfile {options}", "-c", f"normal Go{i}",
                        "-c", "wq", step / "config.json"], check=True, timeout=30, stdin=subprocess.DEVNULL)
        wait_until(lambda i=i: (step / "config.json").read_text().split()[-1] == str(i), what=options)
    wait_until(lambda: version() > 1 and mount.listing() == ["1000"], what="the version")
    assert set(os.listdir(step)) - {p.split("/")[0] for p in FILES} == {"config.json~"}
    os.unlink(step / "config.json~")
    mount.remount()
    assert trees.files(step) == with_files(**{"config.json": FILES["config.json"] + b"0\n1\n2\n"})


def test_while_the_step_is_being_changed(mount, step):
    (step / ".config.json.swp").write_bytes(b"before")
    with open(step / "array.npy", "r+b", buffering=0) as f:
        f.seek(100)
        f.write(b"b")
        assert mount.listing() == []
        assert (step / ".config.json.swp").read_bytes() == b"before" and ".config.json.swp" in os.listdir(step)
        (step / "sub/4913").write_bytes(b"meanwhile")
        assert sorted(os.listdir(step / "sub")) == ["4913", "notes.txt"]
    wait_until(lambda: mount.listing() == ["1000"], timeout=20, what="the re-save")
    assert (step / "sub/4913").read_bytes() == b"meanwhile"
    os.unlink(step / "sub/4913")
    os.unlink(step / ".config.json.swp")
    assert trees.files(step).keys() == FILES.keys()


def test_they_go_with_the_step(mount, step, ckptfs, store):
    (step / "config.json~").write_bytes(b"old")
    (step / "sub/4913").write_bytes(b"")
    for path in (step, step / "sub"):
        with pytest.raises(OSError) as e:
            os.rmdir(path)
        assert e.value.errno == errno.ENOTEMPTY
    os.rename(step, mount / "1000-best")
    assert (mount / "1000-best/config.json~").read_bytes() == b"old"
    os.rename(mount / "1000-best", step)
    ckptfs("rm", store, "1000")
    ckptfs("undelete", store, "1000")
    assert (step / "config.json~").read_bytes() == b"old"
    shutil.rmtree(step)
    assert mount.listing() == []
    trees.put(mount / "1000/config.json", b"{}")  # another step of the name has none of them
    (mount / "1000/.finalize").touch()
    assert trees.files(step) == {"config.json": b"{}"}


def test_what_stands_beside_no_step_is_removed_at_a_mount(mount, step, store, ckptfs):
    (step / "config.json~").write_bytes(b"old")
    (step / ".ipynb_checkpoints").mkdir()
    (step / ".ipynb_checkpoints/x").write_bytes(b"x")
    beside = store / "tree/.ckptfs"
    mount.remount()
    assert len(os.listdir(beside)) == 1 and mount.listing() == ["1000"]
    ckptfs("rm", store, "1000")
    ckptfs("trash", "empty", "--yes", store)
    mount.remount()
    wait_until(lambda: not os.listdir(beside) and not os.listdir(store / "trash"), what="the sweep")


def test_a_name_that_was_removed_and_is_made_again_is_the_step_s(mount, step, agent):
    """Its writer is killed, and the removal may be dropped: then one of the two is there, and rm -r removes it."""
    a = agent()
    a.run("os.listdir(step); os.unlink(step + '/saved~'); open(step + '/saved~', 'w').write('anew')", step=str(step))
    assert (step / "saved~").read_bytes() == b"anew"
    a.kill()
    a.wait_gone(5)
    wait_until(lambda: mount.listing() == ["1000"], what="the step is listed")
    assert (step / "saved~").read_bytes() == b"anew" and os.listdir(step).count("saved~") == 1
    shutil.rmtree(step)
    assert mount.listing() == []


def test_what_the_step_hides_does_not_keep_it_from_being_removed(mount, step, version):
    os.unlink(step / "saved~")
    wait_until(lambda: version() == 2, what="the removal")
    (step / "saved~").write_bytes(b"beside")
    os.rename(step / "config.json", step / "x")
    os.rename(step / "x", step / "config.json~")
    shutil.rmtree(step)
    assert mount.listing() == []


@pytest.mark.parametrize("name", ["2000~", "4913", ".ipynb_checkpoints/2000"])
def test_no_step_moves_in(mount, step, commit, name):
    (mount / "2000").mkdir()
    trees.put(mount / "2000/array.npy", ARRAY)
    commit(mount / "2000")
    (step / ".ipynb_checkpoints").mkdir()
    with pytest.raises(OSError) as e:
        os.rename(mount / "2000", step / name)
    assert e.value.errno == errno.EXDEV and mount.listing() == ["1000", "2000"]


@pytest.mark.parametrize("name", ["checkpoint-7", "step_5", "4913", "x.tmp", "global_step7"])
def test_nothing_below_is_a_step(mount, step, ckptfs, store, name):
    folder = step / ".Trash-0/files" / name
    folder.mkdir(parents=True)
    for file in ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json", "meta.pt", ".metadata"):
        trees.put(folder / file, b"{}")
    assert os.listdir(step / ".Trash-0/files") == [name] and len(os.listdir(folder)) == 6
    assert ckptfs.json("sessions", store) == [] and [s["name"] for s in ckptfs.json("ls", store)] == ["1000"]
    shutil.rmtree(step / ".Trash-0")
    assert sorted(os.listdir(step)) == sorted({p.split("/")[0] for p in FILES})


@both_modes
@pytest.mark.parametrize("to", ["1000/t~", "t"])
def test_the_new_name_is_the_file_s_at_once(mount, step, to):
    """The kernel takes it for the file of the step that had the old name, until it is told better."""
    for i in range(20):
        (step / "t").write_bytes(b"text")
        os.rename(step / "t", mount / to)
        os.chmod(mount / to, 0o600)
        os.utime(mount / to, (1, 1))
        os.setxattr(mount / to, "user.x", b"1")
        st = os.stat(mount / to)
        assert (st.st_mode & 0o777, st.st_mtime, os.getxattr(mount / to, "user.x")) == (0o600, 1, b"1"), i
        (mount / to).write_bytes(b"new")
        assert (mount / to).read_bytes() == b"new"
        os.unlink(mount / to)


BACKUPS = """
import os, sys
file = sys.argv[1]
while True:
    os.rename(file, file + "~")
    with open(file, "x") as f:
        f.write("new")
"""


@pytest.mark.parametrize("after", [0.3, 0.5, 0.7])
def test_a_daemon_that_is_killed_lets_its_clients_go(mount, step, after):
    """It has just told the kernel to look a name up again: for that it must not wait for a lock that a client has."""
    client = subprocess.Popen([sys.executable, "-c", BACKUPS, step / "config.json"], stderr=subprocess.DEVNULL)
    time.sleep(after)
    mount.kill9()
    assert client.wait(20) == 1
    mount.start()
    assert mount.listing() == ["1000"]


def test_a_backup_is_no_rm_r(mount, step):
    """Its maker may have listed the directory before, and lives on."""
    os.listdir(step)
    os.rename(step / "config.json", step / "config.json~")
    assert mount.listing() == ["1000"]


@needs_root
def test_setgid(mount, step):
    os.chown(step, -1, 1234)
    os.chmod(step, 0o2775)
    for name in ("f", "f~"):
        (step / name).touch()
        (step / f"d{name}").mkdir()
        assert (step / name).stat().st_gid == 1234 and (step / f"d{name}").stat().st_gid == 1234
        assert (step / f"d{name}").stat().st_mode & 0o2000


@pytest.mark.parametrize("option", ["amend=deny", "ro"])
def test_not_where_nothing_may_be_changed(mount, step, option):
    (step / "config.json~").write_bytes(b"old")
    mount.remount(options=[option])
    with pytest.raises(OSError) as e:
        (step / ".config.json.swp").write_bytes(b"")
    assert e.value.errno == errno.EROFS
    assert (step / "config.json~").read_bytes() == b"old" and "config.json~" in os.listdir(step)
