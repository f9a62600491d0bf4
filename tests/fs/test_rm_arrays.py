"""rm --arrays: arrays go by the beginning of their names, in one new version of the step."""

import fcntl
import json
import os
import subprocess

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from support import trees
from support.fixtures import SOURCE
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)

PROGRAM = os.environ.get("CKPTFS") or str(SOURCE / "build/ckptfs")


@pytest.fixture
def made(mount, commit):
    """Arrays of a model and of its optimizer: in shards with an index, in one archive, in files of their own, and by torch."""
    top = mount / "1000"
    top.mkdir()
    dice = np.random.default_rng(60)
    arrays = {f"{kind}.{i}": dice.standard_normal((300, 100), np.float32) for kind in ("optim", "params") for i in range(4)}
    where, total = {}, 0
    for n, names in enumerate((["params.0", "params.1", "optim.0"], ["params.2", "optim.1"], ["optim.2", "optim.3"]), 1):
        file = f"model-{n:05}-of-00003.safetensors"
        save_file({name: arrays[name] for name in names}, top / file, metadata={"format": "np", "step": "7"})
        where.update(dict.fromkeys(names, file))
        total += sum(arrays[name].nbytes for name in names)
    np.savez_compressed(top / "state.npz", **{"optim.z": np.arange(1000), "params.z": np.arange(2000)})
    (top / "optim").mkdir()
    np.save(top / "optim/a.npy", np.arange(10))
    np.save(top / "params.npy", np.arange(10))
    torch.save({"optim": {"m": torch.arange(10.0)}, "lr": 0.1}, top / "optimizer.pt")
    trees.write(top / "config.json", b"{}")
    os.chmod(top / "state.npz", 0o640)
    index = {"metadata": {"total_size": total, "made_by": "hand"}, "weight_map": where}
    trees.write(top / "model.safetensors.index.json", json.dumps(index).encode())
    commit(top)
    return arrays


GONE = {"model-00003-of-00003.safetensors", "optim/a.npy", "optimizer.pt"}


