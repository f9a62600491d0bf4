"""STEP/.arrays of what frameworks have saved: every array is there, under its name, bit for bit what the framework itself loads."""

import json
import os
import shutil
import warnings

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support import trees

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(240)


def as_numpy(value):
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    if value.dtype == torch.bfloat16:
        return value.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.contiguous().numpy()


def files_below(top):
    return {os.path.relpath(os.path.join(folder, name), top) for folder, _, files in os.walk(top) for name in files}


def check(mount, saved, trees_of):
    """saved: {tree: {name: array}}. All of it is in the step, hot, and nothing else."""
    arrays = mount / "1000/.arrays"
    count = {}
    for names in saved.values():
        for name in names:
            count[name] = count.get(name, 0) + 1
    want = {"index.json"}
    for tree, names in saved.items():
        for name, value in names.items():
            value = as_numpy(value)
            paths = ([f"{tree}/{name}.npy"] if tree else []) + ([f"{name}.npy"] if count[name] == 1 else [])
            want |= set(paths)
            for path in paths:
                got = np.load(arrays / path, mmap_mode="r")
                got = got.view(value.dtype) if value.dtype == ml_dtypes.bfloat16 else got
                assert (got.dtype, got.shape, got.tobytes()) == (value.dtype, value.shape, value.tobytes()), path
    assert files_below(arrays) == want
    assert not [row for row in json.loads((arrays / "index.json").read_text()) if row["why"]]
    assert trees_of == files_below(mount / "1000"), "what is seen of the step itself is what was saved"


def complete(mount, made):
    """Copies a saved checkpoint into a step, and completes that. Its paths."""
    shutil.copytree(made, mount / "1000")
    before = files_below(mount / "1000")
    trees.write(mount / "1000/.finalize", b"")
    return before


def test_safetensors_and_npz(mount, tmp_path):
    dice = np.random.default_rng(3)
    model = {f"h.{i}.w": dice.standard_normal((i + 1, 50)).astype(t) for i, t in enumerate((np.float32, np.float16, ml_dtypes.bfloat16, np.int64))}
    save_file(model, tmp_path / "model.safetensors")
    more = {"a": dice.standard_normal((3, 4)), "b": np.array(True), "c": np.arange(6, dtype=">i4").reshape(2, 3)}
    np.savez(tmp_path / "plain.npz", **more)
    np.savez_compressed(tmp_path / "small.npz", **{f"z{k}": v for k, v in more.items()})
    before = complete(mount, tmp_path)
    top = mount / "1000"
    native = {k: v.astype(v.dtype.newbyteorder("=")) for k, v in np.load(top / "plain.npz").items()}
    check(mount, {"model.safetensors": load_file(top / "model.safetensors"), "plain.npz": native, "small.npz": {f"z{k}": v for k, v in native.items()}}, before)


def test_torch(mount, tmp_path):
    base = torch.randn(30, 40)
    state = {"w": base, "t": base.t(), "part": base[3:9, ::2], "half": torch.randn(5).half(), "b": torch.randn(7, 2).bfloat16(), "step": torch.tensor(5),
             "flags": torch.tensor([True, False])}
    torch.save({"model": state}, tmp_path / "model.pt")
    before = complete(mount, tmp_path)
    loaded = torch.load(mount / "1000/model.pt")["model"]
    check(mount, {"model.pt": {f"model.{name}": value for name, value in loaded.items()}}, before)


def test_a_random_state_of_numpy(mount, tmp_path, ckptfs):
    """torch.save() writes protocol 2, which has no bytes: those of NumPy's arrays stand as text. rng_state.pth of transformers is such a file."""
    states = [np.random.RandomState(seed).get_state()[1] for seed in (1, 2)]
    torch.save({"numpy": states, "column": np.asfortranarray(np.arange(-6, 6, dtype=">i2").reshape(3, 4))}, tmp_path / "rng_state.pth")
    before = complete(mount, tmp_path)
    column = np.arange(-6, 6, dtype="<i2").reshape(3, 4)
    check(mount, {"rng_state.pth": {"numpy.0": states[0], "numpy.1": states[1], "column": column}}, before)
    assert ckptfs.json("check", "--read-data", mount.path, "1000")["findings"] == []


