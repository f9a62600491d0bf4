"""arrays, and cat of .arrays: what frameworks have saved, as its own library reads it, whatever the format and wherever the bytes are."""

import io
import json
import subprocess

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from support import trees

pytestmark = pytest.mark.timeout(120)


def saved(top):
    """{TREE:NAME: array} of files of several formats below top."""
    dice = np.random.default_rng(7)
    model = {f"model.layers.{i}.{part}": dice.standard_normal((64, 300), np.float32) for i in range(3) for part in ("weight", "bias")}
    model["model.norm"] = dice.standard_normal((5, 7)).astype(ml_dtypes.bfloat16)
    save_file(model, top / "model.safetensors")
    (top / "ema").mkdir()
    ema = {"model.norm": np.arange(35, dtype=np.float16).reshape(5, 7)}
    save_file(ema, top / "ema/model.safetensors")
    more = {"counts": np.arange(1000), "bad": np.array([1, np.nan, -3, np.inf])}
    np.savez(top / "more.npz", **more)
    alone = np.asfortranarray(dice.standard_normal((40, 9, 3)))
    np.save(top / "alone.npy", alone)
    trees.write(top / "config.json", b"{}")
    return {**{f"model.safetensors:{k}": v for k, v in model.items()}, **{f"ema/model.safetensors:{k}": v for k, v in ema.items()},
            **{f"more.npz:{k}": v for k, v in more.items()}, ".:alone": alone}


def cat(ckptfs, store, path):
    done = subprocess.run([ckptfs.path, "cat", store, "1000", f".arrays/{path}"], capture_output=True, check=True)
    return np.load(io.BytesIO(done.stdout))


def check(ckptfs, store, want):
    rows = {f"{r['tree']}:{r['name']}": r for r in ckptfs.json("arrays", store, "1000")}
    assert rows.keys() == want.keys()
    for name, array in want.items():
        row = rows[name]
        assert (row["dtype"], row["shape"], row["bytes"], row["why"]) == (array.dtype.name, list(array.shape), array.nbytes, None), name
        tree, _, short = name.partition(":")
        unique = sum(r["name"] == short for r in rows.values()) == 1
        for path in ([f"{tree}/{short}.npy"] if tree != "." else []) + ([f"{short}.npy"] if unique else []):
            got = cat(ckptfs, store, path)
            assert got.shape == array.shape and got.tobytes() == array.tobytes(), path
            assert got.dtype == array.dtype or got.dtype.kind == "V"
    assert sorted(json.loads(ckptfs("cat", store, "1000", ".arrays/index.json").stdout), key=str) == sorted(rows.values(), key=str)


@pytest.fixture
def made(mount, commit):
    top = mount / "1000"
    top.mkdir()
    want = saved(top)
    commit(top)
    return want


def test_arrays_of_every_file_hot_and_cold(mount, store, made, ckptfs):
    check(ckptfs, store, made)
    mount.umount()
    ckptfs("cool", store, "1000")
    assert not list(store.glob("sessions/*/model.safetensors"))
    check(ckptfs, store, made)


def test_a_pattern_chooses(mount, store, made, ckptfs):
    def names(glob):
        return [f"{r['tree']}:{r['name']}" for r in ckptfs.json("arrays", mount.path, "1000", glob)]

    assert names("**.weight") == [f"model.safetensors:model.layers.{i}.weight" for i in range(3)]
    assert names("model.*") == ["ema/model.safetensors:model.norm", "model.safetensors:model.norm"]
    assert names("ema/**:**") == ["ema/model.safetensors:model.norm"]
    assert names("nosuch") == []


