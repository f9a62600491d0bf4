"""The catalog of a step is kept beside its findings: whoever lists its arrays later reads none of its files."""

import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)

COUNT = 10_000


@pytest.fixture
def options(request):
    return getattr(request, "param", ["seal=yes", "findings=headers"])


@pytest.fixture
def looked(ckptfs):
    def wait(where, step):
        wait_until(lambda: ckptfs.json("info", where, step)["findings"], 60, f"findings of {step}")

    return wait


@pytest.fixture
def save(mount, commit, looked):
    def save(name, arrays):
        (mount / name).mkdir()
        save_file(arrays, mount / name / "model.safetensors")
        commit(mount / name)
        looked(mount.path, name)

    return save


def names(where):
    return sorted(name for name in os.listdir(where / ".arrays") if name.endswith(".npy"))


def no_data(store):
    """Takes away what all data are in. The manifests stay."""
    shutil.move(store / "packs", store.parent / "packs.away")
    (store / "packs").mkdir()
    assert not list(store.glob("sessions/*/*.safetensors"))


def test_a_fresh_mount_lists_ten_thousand_arrays_of_a_packed_step_without_its_files(mount, store, save, ckptfs):
    arrays = {f"layers.{i}.weight": np.full(2, i, np.float32) for i in range(COUNT)}
    save("1000", arrays)
    rows = ckptfs.json("arrays", mount.path, "1000")
    assert len(rows) == COUNT
    mount.umount()
    ckptfs("cool", store, "1000")
    assert ckptfs.json("arrays", store, "1000") == rows
    no_data(store)
    mount.remount()
    assert names(mount / "1000") == sorted(f"{name}.npy" for name in arrays)
    assert os.stat(mount / "1000/.arrays/layers.77.weight.npy").st_size == 128 + 8
    assert sorted(json.loads((mount / "1000/.arrays/index.json").read_bytes()), key=str) == sorted(rows, key=str)
    assert names_of_view(mount / "1000/.views/only=layers.7*.weight") == [f"layers.{i}.weight.npy" for i in sorted(range(COUNT), key=str) if str(i)[0] == "7"]
    mount.umount()
    assert ckptfs("check", store, "1000", check=False).returncode, "check reads the files"


def names_of_view(view):
    return sorted(name for name in os.listdir(view) if name.endswith(".npy"))


def test_a_version_with_other_files_has_a_catalog_of_its_own(mount, store, save, looked, ckptfs):
    save("1000", {"a": np.arange(3), "b": np.arange(4)})
    os.chmod(mount / "1000/model.safetensors", 0o600)
    os.utime(mount / "1000/model.safetensors", (5, 5))
    save_file({"c": np.arange(5)}, mount / "1000/more.safetensors")
    wait_until(lambda: names(mount / "1000") == ["a.npy", "b.npy", "c.npy"], what="the array that was added")
    wait_until(lambda: (found := ckptfs.json("info", mount.path, "1000")["findings"]) and found["arrays"] == 3, 60, "the findings of now")
    assert names(mount / "1000") == ["a.npy", "b.npy", "c.npy"]
    mount.umount()
    ckptfs("cool", store, "1000")
    no_data(store)
    assert [row["name"] for row in ckptfs.json("arrays", store, "1000")] == ["a", "b", "c"]


def test_gc_and_verify_know_nothing_new(mount, store, save, ckptfs):
    """A catalog goes with its manifest: there is no object of its own to lose, or to be left over."""
    save("1000", {f"{i}": np.arange(20_000) + i for i in range(40)})
    mount.umount()
    ckptfs("cool", store, "1000")
    before = {path.name for path in store.glob("packs/*")}
    ckptfs("gc", store)
    assert {path.name for path in store.glob("packs/*")} == before
    assert ckptfs("verify", store).returncode == 0
    no_data(store)
    assert len(ckptfs.json("arrays", store, "1000")) == 40


def write(top, arrays):
    top.mkdir()
    save_file(arrays, top / "model.safetensors")


@pytest.mark.parametrize("options", [["seal=yes", "findings=off"]], indirect=True)
def test_a_mount_without_findings_keeps_it_with_the_seal(mount, store, commit, ckptfs):
    write(mount / "1000", {"a": np.arange(3), "b": np.arange(4)})
    commit(mount / "1000")
    ckptfs("wait", mount.path, "--sealed", "1000")
    save_file({"c": np.arange(5)}, mount / "1000/more.safetensors")
    ckptfs("wait", mount.path, "--sealed", "1000")
    row = ckptfs.json("info", mount.path, "1000")
    assert row["findings"] is None
    assert [v["event"] for v in row["versions"]].count("seal") == 2, "it makes no version of its own"
    mount.umount()
    ckptfs("cool", store, "1000")
    no_data(store)
    assert [row["name"] for row in ckptfs.json("arrays", store, "1000")] == ["a", "b", "c"]


def test_a_copy_and_an_import_have_one_once_they_are_sealed(mount, store, save, ckptfs, scratch):
    save("1000", {"a": np.arange(3)})
    mount.umount()
    other = scratch / "other"
    ckptfs("copy", store, other)
    assert [row["name"] for row in ckptfs.json("arrays", other, "1000")] == ["a"]
    write(scratch / "files", {"b": np.arange(3)})
    ckptfs("save", other, scratch / "files", "2000")
    for step in ("1000", "2000"):
        ckptfs("cool", other, step)
    no_data(other)
    assert [[row["name"] for row in ckptfs.json("arrays", other, step)] for step in ("1000", "2000")] == [["a"], ["b"]]
