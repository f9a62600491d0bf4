"""The digests of arrays: what they are of, and what they spare."""

import hashlib
import json
import os
import shutil

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)

PART = 4 << 20


@pytest.fixture
def options(request):
    return getattr(request, "param", ["seal=yes", "findings=elements"])


@pytest.fixture
def looked(ckptfs, commit):
    def wait(mount, step):
        commit(mount / step)
        wait_until(lambda: ckptfs.json("info", mount.path, step)["findings"], 60, f"findings of {step}")
        return {row["name"]: row["digest"] for row in ckptfs.json("arrays", mount.path, step)}

    return wait


def arrays():
    dice = np.random.default_rng(1)
    return {
        "small": dice.standard_normal(7, np.float32),
        "half": dice.standard_normal((300, 301)).astype(ml_dtypes.bfloat16),
        "part": dice.integers(0, 255, PART, np.uint8),
        "large": dice.standard_normal((3, 700_001), np.float32),
        "none": np.zeros((0, 4), np.int64),
        "number": np.array(3, np.int64),
    }


def digest(array):
    data = np.ascontiguousarray(array).tobytes()
    if len(data) <= PART:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha256(b"".join(hashlib.sha256(data[at : at + PART]).digest() for at in range(0, len(data), PART))).hexdigest()


def test_they_are_of_the_elements_whatever_the_format(mount, looked, ckptfs, store):
    values = arrays()
    want = {name: digest(array) for name, array in values.items()}
    (mount / "1").mkdir()
    save_file(values, mount / "1/model.safetensors")
    assert looked(mount, "1") == want
    plain = {name: array for name, array in values.items() if name != "half"}
    (mount / "2").mkdir()
    np.savez_compressed(mount / "2/model.npz", **plain)
    assert looked(mount, "2") == {name: want[name] for name in plain}
    (mount / "3").mkdir()
    torch.save({"turned": torch.from_numpy(values["large"]).t(), "swapped": torch.arange(5)}, mount / "3/model.pt")
    np.save(mount / "3/big_endian.npy", values["small"].astype(">f4"))
    assert looked(mount, "3") == {"turned": digest(values["large"].T), "swapped": digest(np.arange(5)), "big_endian": want["small"]}
    index = json.loads((mount / "1/.arrays/index.json").read_bytes())
    assert {row["name"]: row["digest"] for row in index} == want
    assert {np.load(mount / f"1/.arrays/{name}.npy").tobytes() for name in want} == {array.tobytes() for array in values.values()}, "as .npy has them"


@pytest.mark.parametrize("options", [["seal=yes", "findings=headers"]], indirect=True)
def test_without_elements_they_come_from_the_chunks(mount, looked):
    values = arrays()
    (mount / "1").mkdir()
    save_file(values, mount / "1/model.safetensors")
    said = looked(mount, "1")
    assert said["number"] is None, "it shares a chunk"
    assert all(said[name] == digest(array) for name, array in values.items() if said[name] or array.nbytes >= 64 << 10)


def test_diff_reads_nothing_of_equal_arrays_across_formats(mount, looked, ckptfs, store):
    values = {name: array for name, array in arrays().items() if name != "half"}
    (mount / "1").mkdir()
    save_file(values, mount / "1/model.safetensors")
    (mount / "2").mkdir()
    np.savez_compressed(mount / "2/model.npz", **values)
    for step in ("1", "2"):
        looked(mount, step)
    mount.umount()
    ckptfs("cool", store, "1")
    ckptfs("cool", store, "2")
    shutil.move(store / "packs", store.parent / "packs.away")
    (store / "packs").mkdir()
    said = json.loads(ckptfs("diff", "--json", "--arrays", store, "1", "2", check=False).stdout)
    assert said["arrays"] == {"added": [], "removed": [], "changed": [], "same": len(values), "unknown": [], "unread": []}


def test_digests_of_files_that_may_have_changed_are_not_trusted(mount, looked, ckptfs, store):
    values = {"w": np.arange(4096, dtype=np.int32)}
    for step, array in (("1", values["w"]), ("2", values["w"]), ("3", values["w"].view(np.float32))):
        (mount / step).mkdir()
        save_file({"w": array}, mount / step / f"model-{step}.safetensors")
        looked(mount, step)
    mount.umount()
    (raw,) = store.glob("sessions/*/model-2.safetensors")
    stat, data = raw.stat(), bytearray(raw.read_bytes())
    data[-1] ^= 1
    with raw.open("r+b") as f:
        f.write(data)
    os.utime(raw, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    changed = lambda a, b: [row["array"] for row in json.loads(ckptfs("diff", "--json", "--arrays", store, a, b, check=False).stdout)["arrays"]["changed"]]  # noqa: E731
    assert changed("1", "2") == ["w"] and changed("1", "3") == ["w"]
