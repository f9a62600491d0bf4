"""export: arrays of a step as files of a format, whatever format they had and wherever the bytes are; all of them, or nothing."""

import json
import os
import signal
import subprocess
import time

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from support import trees
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def made(mount, commit):
    """A step with arrays in three formats: {NAME: array}."""
    top = mount / "1000"
    top.mkdir()
    dice = np.random.default_rng(7)
    model = {f"model.layers.{i}.{part}": dice.standard_normal((64, 300), np.float32) for i in range(3) for part in ("weight", "bias")}
    save_file(model, top / "model.safetensors")
    counts = {"counts": np.arange(1000), "scale": dice.standard_normal((3, 4)).astype(">f8")}
    np.savez_compressed(top / "more.npz", **counts)
    np.save(top / "alone.npy", np.asfortranarray(dice.standard_normal((40, 9, 3))))
    want = {**model, **counts, "alone": np.load(top / "alone.npy")}
    trees.write(top / "config.json", b"{}")
    commit(top)
    return want


def check(out, want):
    with np.load(out / "model.npz") as found:
        assert set(found.files) == set(want)
        for name, array in want.items():
            assert found[name].dtype == array.dtype.newbyteorder("=") and np.array_equal(found[name], array), name


def test_hot_packed_and_mounted(mount, store, made, ckptfs, scratch):
    ckptfs("export", mount.path, "1000", scratch / "mounted", "-f", "npz")
    check(scratch / "mounted", made)
    mount.umount()
    ckptfs("export", store, "1000", scratch / "hot", "--format=npz")
    check(scratch / "hot", made)
    ckptfs("cool", store, "1000")
    (scratch / "packed").mkdir()
    said = ckptfs.json("export", store, "1000", scratch / "packed", "-f", "npz")
    check(scratch / "packed", made)
    assert said == {"step": "1000", "format": "npz", "arrays": len(made), "files": 1, "bytes": (scratch / "packed/model.npz").stat().st_size, "left_out": []}
    (scratch / "mine").mkdir()
    assert (scratch / "packed").stat().st_mode == (scratch / "mine").stat().st_mode


def test_view_options_give_parts_and_other_names(mount, store, made, ckptfs, scratch):
    trees.write(scratch / "names.json", json.dumps({"model.layers_1.w": "one", "model.safetensors:model.layers.0.bias": "bias"}).encode())
    ckptfs("export", store, "1000", scratch / "a", "-f", "safetensors", "--only", "model.**", "--shard", "3of4", "--axis", "1", "--rename", scratch / "names.json", "--prefix", "p.")
    found = load_file(scratch / "a/model.safetensors")
    want = {"p.bias" if name == "model.layers.0.bias" else f"p.{name}": array[:, 150:225] for name, array in made.items() if name.startswith("model.")}
    assert sorted(found) == sorted(want)
    assert all(found[name].shape == array.shape and found[name].tobytes() == array.tobytes() for name, array in want.items())
    view = load_file(mount / "1000/.views/only=model.**,shard=3of4,axis=1,prefix=p./model.safetensors")
    assert view["p.model.layers.1.bias"].tobytes() == found["p.model.layers.1.bias"].tobytes()
    ckptfs("export", store, "1000", scratch / "b", "-f", "npz", "--only", "scale", "--only", "counts", "--unroll", "1", "--dtype", "float32")
    with np.load(scratch / "b/model.npz") as found:
        assert set(found.files) == {"counts", *(f"scale.{i}" for i in range(4))}
        assert np.array_equal(found["scale.3"], made["scale"][:, 3].astype(np.float32)) and np.array_equal(found["counts"], made["counts"])


def test_wrong_view_options_are_usage(mount, store, made, ckptfs, scratch):
    trees.write(scratch / "list.json", b"[1]")
    trees.write(scratch / "twice.json", b'{"counts": "scale"}')
    for options, says in [(["--shard", "5of4"], "3of8"), (["--axis", "0"], "--shard"), (["--shard", "1of2", "--axis", "x"], "no axis"), (["--unroll", "-1"], "no axis"),
                          (["--rename", scratch / "absent.json"], "absent.json"), (["--rename", scratch / "list.json"], "no object of names")]:
        tried = ckptfs("export", store, "1000", scratch / "out", "-f", "npz", *options, check=False)
        assert tried.returncode == 2 and says in tried.stderr, (options, tried)
    tried = ckptfs("export", store, "1000", scratch / "out", "-f", "npz", "--rename", scratch / "twice.json", check=False)
    assert tried.returncode == 1 and "scale: two arrays have this name" in tried.stderr
    assert not (scratch / "out").exists()