def test_distributed_checkpoint(mount, tmp_path):
    import torch.distributed.checkpoint as dcp

    want = {"model.w": torch.randn(64, 33), "opt.m": torch.randn(5, 6, 7).bfloat16(), "count": torch.arange(9)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(want, checkpoint_id=str(tmp_path / "dcp"))
        before = complete(mount, tmp_path)
        loaded = {name: torch.zeros_like(value) for name, value in want.items()}
        dcp.load(loaded, checkpoint_id=str(mount / "1000/dcp"))
    check(mount, {"dcp": loaded}, before)


def test_objects_beside_the_arrays_are_no_finding(mount, tmp_path, ckptfs):
    """Lightning's optimizers have their learning rates in a torch.distributed.checkpoint."""
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"w": torch.randn(64, 33), "optimizer.param_groups.0.lr": 0.1, "betas": (0.9, 0.99)}, checkpoint_id=str(tmp_path / "dcp"))
    complete(mount, tmp_path)
    rows = {row["name"]: row["why"] for row in ckptfs.json("arrays", mount.path, "1000")}
    assert rows["w"] is None and "an object of the program" in rows["optimizer.param_groups.0.lr"]
    assert ckptfs.json("check", mount.path, "1000")["findings"] == []


@pytest.mark.parametrize("stage", [1, 3])
def test_deepspeed_zero(mount, tmp_path, ckptfs, stage):
    from support.zero import Zero, parameters

    zero = Zero([parameters({"a.weight": (48, 32), "a.bias": (32,)}), parameters({"b.weight": (31, 7)})], stage, 3)
    zero.write(tmp_path / "tag")
    complete(mount, tmp_path)
    arrays = mount / "1000/.arrays"
    for name, value in zero.want.items():
        for path in f"tag/{name}.npy", f"{name}.npy":
            assert np.load(arrays / path).tobytes() == value.numpy().tobytes(), path
    found = ckptfs.json("check", mount.path, "1000", "--read-data")
    assert found["healthy"] and {f["kind"] for f in found["findings"]} <= {"zero"}


def test_a_file_of_a_deepspeed_rank_is_missing(mount, tmp_path, ckptfs):
    from support.zero import Zero, parameters

    zero = Zero([parameters({"one": (8, 8), "two": (8, 8)})], 2, 2)
    zero.write(tmp_path / "tag")
    (tmp_path / "tag/zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    complete(mount, tmp_path)
    found = ckptfs.json("check", mount.path, "1000", check=False)
    gaps = {f["name"]: f["what"] for f in found["findings"] if f["kind"] == "gap"}
    assert not found["healthy"] and gaps == {name: "the file of a piece is missing" for name in ("two", "two.exp_avg", "two.exp_avg_sq")}
    assert np.load(mount / "1000/.arrays/one.npy").tobytes() == zero.want["one"].numpy().tobytes()


@pytest.mark.parametrize("ocdbt", [True, False])
@pytest.mark.parametrize("zarr3", [True, False])
def test_orbax(mount, tmp_path, ocdbt, zarr3):
    ocp, jax = pytest.importorskip("orbax.checkpoint"), pytest.importorskip("jax")
    dice = np.random.default_rng(5)
    tree = {"params": {"layer": {"w": jax.numpy.asarray(dice.standard_normal((64, 48)).astype(np.float32)), "b": jax.numpy.ones((48,), jax.numpy.bfloat16)}},
            "count": jax.numpy.int32(3)}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    with ocp.Checkpointer(handler) as saver:
        saver.save(tmp_path / "state", tree)
    before = complete(mount, tmp_path)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)) as loader:
        loaded = loader.restore(mount / "1000/state")
    flat = {"params.layer.w": loaded["params"]["layer"]["w"], "params.layer.b": loaded["params"]["layer"]["b"], "count": loaded["count"]}
    check(mount, {"state": flat} if ocdbt else {"": {f"state/{name}": value for name, value in flat.items()}}, before)