@pytest.mark.parametrize("where", ["mounted", "at rest", "packed"])
def test_they_are_gone_and_all_else_is_as_it_was(mount, store, made, ckptfs, scratch, where):
    before = trees.files(mount / "1000")
    rows = {r["name"] for r in ckptfs.json("arrays", mount.path, "1000")}
    number = ckptfs.json("info", mount.path, "1000")["version"]
    if where == "packed":
        ckptfs("cool", mount.path, "1000")
    if where == "at rest":
        mount.umount()
    at = store if where == "at rest" else mount.path
    ckptfs("rm", "--arrays", "optim", at, "1000")
    if where == "at rest":
        mount.start()
    for _ in range(2):
        after = trees.files(mount / "1000")
        assert set(before) - set(after) == GONE and not set(after) - set(before)
        changed = {p for p in after if after[p] != before[p]}
        assert changed == {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model.safetensors.index.json", "state.npz"}
        assert {r["name"] for r in ckptfs.json("arrays", mount.path, "1000")} == {n for n in rows if not n.startswith("optim")}
        for n, names in (1, ["params.0", "params.1"]), (2, ["params.2"]):
            file = mount / f"1000/model-{n:05}-of-00003.safetensors"
            found = load_file(file)
            assert found.keys() == set(names) and all(found[name].tobytes() == made[name].tobytes() for name in names)
            with safe_open(file, "np") as f:
                assert f.metadata() == {"format": "np", "step": "7"}
        index = json.loads(after["model.safetensors.index.json"])
        assert index["metadata"] == {"total_size": 3 * made["params.0"].nbytes, "made_by": "hand"}
        assert index["weight_map"] == {name: f"model-{n:05}-of-00003.safetensors" for name, n in {"params.0": 1, "params.1": 1, "params.2": 2}.items()}
        with np.load(mount / "1000/state.npz") as z:
            assert z.files == ["params.z"] and np.array_equal(z["params.z"], np.arange(2000))
        assert os.stat(mount / "1000/state.npz").st_mode & 0o777 == 0o640
        mount.remount()
    assert ckptfs.json("verify", mount.path)["bad"] == [] and ckptfs.json("check", mount.path, "1000")["findings"] == []
    assert trees.files(mount / "1000") == after and mount.listing() == ["1000"]
    assert ckptfs.json("info", mount.path, "1000")["version"] > number
    ckptfs("restore", mount.path, "1000@-1")
    assert trees.files(mount / "1000") == before


def test_a_change_of_attributes_a_moment_before_is_kept(mount, made, ckptfs):
    """It is in the mount's memory, and in no version yet."""
    os.chmod(mount / "1000/state.npz", 0o604)
    os.setxattr(mount / "1000/state.npz", "user.note", b"kept")
    ckptfs("rm", "--arrays", "optim", mount.path, "1000")
    for _ in range(2):
        assert os.stat(mount / "1000/state.npz").st_mode & 0o777 == 0o604 and os.getxattr(mount / "1000/state.npz", "user.note") == b"kept"
        mount.remount()


def test_a_reader_goes_on_with_the_file_that_it_has(mount, made, ckptfs):
    file = mount / "1000/model-00001-of-00003.safetensors"
    data = file.read_bytes()
    with open(file, "rb") as f:
        ckptfs("rm", "--arrays", "optim", mount.path, "1000")
        assert f.read() == data
    assert len(file.read_bytes()) < len(data)


def test_what_cannot_be_rewritten_is_refused_and_stays(mount, made, ckptfs, commit):
    before = trees.files(mount / "1000")
    ckptfs("pin", mount.path, "1000")
    refused = ckptfs("rm", "--arrays", "optim", mount.path, "1000", check=False)
    assert refused.returncode == 1 and "pinned" in refused.stderr
    ckptfs("unpin", mount.path, "1000")
    for prefix, words in {"nosuch": "begins with nosuch", "": "no beginning"}.items():
        refused = ckptfs("rm", "--arrays", prefix, mount.path, "1000", check=False)
        assert refused.returncode and words in refused.stderr
    assert trees.files(mount / "1000") == before
    top = mount / "2000"
    top.mkdir()
    torch.save({"model": {"w": torch.ones(3)}, "optim": {"m": torch.ones(3)}}, top / "both.pt", _use_new_zipfile_serialization=False)
    commit(top)
    was = trees.files(mount / "2000")
    refused = ckptfs("rm", "--arrays", "optim", mount.path, "2000", check=False)
    assert refused.returncode == 1 and "torch" in refused.stderr and "derive" in refused.stderr, refused.stderr
    assert trees.files(mount / "2000") == was
    assert ckptfs("rm", "--arrays", "x", "--now", mount.path, "1000", check=False).returncode == 2


def test_killed_before_its_version_it_has_changed_nothing(mount, store, made, ckptfs):
    """By the disk's limit of the size of a file: the signal ends it in the middle of the second one."""
    before = trees.files(mount / "1000")
    mount.umount()
    run = subprocess.run(["sh", "-c", 'ulimit -f 300; exec "$0" "$@"', PROGRAM, "rm", "--arrays", "optim.0", store, "1000"], capture_output=True, check=False)
    assert run.returncode != 0
    mount.start()
    assert trees.files(mount / "1000") == before and ckptfs.json("verify", mount.path)["bad"] == []
    left = set(store.glob("sessions/*/.arrays-*"))
    assert left
    ckptfs("rm", "--arrays", "optim", mount.path, "1000")
    now = set(store.glob("sessions/*/.arrays-*"))
    assert now and not now & left, "what was left over goes, and the files of the version are there"
    assert set(before) - set(trees.files(mount / "1000")) == GONE


def waits_for_a_lock(pid):
    with open("/proc/locks") as f:
        return any(row[1] == "->" and str(pid) in row for row in map(str.split, f))


def test_while_another_asks_it_waits_with_its_files(mount, store, made, ckptfs):
    """The clean-up of the other's change would take them, once nobody holds the session's directory."""
    (session,) = (store / "sessions").iterdir()
    other, writes = os.open(store / "trash", os.O_RDONLY), os.open(session, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with subprocess.Popen([PROGRAM, "rm", "--arrays", "optim", mount.path, "1000"]) as run:
        wait_until(lambda: run.poll() is not None or waits_for_a_lock(run.pid), 30)
        assert run.poll() is None
        assert list(session.glob(".arrays-*"))
        with pytest.raises(BlockingIOError):
            fcntl.flock(writes, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
        assert run.wait(60) == 0
    fcntl.flock(writes, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(writes)
    assert not set(trees.files(mount / "1000")) & GONE and ckptfs.json("verify", mount.path)["bad"] == []
