"""Arrays that change nothing share the blocks of a disk that can, with the file that they come from; elsewhere they are copied."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support.fixtures import needs_root
from support.mounting import LoopDisk, Mount

pytestmark = [pytest.mark.timeout(120), needs_root]

DISKS = {"ext4": None, "xfs": ["mkfs.xfs", "-q"], "xfs without reflink": ["mkfs.xfs", "-q", "-m", "reflink=0"], "btrfs": ["mkfs.btrfs", "-q"]}
SHARES = {"xfs", "btrfs"}


@pytest.fixture(params=DISKS)
def disk(request, world):
    mkfs = DISKS[request.param]
    if mkfs and not shutil.which(mkfs[0]):
        pytest.skip(f"no {mkfs[0]} on this machine")
    made = LoopDisk(world, 400, mkfs=mkfs)
    made.kind = request.param
    return made


@pytest.fixture
def made(disk, world, commit):
    """A step on the disk, at rest, whose models are between other arrays: {NAME: array} of these."""
    m = Mount.new(world, disk.path / "store")
    (m / "1000").mkdir()
    dice = np.random.default_rng(3)
    arrays = {f"{kind}.{i}": dice.standard_normal((256, 1024 + 1024 * i), np.float32) for i in range(3) for kind in ("model", "optimizer")}
    save_file({**arrays, "model.odd": np.arange(1001, dtype=np.float32)}, m / "1000/all.safetensors")
    commit(m / "1000")
    m.umount()
    return {**{name: array for name, array in arrays.items() if name.startswith("model")}, "model.odd": np.arange(1001, dtype=np.float32)}


def shared_bytes(path):
    subprocess.run(["sync", "-f", path], check=True)
    said = subprocess.run(["filefrag", "-v", "-b4096", path], check=True, capture_output=True, text=True).stdout
    return sum(int(m[1]) << 12 for m in re.finditer(r"^ *\d+: +\d+\.\. *\d+: +\d+\.\. *\d+: +(\d+):.*shared", said, re.M))


def check(path, kind, want):
    found = load_file(path)
    assert found.keys() == want.keys() and all(found[name].tobytes() == array.tobytes() for name, array in want.items())
    whole = sum(array.nbytes for array in want.values() if array.nbytes >= 1 << 20)
    shared = shared_bytes(path)
    assert whole * 0.95 <= shared if kind in SHARES else not shared, (kind, shared, whole)


def test_export_and_derive_share_what_lies_alike(disk, made, ckptfs):
    store = disk.path / "store"
    ckptfs("export", store, "1000", disk.path / "out", "-f", "safetensors", "--only", "model.**")
    check(disk.path / "out/model.safetensors", disk.kind, made)
    if disk.kind == "ext4":
        with open(disk.path / "out/model.safetensors", "rb") as f:
            assert int.from_bytes(f.read(8), "little") < 1000, "it is longer, and for nothing"
    ckptfs("derive", store, "1000", "part", "--only", "model.**")
    (raw,) = store.rglob("model.safetensors")
    check(raw, disk.kind, made)
    assert ckptfs.json("verify", store)["bad"] == []


def test_another_disk_and_other_formats_get_copies(disk, made, ckptfs, scratch):
    store = disk.path / "store"
    ckptfs("export", store, "1000", scratch / "away", "-f", "safetensors", "--only", "model.**")
    check(scratch / "away/model.safetensors", "another", made)
    ckptfs("export", store, "1000", disk.path / "npy", "-f", "npy", "--only", "model.**")
    for name, array in made.items():
        assert np.load(disk.path / "npy" / f"{name}.npy").tobytes() == array.tobytes()
    ckptfs("export", store, "1000", disk.path / "parts", "-f", "safetensors", "--only", "model.1", "--shard", "2of3", "--axis", "0")
    assert load_file(disk.path / "parts/model.safetensors")["model.1"].tobytes() == made["model.1"][86:172].tobytes()
    ckptfs("cool", store, "1000")
    ckptfs("export", store, "1000", disk.path / "packed", "-f", "safetensors", "--only", "model.**")
    found = load_file(disk.path / "packed/model.safetensors")
    assert all(found[name].tobytes() == array.tobytes() for name, array in made.items())
