"""Megatron's older backend, zarr, written with that library by the calls of megatron/core/dist_checkpointing/strategies/zarr.py (0.8.0): the
model's boxes, and flat shards of the optimizer, which each rank sets by their coordinates in an array that is whole."""

import itertools
import json
import math
import os

import ml_dtypes
import numpy as np
import pytest
from support.catalog import by_name, catalog, read, same

zarr = pytest.importorskip("zarr")
if int(zarr.__version__.split(".")[0]) != 2:
    pytest.skip("the backend was written for version 2 of zarr", allow_module_level=True)
torch = pytest.importorskip("torch")

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(240)

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def create(top, key, whole, grid):
    """By the rank that has offset 0; bfloat16 gets its name afterwards, as zarr has none for it."""
    chunks = tuple(n // g for n, g in zip(whole.shape, grid))
    stored = np.dtype("V2") if whole.dtype == BFLOAT16 else whole.dtype
    array = zarr.create(whole.shape, dtype=stored, store=str(top / key), chunks=chunks, compressor=None, fill_value=None, write_empty_chunks=True)
    if whole.dtype == BFLOAT16:
        array.store[".zarray"] = array.store[".zarray"].replace(b"|V2", b"bfloat16")


def boxes(whole, grid):
    size = tuple(n // g for n, g in zip(whole.shape, grid))
    for at in itertools.product(*map(range, grid)):
        yield tuple(a * n for a, n in zip(at, size)), size


def write(top, key, whole, grid):
    create(top, key, whole, grid)
    for start, size in boxes(whole, grid):
        box = tuple(slice(a, a + n) for a, n in zip(start, size))
        zarr.open(str(top / key), "r+")[box] = whole[box]


def write_flat(top, key, whole, grid, cuts):
    """Each box is flat, and cut at these places between the ranks that have it."""
    create(top, key, whole, grid)
    for start, size in boxes(whole, grid):
        flat = np.arange(math.prod(size))
        for a, b in itertools.pairwise([0, *cuts, len(flat)]):
            array = zarr.open(str(top / key), "r+", synchronizer=zarr.ProcessSynchronizer(str(top / f"{key}.sync")))
            places = tuple(c + o for c, o in zip(np.unravel_index(flat[a:b], size), start))
            array.set_coordinate_selection(places, whole[places])


def write_rest(top):
    torch.save({"iteration": 7, "rng": torch.arange(4)}, top / "common.pt")
    (top / "rng_state").mkdir()
    torch.save([{"seed": torch.arange(3)}], top / "rng_state/shard_0.0_1.1.pt")
    (top / "metadata.json").write_text(json.dumps({"sharded_backend": "zarr", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}))


def save(top, lacks=None):
    """The arrays of zarr. lacks: a chunk that no rank has written."""
    dice = np.random.default_rng(7)
    model = {"decoder.layers.weight": (dice.standard_normal((6, 8, 10)).astype(BFLOAT16), (3, 2, 1)),
             "decoder.norm.weight": (dice.standard_normal(24).astype(np.float32), (1,)),
             "zeros": (np.zeros((4, 6), np.float16), (2, 2)),
             "steps": (np.arange(12).reshape(3, 4), (1, 4))}  # fmt: skip
    optimizer = {"optimizer.state.exp_avg.decoder.layers.weight": (dice.standard_normal((6, 8, 10)).astype(np.float32), (3, 2, 1), [1, 7, 33]),
                 "optimizer.state.exp_avg.decoder.norm.weight": (dice.standard_normal(24).astype(np.float32), (4,), [2, 5]),
                 "optimizer.state.exp_avg.rows": (dice.standard_normal((8, 8)).astype(np.float64), (1, 2), [5, 6, 20])}  # fmt: skip
    top.mkdir()
    for key, (whole, grid) in model.items():
        write(top, key, whole, grid)
    for key, (whole, grid, cuts) in optimizer.items():
        write_flat(top, key, whole, grid, cuts)
    if lacks:
        (top / lacks).unlink()
    write_rest(top)
    return {key: row[0] for key, row in (model | optimizer).items()}


def files_of(top):
    return [os.path.relpath(os.path.join(folder, name), top) for folder, _, names in os.walk(top) for name in names]


def test_flat_shards_are_whole_arrays(tmp_path):
    top = tmp_path / "iter_0000007"
    saved = save(top)
    assert any(path.endswith(".sync/.zarray") for path in files_of(top)), "zarr locks its metadata, too"
    names = by_name(catalog(top, *files_of(top)))
    assert {name for name, array in names.items() if array["format"] == "zarr2"} == set(saved)
    for name, whole in saved.items():
        assert same(read(top, names[name]), whole), name


@pytest.mark.parametrize("key", ["zeros", "optimizer.state.exp_avg.decoder.norm.weight"])
def test_a_chunk_that_is_missing_is_a_gap(tmp_path, key):
    top = tmp_path / "iter_0000007"
    saved = save(top)
    chunk = sorted(p for p in (top / key).iterdir() if p.name != ".zarray")[1]
    chunk.unlink()
    names = by_name(catalog(top, *files_of(top)))
    assert names[key]["gathered"] == "ENODATA"
    (top / "metadata.json").unlink()
    assert by_name(catalog(top, f"{key}/.zarray"))[key]["gathered"] == "yes", "another writer leaves out chunks of zeros"
    assert {name for name, array in names.items() if array["gathered"] == "yes"} >= set(saved) - {key}


def test_a_step_of_it(mount, store, ckptfs):
    saved = save(mount / "iter_0000007")
    save(mount / "iter_0000008", lacks="decoder.layers.weight/2.1.0")
    assert [row["name"] for row in ckptfs.json("ls", store)] == ["iter_0000007", "iter_0000008"]
    for name, whole in saved.items():
        got = np.load(mount / f"iter_0000007/.arrays/{name}.npy")
        assert same(got.view(whole.dtype), whole), name
    ckptfs("check", store, "iter_0000007", "--read-data")
    done = ckptfs("check", store, "iter_0000008", check=False)
    assert done.returncode == 1 and "decoder.layers.weight" in done.stdout, done
