"""derive, killed between the files that stand for chunks and the commit: until this they have no byte, and no one takes them for files."""

import errno
import hashlib
import os
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support import trees

pytestmark = pytest.mark.timeout(60)

FILE = "model.safetensors"
XATTR = "user.ckptfs.chunks"


def stand_for_chunks(store, data, *, of):
    """The one staged session gets what derive puts there for FILE of the committed session `of`."""
    (session,) = [p for p in (store / "sessions").iterdir() if p.name != of]
    path = session / FILE
    with open(path, "xb") as f:
        os.setxattr(f.fileno(), XATTR, f"{of} {hashlib.sha256(data).hexdigest()} {FILE}".encode())
        os.fchmod(f.fileno(), 0o400)
    return path


@pytest.fixture
def array():
    return np.random.default_rng(4).standard_normal(100_000)


@pytest.fixture
def packed(mount, store, commit, ckptfs, array):
    """A step, 1000, in packs: (its session, the bytes of FILE)."""
    top = mount / "1000"
    top.mkdir()
    save_file({"w": array}, top / FILE)
    os.chmod(top / FILE, 0o640)
    commit(top)
    data = (top / FILE).read_bytes()
    (session,) = os.listdir(store / "sessions")
    ckptfs("cool", mount.path, "1000")
    return session, data


@pytest.fixture
def killed(mount, store, packed):
    """Step 2000 as a killed derive leaves it."""
    (mount / "2000").mkdir()
    stand_for_chunks(store, packed[1], of=packed[0])
    return mount / "2000"


def told(mount):
    return [line for line in mount.errors() if "stand for chunks" in line]


def write_in(path):
    os.close(os.open(path, os.O_WRONLY))


@pytest.mark.parametrize("act", {
    "rename": lambda file, to: os.rename(file, to / "moved"),
    "link": lambda file, to: os.link(file, to / "linked"),
    "read": lambda file, to: file.read_bytes(),
    "write among": lambda file, to: write_in(file),
    "truncate": lambda file, to: os.truncate(file, 0),
    "chmod": lambda file, to: os.chmod(file, 0o644),
    "chown": lambda file, to: os.chown(file, 4, 4),
    "utime": lambda file, to: os.utime(file, (1, 1)),
    "setxattr": lambda file, to: os.setxattr(file, "user.note", b"x"),
}.items(), ids=lambda item: item[0])
@pytest.mark.parametrize("place", ["plain folder", "staged step", "committed step"])
def test_no_act_takes_a_stand_in_for_a_file(mount, killed, commit, act, place):
    to = mount / {"plain folder": "infer", "staged step": "3000", "committed step": "1000"}[place]
    to.mkdir(exist_ok=True)
    there = sorted(os.listdir(to))
    for _ in range(2):
        with pytest.raises(PermissionError) as refused:
            act[1](killed / FILE, to)
        assert refused.value.errno == errno.EPERM
    assert len(told(mount)) == 1 and "2000" in told(mount)[0] and "ckptfs abort" in told(mount)[0]
    assert sorted(os.listdir(to)) == there and "1000" in mount.listing()
    assert os.listdir(killed) == [FILE]


def test_a_link_beside_it_is_refused_and_a_rename_is_not(mount, killed, commit, packed):
    with pytest.raises(PermissionError):
        os.link(killed / FILE, killed / "other")
    (killed / "sub").mkdir()
    os.rename(killed / FILE, killed / "sub/other")
    commit(killed)
    assert trees.files(killed) == {"sub/other": packed[1]}


def test_mv_of_the_folder_that_it_is_in_loses_nothing(mount, killed, packed, commit):
    (killed / "sub").mkdir()
    os.rename(killed / FILE, killed / "sub" / FILE)
    run = subprocess.run(["mv", killed / "sub", mount / "infer"], capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "Operation not permitted" in run.stderr
    assert os.listdir(killed / "sub") == [FILE]
    commit(killed)
    assert (killed / "sub" / FILE).read_bytes() == packed[1]


def test_its_step_does_not_become_a_plain_folder(mount, killed, ckptfs, packed):
    with pytest.raises(PermissionError):
        os.rename(killed, mount / "my model")
    (killed / "checkpoint-5").mkdir()  # as in a run's folder
    assert "2000" not in mount.listing() and len(told(mount)) == 1
    ckptfs("commit", mount.path, "2000")
    assert (killed / FILE).read_bytes() == packed[1]


@pytest.mark.parametrize("how", ["marker", "verb", "rename", "remount"])
def test_a_commit_without_its_derive_gives_the_bytes(mount, store, killed, commit, ckptfs, array, packed, how):
    if how == "marker":
        commit(killed)
    elif how == "rename":
        (mount / "3000.orbax-checkpoint-tmp").mkdir()
        os.rename(killed, mount / "3000.orbax-checkpoint-tmp/state")
        os.rename(mount / "3000.orbax-checkpoint-tmp", mount / "3000")
        killed = mount / "3000/state"
    else:
        if how == "remount":
            mount.remount()
        ckptfs("commit", mount.path, "2000")
    assert load_file(killed / FILE)["w"].tobytes() == array.tobytes()
    assert os.stat(killed / FILE).st_mode & 0o777 == 0o640, "the mode of the file that it stood for"
    os.rename(killed / FILE, mount / FILE)
    assert (mount / FILE).read_bytes() == packed[1]
    assert told(mount) == [] and ckptfs.json("verify", mount.path, "--read-data")["bad"] == []


def test_a_commit_whose_source_is_gone_is_refused(mount, store, killed, ckptfs):
    ckptfs("rm", "--now", "--yes", mount.path, "1000")
    refused = ckptfs("commit", mount.path, "2000", check=False)
    assert refused.returncode == 1
    assert mount.listing() == []


def test_a_save_over_it_has_its_own_bytes(mount, killed, commit):
    """A framework that saves to the same name empties each file first."""
    with open(killed / FILE, "wb"):
        pass
    save_file({"x": np.ones(3)}, killed / "other.safetensors")
    commit(killed)
    assert (killed / FILE).read_bytes() == b"" and load_file(killed / "other.safetensors").keys() == {"x"}
    assert told(mount) == []


def test_an_open_that_fails_does_not_empty_it(mount, killed, ckptfs, packed):
    """At the limit of unfinished work nothing is opened for writing."""
    (mount / "3000").mkdir()
    (mount / "3000/big").write_bytes(bytes(4 << 20))
    mount.remount(options=["work_limit=4MiB"])
    with pytest.raises(OSError) as refused:
        open(killed / FILE, "wb")
    assert refused.value.errno in (errno.EDQUOT, errno.ENOSPC)
    ckptfs("abort", "--yes", mount.path, "3000")
    ckptfs("commit", mount.path, "2000")
    assert (killed / FILE).read_bytes() == packed[1]
