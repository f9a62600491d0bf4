"""derive: arrays of a step become a new step of the same store, in one act."""

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from support import trees

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def made(mount, commit):
    """A step: a model in safetensors, its optimizer as torch has it."""
    top = mount / "1000"
    top.mkdir()
    dice = np.random.default_rng(5)
    model = {f"model.layers.{i}.weight": dice.standard_normal((64, 300), np.float32) for i in range(3)}
    save_file(model, top / "model.safetensors")
    torch.save({"exp_avg": torch.arange(5000.0), "step": torch.tensor(7)}, top / "optimizer.pt")
    trees.write(top / "config.json", b"{}")
    commit(top)
    return model


def same(found, want):
    assert found.keys() == want.keys()
    for name, array in want.items():
        assert found[name].dtype == array.dtype and found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("where", ["mounted", "at rest", "packed"])
def test_the_format_is_that_of_the_arrays(mount, store, made, ckptfs, scratch, where):
    if where != "mounted":
        mount.umount()
    if where == "packed":
        ckptfs("cool", store, "1000")
    at = mount.path if where == "mounted" else store
    said = ckptfs.json("derive", at, "1000", "serving", "--only", "model.**")
    assert (said["step"], said["format"], said["arrays"], said["files"]) == ("serving", "safetensors", 3, 1)
    ckptfs("derive", at, "1000", "optim", "--not", "model.**")
    ckptfs("derive", at, "1000", "small", "--only", "model.**", "--dtype", "bfloat16", "-f", "npz")
    assert [row["name"] for row in ckptfs.json("ls", at)] == ["1000", "optim", "serving", "small"]
    for name in "serving", "optim", "small":
        ckptfs("get", at, name, scratch / name)
    assert [x.name for x in (scratch / "serving").iterdir()] == ["model.safetensors"]
    same(load_file(scratch / "serving/model.safetensors"), made)
    assert [x.name for x in (scratch / "optim").iterdir()] == ["optimizer.pt"], "it stays as it is"
    found = torch.load(scratch / "optim/optimizer.pt", weights_only=True)
    assert found.keys() == {"exp_avg", "step"} and torch.equal(found["exp_avg"], torch.arange(5000.0)) and found["step"] == 7
    with np.load(scratch / "small/model.npz") as small:
        for name, array in made.items():
            assert small[name].tobytes() == array.astype(ml_dtypes.bfloat16).tobytes()
    assert ckptfs.json("verify", store)["bad"] == [] and ckptfs.json("sessions", at) == []


def test_mixed_formats_that_are_written_anew_become_safetensors(mount, made, ckptfs):
    assert ckptfs.json("derive", mount.path, "1000", "all", "--shard-bytes", "1GB")["format"] == "safetensors"
    same(load_file(mount / "all/model.safetensors"), {**made, "exp_avg": np.arange(5000, dtype=np.float32), "step": np.array(7)})
    assert ckptfs.json("derive", mount.path, "1000", "as-is")["format"] is None
    assert trees.files(mount / "as-is") == {p: d for p, d in trees.files(mount / "1000").items() if p != "config.json"}


def test_a_name_that_is_taken_and_what_cannot_be_derived(mount, made, ckptfs, commit):
    at = mount.path
    refused = ckptfs("derive", at, "1000", "1000", check=False)
    assert refused.returncode == 1 and "--force" in refused.stderr
    ckptfs("derive", at, "1000", "1000", "--only", "model.**", "--force")
    assert [r["name"] for r in ckptfs.json("arrays", at, "1000")] == sorted(made)
    assert [row["name"] for row in ckptfs.json("ls", at, "--trash")] == ["1000"]
    assert ckptfs("derive", at, "1000", "none", "--only", "nosuch", check=False).returncode == 1
    top = mount / "3000"
    top.mkdir()
    np.savez_compressed(top / "z.npz", x=np.arange(50_000))
    data = bytearray((top / "z.npz").read_bytes())
    data[30_000:30_500] = b"\xff" * 500
    (top / "z.npz").write_bytes(data)
    commit(top)
    refused = ckptfs("derive", at, "3000", "bad", "-f", "npy", check=False)
    assert refused.returncode == 1 and "damaged" in refused.stderr
    assert [row["name"] for row in ckptfs.json("ls", at)] == ["1000", "3000"] and ckptfs.json("sessions", at) == []
