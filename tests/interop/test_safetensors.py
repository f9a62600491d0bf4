"""safetensors, unmodified, on a mount: it renames an open temp file over the final name and maps what it reads."""

import os

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from support.fixtures import both_modes
from support.watcher import watch

pytestmark = pytest.mark.timeout(120)


def tensors(seed, rows=64):
    dice = np.random.default_rng(seed)
    return {f"layer.{i}.weight": dice.standard_normal((rows, 128 + i)).astype(np.float32) for i in range(12)} | {
        "step": np.array(seed, np.int64), "none": np.zeros((0, 3), np.float16), "flags": dice.integers(0, 2, 1000).astype(bool)}


def same(a, b):
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a)


@both_modes
def test_files_of_a_step_are_read_back_exactly(world, mount, commit):
    with watch(world, mount.path) as w:
        for step in range(4):
            folder = mount / f"step_{step}"
            folder.mkdir()
            for shard in range(3):
                save_file(tensors(10 * step + shard), folder / f"model-{shard}.safetensors", metadata={"format": "np", "step": str(step)})
            commit(folder)
    w.check(expect=4)
    mount.remount()
    for step in range(4):
        assert sorted(os.listdir(mount / f"step_{step}")) == [f"model-{s}.safetensors" for s in range(3)]
        for shard in range(3):
            path = mount / f"step_{step}/model-{shard}.safetensors"
            assert same(load_file(path), tensors(10 * step + shard))
            with safe_open(path, framework="np") as f:
                assert f.metadata()["step"] == str(step)
                assert np.array_equal(f.get_slice("layer.3.weight")[5:9], tensors(10 * step + shard)["layer.3.weight"][5:9])


@both_modes
def test_save_over_a_mapped_file_leaves_the_old_mapping_alone(mount, commit):
    """In a staged step and in a plain folder; the replaced file is open and mapped by a reader."""
    for folder in ("step_1", "plain"):
        (mount / folder).mkdir()
        path = mount / folder / "model.safetensors"
        save_file(tensors(1), path)
        with safe_open(path, framework="np") as old:
            save_file(tensors(2, rows=80), path)
            assert same(load_file(path), tensors(2, rows=80))
            assert {k: old.get_tensor(k).tobytes() for k in old.keys()} == {k: t.tobytes() for k, t in tensors(1).items()}
    commit(mount / "step_1")
    mount.remount()
    for folder in ("step_1", "plain"):
        assert same(load_file(mount / folder / "model.safetensors"), tensors(2, rows=80))
        assert os.listdir(mount / folder) == ["model.safetensors"]


def test_large_file(mount, commit):
    big = {"w": np.random.default_rng(3).standard_normal((4096, 4096)).astype(np.float32)}
    (mount / "1").mkdir()
    save_file(big, mount / "1/model.safetensors")
    commit(mount / "1")
    mount.remount()
    assert same(load_file(mount / "1/model.safetensors"), big)


def test_committed_file_that_is_saved_over_is_the_next_version_once_it_is_completed(mount, commit):
    (mount / "1").mkdir()
    save_file(tensors(1), mount / "1/model.safetensors")
    commit(mount / "1")
    save_file(tensors(2), mount / "1/model.safetensors")
    assert mount.listing() == [] and same(load_file(mount / "1/model.safetensors"), tensors(2))
    commit(mount / "1")
    for _ in range(2):
        assert mount.listing() == ["1"] and os.listdir(mount / "1") == ["model.safetensors"]
        assert same(load_file(mount / "1/model.safetensors"), tensors(2))
        assert same(load_file(mount / ".ckptfs/trash/1/model.safetensors"), tensors(1))
        mount.remount()