def test_names_types_and_shards_are_chosen(mount, store, made, ckptfs, scratch):
    ckptfs("export", store, "1000", scratch / "a", "-f", "safetensors", "--only", "model.**", "--only", "counts", "--not", "**.bias", "--dtype", "bf16", "--shard-bytes", "100KiB")
    index = json.loads((scratch / "a/model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == {"counts", *(f"model.layers.{i}.weight" for i in range(3))}
    for name, file in index["weight_map"].items():
        with safe_open(scratch / "a" / file, "numpy") as f:
            want = made[name] if name == "counts" else made[name].astype(ml_dtypes.bfloat16)
            assert f.get_tensor(name).tobytes() == want.tobytes(), name
    assert len(set(index["weight_map"].values())) == 2
    ckptfs("export", store, "1000/more.npz", scratch / "b", "-f", "npy")
    assert sorted(p.name for p in (scratch / "b").iterdir()) == ["counts.npy", "scale.npy"]
    ckptfs("export", store, "1000", scratch / "c", "-f", "npy", "--only", "more.npz:counts")
    assert [p.name for p in (scratch / "c").iterdir()] == ["counts.npy"]


def test_a_folder_with_files_is_left_as_it_is(mount, store, made, ckptfs, scratch):
    (scratch / "out").mkdir()
    trees.write(scratch / "out/mine", b"x")
    done = ckptfs("export", store, "1000", scratch / "out", "-f", "npz", check=False)
    assert done.returncode == 1 and "absent or empty" in done.stderr
    assert sorted(p.name for p in scratch.iterdir() if p.name.startswith("out")) == ["out"] and [p.name for p in (scratch / "out").iterdir()] == ["mine"]


def test_what_is_no_array_is_named_and_damage_leaves_nothing(mount, store, commit, ckptfs, scratch):
    top = mount / "1000"
    (top / "z").mkdir(parents=True)
    save_file({"good": np.arange(3)}, top / "model.safetensors")
    trees.write(top / "bad.safetensors", (1 << 40).to_bytes(8, "little") + b"{}")
    trees.write(top / "z/.zarray", json.dumps({"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<f4", "compressor": None, "order": "C", "fill_value": "x", "filters": None}).encode())
    trees.write(top / "z/0", bytes(8))
    commit(top)
    done = ckptfs("export", store, "1000", scratch / "out", "-f", "safetensors", "--partial", check=False)
    assert done.returncode == 1 and "z: a part of it is in no file" in done.stderr and "bad.safetensors" in done.stderr
    assert not [p for p in scratch.iterdir() if p.name.startswith("out")]
    ckptfs("export", store, "1000", scratch / "out", "-f", "safetensors", "--not", "z", "--partial")
    assert load_file(scratch / "out/model.safetensors").keys() == {"good"}


def test_an_array_that_the_index_names_and_no_file_has_fails(mount, store, commit, ckptfs, scratch):
    top = mount / "1000"
    top.mkdir()
    save_file({"a": np.arange(3)}, top / "model-00001-of-00001.safetensors")
    trees.write(top / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": {n: "model-00001-of-00001.safetensors" for n in "ab"}}).encode())
    commit(top)
    done = ckptfs("export", store, "1000", scratch / "out", "-f", "npz", check=False)
    assert done.returncode == 1 and "b: model.safetensors.index.json names it" in done.stderr and not (scratch / "out").exists()
    ckptfs("export", store, "1000", scratch / "out", "-f", "npz", "--only", "a")


def test_a_signal_leaves_nothing(mount, store, commit, ckptfs, scratch):
    top = mount / "1000"
    top.mkdir()
    # Elements that are hardly stored: the export takes as long as it is let.
    trees.write(top / ".zarray", json.dumps({"zarr_format": 2, "shape": [1 << 32], "chunks": [1 << 20], "dtype": "|u1", "compressor": None, "order": "C", "fill_value": 2, "filters": None}).encode())
    trees.write(top / "0", bytes(1 << 20))
    commit(top)
    export = subprocess.Popen([ckptfs.path, "export", store, "1000", scratch / "out", "-f", "npz"], stderr=subprocess.DEVNULL)
    wait_until(lambda: list(scratch.glob("out.ckptfs-*/model.npz")))
    export.send_signal(signal.SIGINT)
    assert export.wait() != 0
    assert not [p for p in scratch.iterdir() if p.name.startswith("out")]


def test_more_than_the_disk_has_is_refused_first(mount, store, commit, ckptfs, scratch):
    top = mount / "1000"
    top.mkdir()
    trees.write(top / ".zarray", json.dumps({"zarr_format": 2, "shape": [1 << 50], "chunks": [1 << 20], "dtype": "<f4", "compressor": None, "order": "C", "fill_value": 2, "filters": None}).encode())
    trees.write(top / "0", bytes(4 << 20))
    commit(top)
    done = ckptfs("export", store, "1000", scratch / "out", "-f", "npz", check=False)
    assert done.returncode == 1 and "the disk has" in done.stderr and not [p for p in scratch.iterdir() if p.name.startswith("out")]


def test_memory_is_bounded(mount, store, commit, ckptfs, scratch):
    """A 2 GiB array of two formats, with a cast: what the process took at most."""
    top = mount / "1000"
    top.mkdir()
    np.lib.format.open_memmap(top / "large.npy", "w+", np.float32, (1 << 14, 1 << 15)).flush()
    commit(top)
    for format in ("safetensors", "zarr3"):
        before = time.monotonic()
        export = subprocess.Popen([ckptfs.path, "export", store, "1000", scratch / format, "-f", format, "--dtype", "float16"])
        _, status, usage = os.wait4(export.pid, 0)
        assert status == 0 and usage.ru_maxrss <= 256 << 10, (format, usage.ru_maxrss, time.monotonic() - before)


def test_a_damaged_file_fails_it_unless_it_may_be_left_out(mount, commit, ckptfs, scratch):
    top = mount / "1"
    top.mkdir()
    save_file({"a": np.arange(5)}, top / "a.safetensors")
    trees.write(top / "b.safetensors", (top / "a.safetensors").read_bytes()[:-9])
    commit(top)
    refused = ckptfs("export", mount.path, "1", scratch / "out", "-f", "npz", check=False)
    assert refused.returncode == 1 and "b.safetensors" in refused.stderr and "--partial" in refused.stderr
    assert not (scratch / "out").exists()
    said = ckptfs.json("export", mount.path, "1", scratch / "out", "-f", "npz", "--partial")
    assert [(x["tree"], x["name"]) for x in said["left_out"]] == [("b.safetensors", None)]
    with np.load(scratch / "out/model.npz") as found:
        assert found.files == ["a"]


def test_a_header_that_asks_for_any_number_of_chunks(mount, commit, ckptfs, scratch):
    zarray = {"zarr_format": 2, "shape": [1 << 50], "chunks": [1 << 20], "dtype": "<f4", "compressor": None, "fill_value": 2, "order": "C", "filters": None}
    (mount / "1/x").mkdir(parents=True)
    trees.write(mount / "1/x/.zarray", json.dumps(zarray).encode())
    commit(mount / "1")
    for kind in "zarr3", "orbax", "safetensors":
        refused = ckptfs("export", mount.path, "1", scratch / "out", "-f", kind, check=False, timeout=20)
        assert refused.returncode == 1 and ("chunks" in refused.stderr or "PiB" in refused.stderr), refused.stderr
    assert not (scratch / "out").exists()


def test_a_refusal_says_what_to_do(mount, store, commit, ckptfs, scratch):
    top = mount / "1000"
    top.mkdir()
    np.savez(top / "a.npz", good=np.arange(3), bad=np.array([1 + 2j]))
    commit(top)
    refused = ckptfs("export", store, "1000", scratch / "out", "-f", "safetensors", check=False)
    assert refused.returncode == 1 and "bad: safetensors has no dtype complex128" in refused.stderr and "--not leaves an array out" in refused.stderr
    refused = ckptfs("export", store, "1000", scratch / "not/there", "-f", "npz", check=False)
    assert refused.returncode == 1 and f"{scratch / 'not/there'}: No such file" in refused.stderr and "mkdir -p" in refused.stderr
    refused = ckptfs("derive", store, "1000", "1000", check=False)
    assert refused.returncode == 1 and "derive --force" in refused.stderr and "ckptfs save" not in refused.stderr
