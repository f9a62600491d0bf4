"""The tables of calls in ckptfs-steps(7): what Megatron-core's dist_checkpointing and eFormer's load_pytree answer, and the call here that
answers the same. Steps are torch's, beside which Megatron has common.pt and metadata.json."""

import io
import json
import os
import pickle
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.mounting import wait_until
from support.python_package import package  # noqa: F401

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import FileSystemReader  # noqa: E402
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata  # noqa: E402

torch.set_num_threads(1)
pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore")]

COMMON = {"iteration": 7, "rng": torch.arange(4), "args": {"lr": 0.1}}


def state():
    return {"model.w": torch.arange(12.0).reshape(3, 4), "model.b": torch.ones(5).bfloat16(), "optimizer.m": torch.arange(6), "extra/shard_0.0_1.1": "seed 3"}


@pytest.fixture
def step(mount):
    top = mount / "iter_0000007"
    dcp.save(state(), checkpoint_id=str(top), no_dist=True)
    torch.save(COMMON, top / "common.pt")
    (top / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}))
    return top


def tensors():
    return {name: t for name, t in state().items() if isinstance(t, torch.Tensor)}


# --- Megatron-core ------------------------------------------------------------------------------------------------------------


def test_load_common_state_dict(step, store, package, ckptfs):  # noqa: F811
    content = subprocess.run([ckptfs.path, "cat", store, step.name, "common.pt"], check=True, capture_output=True).stdout
    for file in (step / "common.pt", io.BytesIO(content)):
        found = torch.load(file)
        assert found.keys() == COMMON.keys() and torch.equal(found["rng"], COMMON["rng"]) and found["args"] == COMMON["args"]
    assert np.array_equal(package.arrays(step)["common.pt:rng"], COMMON["rng"])


def test_load_tensors_metadata_and_load_sharded_metadata(step, store, package, ckptfs):  # noqa: F811
    theirs = FileSystemReader(str(step)).read_metadata().state_dict_metadata
    rows = {row["name"]: row for row in ckptfs.json("arrays", store, step.name) if row["tree"] != "common.pt"}
    arrays = package.arrays(step)
    for name, found in theirs.items():
        if isinstance(found, BytesStorageMetadata):
            assert "object" in rows[name]["why"] and arrays[name].why
        else:
            assert rows[name]["shape"] == list(found.size) == list(arrays[name].shape)
            assert rows[name]["dtype"] == arrays[name].dtype == str(found.properties.dtype).removeprefix("torch.")
    assert set(rows) == set(theirs)


def test_load_plain_tensors(step, package):  # noqa: F811
    names = [name for name, array in package.arrays(step).items() if array.why is None and array.tree != "common.pt"]
    found = package.arrays(step).load({name: torch.zeros_like(tensors()[name]) for name in names}, "raise_unexpected").arrays
    assert sorted(found) == sorted(tensors()) and all(torch.equal(found[name], t) for name, t in tensors().items())


def test_load_sharded_of_objects(mount, step, package):  # noqa: F811
    from ckptfs.dcp import Reader

    got = {name: torch.zeros_like(t) if isinstance(t, torch.Tensor) else "" for name, t in state().items()}
    dcp.load(got, storage_reader=Reader(step), no_dist=True)
    assert got["extra/shard_0.0_1.1"] == "seed 3" and all(torch.equal(got[name], t) for name, t in tensors().items())


def remove_sharded_tensors(folder, prefix):
    """As TorchDistLoadShardedStrategy.remove_sharded_tensors() of 0.16.1 does it."""
    old = FileSystemReader(folder).read_metadata()
    kept = Metadata(
        {k: v for k, v in old.state_dict_metadata.items() if not k.startswith(prefix)},
        {k: v for k, v in old.planner_data.items() if not k.startswith(prefix)},
        {k: v for k, v in old.storage_data.items() if not k.fqn.startswith(prefix)},
    )
    with (folder / ".metadata.tmp").open("wb") as f:
        pickle.dump(kept, f)
        os.fsync(f.fileno())
    (folder / ".metadata").rename(folder / ".metadata.bck")
    (folder / ".metadata.tmp").rename(folder / ".metadata")
    (folder / ".metadata.bck").unlink()


def test_remove_sharded_tensors(step, store, package, ckptfs):  # noqa: F811
    ckptfs("derive", store, step.name, "without", "--not", "optimizer.**")
    assert {"model.w", "model.b"} <= set(package.arrays(step.parent / "without")) and "optimizer.m" not in package.arrays(step.parent / "without")
    before = len(ckptfs.json("info", store, step.name)["versions"])
    remove_sharded_tensors(step, "optimizer.")
    wait_until(lambda: len(ckptfs.json("info", store, step.name)["versions"]) > before, 30, "a version without them")
    found = package.arrays(step)
    assert "optimizer.m" not in found and np.array_equal(found["model.w"], state()["model.w"])
    ckptfs("check", store, step.name)


def test_remove_sharded_tensors_by_the_verb(step, store, package, ckptfs):  # noqa: F811
    ckptfs("rm", store, step.name, "--arrays", "optimizer.")
    found = package.arrays(step)
    assert "optimizer.m" not in found and np.array_equal(found["model.w"], state()["model.w"])
    assert not [k for k in FileSystemReader(step).read_metadata().state_dict_metadata if k.startswith("optimizer.")]
    ckptfs("check", store, step.name)


def test_remove_sharded_tensors_of_files_that_are_written_again(mount, store, commit, package, ckptfs):  # noqa: F811
    top = mount / "1000"
    top.mkdir()
    save_file({"model.w": np.ones(4), "optimizer.m": np.zeros(4)}, top / "model.safetensors")
    commit(top)
    ckptfs("rm", store, "1000", "--arrays", "optimizer.")
    assert list(package.arrays(top)) == ["model.w"]


# --- eFormer --------------------------------------------------------------------------------------------------------------------


def test_discover_latest_and_prefix(mount, commit, package):  # noqa: F811
    assert package.latest(mount.path) is None
    top = mount / "1000"
    for prefix, value in ("model", 1.0), ("ema", 2.0):
        (top / prefix).mkdir(parents=True)
        save_file({"w": np.full(3, value)}, top / prefix / "model.safetensors")
    commit(top)
    assert package.latest(mount.path).name == "1000"
    assert package.arrays(top)["ema/model.safetensors:w"][0] == 2 and package.arrays(top / "model")["w"][0] == 1


def test_template_strict_shapes_callback_and_chunk_size(mount, commit, package):  # noqa: F811
    top = mount / "1000"
    top.mkdir()
    save_file({"a": np.arange(8.0).reshape(1, 8), "b": np.arange(8.0)}, top / "model.safetensors")
    commit(top)
    found = package.arrays(top)
    template = {"a": np.zeros(8), "b": np.zeros((2, 4)), "c": np.full(2, 9.0)}
    with pytest.raises(package.Error, match="'c'"):
        found.load(template)
    seen = []
    got = found.load(template, shapes="relaxed", dtype="float32", callback=lambda array, name: seen.append(name) or array + 1, chunk_size=1).arrays
    assert seen[:2] == ["a", "b"] and got["a"].dtype == np.float32
    assert np.array_equal(got["a"], np.arange(8) + 1) and np.array_equal(got["b"], np.arange(8).reshape(2, 4) + 1) and got["c"][0] in (9, 10)