def test_the_table_and_the_numbers(mount, store, made, ckptfs):
    rows = {r["name"]: r for r in ckptfs.json("arrays", store, "1000", "--stats")}
    bad = rows["bad"]
    assert (bad["min"], bad["max"], bad["mean"], bad["nan"], bad["inf"]) == (-3, 1, -1, 1, 1)
    weight = made["model.safetensors:model.layers.1.weight"]
    assert rows["model.layers.1.weight"]["min"] == weight.min() and abs(rows["model.layers.1.weight"]["mean"] - weight.mean()) < 1e-6
    table = ckptfs("arrays", store, "1000", "counts").stdout
    assert table.split()[:5] == ["TREE", "NAME", "DTYPE", "SHAPE", "SIZE"] and table.split()[7:11] == ["more.npz", "counts", "int64", "[1000]"]


def test_numbers_whose_sum_is_no_number_have_a_mean(mount, store, commit, ckptfs):
    top = mount / "1000"
    top.mkdir()
    np.save(top / "large.npy", np.array([1.7e308, 1.7e308]))
    np.save(top / "both.npy", np.array([1.7e308, -1.7e308, 3.0]))
    np.save(top / "none.npy", np.array([np.nan]))
    commit(top)
    rows = {r["name"]: r for r in ckptfs.json("arrays", store, "1000", "--stats")}
    assert (rows["large"]["min"], rows["large"]["max"], rows["large"]["mean"]) == (1.7e308, 1.7e308, 1.7e308)
    assert rows["both"]["mean"] == 1
    assert rows["none"]["mean"] is None


def test_elements_that_are_not_stored_are_not_read(mount, store, commit, ckptfs):
    top = mount / "1000"
    for name, count in ("endless", 1 << 50), ("short", 1 << 20), ("absurd", 1 << 61):
        (top / name).mkdir(parents=True)
        zarray = {"zarr_format": 2, "shape": [count], "chunks": [1 << 20], "dtype": "<f4", "compressor": None, "fill_value": 2,
                  "order": "C", "filters": None}
        trees.write(top / name / ".zarray", json.dumps(zarray).encode())
    commit(top)
    rows = {r["tree"] + r["name"]: r for r in ckptfs.json("arrays", store, "1000", "--stats")}
    rows = {name: next(r for key, r in rows.items() if name in key) for name in ("endless", "short", "absurd")}
    assert rows["endless"]["why"] == "its elements are mostly not stored" and "mean" not in rows["endless"]
    assert rows["absurd"]["why"] == "it has more bytes than any file could hold"
    assert (rows["short"]["why"], rows["short"]["mean"]) == (None, 2)
    assert "endless" in ckptfs("arrays", store, "1000").stdout


def test_what_cannot_be_read_is_told_and_breaks_nothing_else(mount, store, commit, ckptfs):
    top = mount / "1000"
    top.mkdir()
    np.save(top / "good.npy", np.arange(3))
    trees.write(top / "bad.safetensors", (1 << 40).to_bytes(8, "little") + b"{}")
    np.save(top / "objects.npy", np.array([{"a": 1}], dtype=object))
    commit(top)
    done = ckptfs("arrays", store, "1000")
    assert "good" in done.stdout and done.returncode == 0
    assert "bad.safetensors" in done.stderr or "objects" in done.stderr
    assert ckptfs("cat", store, "1000", ".arrays/objects.npy", check=False).returncode == 1
    assert cat(ckptfs, store, "good.npy").tolist() == [0, 1, 2]


def test_a_file_of_the_step_wins_over_an_array(mount, store, commit, ckptfs):
    top = mount / "1000"
    (top / ".arrays").mkdir(parents=True)
    np.save(top / "a.npy", np.arange(3))
    trees.write(top / ".arrays/a.npy", b"of the step")
    commit(top)
    assert ckptfs("cat", store, "1000", ".arrays/a.npy").stdout == "of the step"


def test_a_glob_that_matches_nothing_says_so(store, made, ckptfs):
    done = ckptfs("arrays", store, "1000", "model.layers.*")
    assert not done.stdout and "no array matches model.layers.*" in done.stderr and "`**` does not" in done.stderr
    assert not ckptfs("arrays", store, "1000", "model.**").stderr
