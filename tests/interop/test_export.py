"""Arrays written in each format: the format's own library reads them as they are, and so does our reader."""

import json
import os
import random
import re
import struct
import subprocess
import warnings
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from support.catalog import catalog, read, same

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(240)

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz]
DTYPES = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.complex64, np.complex128, ml_dtypes.float8_e8m0fnu, *FLOATS]
SHAPES = [(), (1,), (7,), (0,), (3, 0, 2), (3, 5), (2, 3, 4), (1, 1, 1, 9), (40, 300)]
LACKS = {"safetensors": {np.complex128}, "zarr3": {ml_dtypes.float8_e8m0fnu}, "orbax": {ml_dtypes.float8_e8m0fnu}}
FORMATS = ["npy", "npz", "safetensors", "torch", "zarr3", "dcp", "orbax", "raw"]
SHARDED = ["safetensors", "torch", "zarr3", "dcp", "orbax", "raw"]


# --- Sources ------------------------------------------------------------------------------------------------------------


def random_array(rng, dtype, shape):
    count = int(np.prod(shape))
    if dtype is np.bool_:
        return np.array(rng.integers(0, 2, count), np.bool_).reshape(shape)
    return rng.integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8).view(dtype).reshape(shape)


def tensor_of(array):
    """The bytes as they are, of any dtype."""
    name = {"float8_e8m0fnu": "float8_e8m0fnu"}.get(array.dtype.name, array.dtype.name)
    raw = torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy()) if array.size else torch.zeros(0, dtype=torch.uint8)
    return raw.view(getattr(torch, name)).reshape(array.shape)


def array_of(tensor):
    kind = np.dtype(getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch."), None) or str(tensor.dtype).removeprefix("torch."))
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return np.frombuffer(data, kind).reshape(tuple(tensor.shape))


def write_torch(top, arrays):
    """A file of torch, which has all dtypes; some tensors are views in another order."""
    tensors = {}
    for i, (name, array) in enumerate(arrays.items()):
        t = tensor_of(array)
        tensors[name] = t.transpose(0, -1).contiguous().transpose(0, -1) if i % 3 == 1 and t.ndim > 1 else t
    torch.save(tensors, top / "in.pt")
    return ["in.pt"]


def write_npys(top, arrays):
    """Files of NumPy in both orders of bytes and of axes."""
    paths = []
    for i, (name, array) in enumerate(arrays.items()):
        path = top / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        array = array.astype(array.dtype.newbyteorder(">")) if i % 2 else array
        np.save(path, np.asfortranarray(array) if i % 3 == 0 and array.ndim else array)
        paths.append(f"{name}.npy")
    return paths


# --- Exports ------------------------------------------------------------------------------------------------------------


def export(top, paths, out, format, shard_bytes=0, dtype="-"):
    out.mkdir(parents=True)
    program = Path(os.environ["CKPT_BUILD_DIR"]) / "tests/interop_export"
    done = subprocess.run([program, format, str(shard_bytes), dtype, top, out, *paths], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def load(out, format):
    """{NAME: array} as the format's own library reads it."""
    return {"npy": load_npy, "npz": load_npz, "safetensors": load_safetensors, "torch": load_torch, "zarr3": load_zarr3, "dcp": load_dcp, "orbax": load_orbax, "raw": load_raw}[format](out)


RAW_DTYPES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu"}


def load_raw(out):
    """By numbers alone, as a program does that knows arrays.json."""
    found = {}
    for a in json.loads((out / "arrays.json").read_text())["arrays"]:
        [piece] = a["pieces"]
        name = RAW_DTYPES.get(a["dtype"]) or re.sub(r"^([a-z])(\d+)$", lambda m: m[1] + str(int(m[2]) // 8), a["dtype"])
        dtype = np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)
        data = (out / piece["file"]).read_bytes()[piece["offset"] :]
        found[a["name"]] = np.frombuffer(data, dtype, count=int(np.prod(a["shape"], dtype=np.int64))).reshape(a["shape"])
    return found


def load_npy(out):
    return {str(p.relative_to(out)).removesuffix(".npy"): np.load(p) for p in out.rglob("*.npy")}


def check_zip(path):
    """Sums are right, also in the headers in front of the members, which few readers look at."""
    z, data = zipfile.ZipFile(path), path.read_bytes()
    assert z.testzip() is None
    for info in z.infolist():
        assert data[info.header_offset + 14 : info.header_offset + 26] == struct.pack("<III", info.CRC, info.file_size, info.file_size)


def load_npz(out):
    check_zip(out / "model.npz")
    with np.load(out / "model.npz") as npz:
        return {name: npz[name] for name in npz.files}


def load_safetensors(out):
    from safetensors import safe_open

    found = {}
    for path in out.glob("*.safetensors"):
        with safe_open(path, "pt") as f:
            assert f.metadata() == {"format": "pt"}
            found.update({name: array_of(f.get_tensor(name)) for name in f.keys()})
    if len(list(out.glob("*.safetensors"))) > 1:
        index = json.loads((out / "model.safetensors.index.json").read_text())
        assert index["weight_map"].keys() == found.keys() and index["metadata"]["total_size"] == sum(a.nbytes for a in found.values())
        for path in set(index["weight_map"].values()):
            with safe_open(out / path, "pt") as f:
                assert set(f.keys()) == {n for n, p in index["weight_map"].items() if p == path}
    return found


def load_torch(out):
    found = {}
    for path in [*out.glob("*.pt"), *out.glob("*.bin")]:
        check_zip(path)
        for mmap, computed in (False, False), (True, True), (True, False):  # torch may compute the places of storages
            with torch.utils.serialization.config.patch("load.calculate_storage_offsets", computed):
                tensors = torch.load(path, weights_only=True, mmap=mmap)
            arrays = {name: array_of(t) for name, t in tensors.items()}
            assert all(arrays[name].tobytes() == found[name].tobytes() for name in arrays.keys() & found.keys())
            found.update(arrays)
    return found


def load_dcp(out):
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metadata = dcp.FileSystemReader(out).read_metadata()
        into = {name: torch.empty(m.size, dtype=m.properties.dtype) for name, m in metadata.state_dict_metadata.items()}
        dcp.load(into, checkpoint_id=out, no_dist=True)
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

        dcp_to_torch_save(out, out.parent / "as_torch.pt")
    whole = torch.load(out.parent / "as_torch.pt", weights_only=True)
    assert whole.keys() == into.keys() and all(array_of(whole[n]).tobytes() == array_of(into[n]).tobytes() for n in into)
    return {name: array_of(t) for name, t in into.items()}


def load_zarr3(out):
    import tensorstore as ts

    groups = [p.parent for p in out.rglob("zarr.json") if json.loads(p.read_text())["node_type"] == "group"]
    folders = {out, *(p for p in out.rglob("*") if p.is_dir() and not (p / "zarr.json").exists() and any(p.rglob("zarr.json")))}
    assert set(groups) >= folders
    found = {}
    for path in out.rglob("zarr.json"):
        if path.parent in groups:
            continue
        array = ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path.parent}/"}}).result()
        found[str(path.parent.relative_to(out))] = array.read().result()
    return found


def load_orbax(out):
    ocp = pytest.importorskip("orbax.checkpoint")
    import jax

    found = {}

    def walk(tree, at):
        for key, value in tree.items():
            if isinstance(value, dict):
                walk(value, [*at, key])
            else:
                found[".".join([*at, key])] = np.asarray(value)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        walk(ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(out), [])
        standard = ocp.StandardCheckpointer().restore(out)
        assert len(jax.tree.leaves(standard)) == len(found)
        target = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])), standard)
        if not any(a.dtype.itemsize == 8 or a.dtype == np.complex128 for a in jax.tree.leaves(standard)):
            placed = ocp.StandardCheckpointer().restore(out, target)
            assert all(isinstance(a, jax.Array) and np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(jax.tree.leaves(placed), jax.tree.leaves(standard)))
    return found


def check(out, format, want):
    found = load(out, format)
    assert found.keys() == want.keys()
    paths = [str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()]
    ours = catalog(out, *(p for p in paths if not p.endswith(".distcp")))
    assert not ours["faults"], ours["faults"]
    ours = {a["name"]: a for a in ours["arrays"] if a["name"] in want}
    assert ours.keys() == want.keys()
    for name, array in want.items():
        opaque = format in ("npy", "npz") and array.dtype.kind == "V" or format in ("npy", "npz") and not array.dtype.isbuiltin == 1
        assert found[name].shape == array.shape and found[name].tobytes() == array.tobytes(), name
        assert opaque or found[name].dtype == array.dtype, name
        if opaque:
            assert ours[name]["why"] == "its elements are no numbers"
        else:
            assert same(read(out, ours[name]), np.ascontiguousarray(array).reshape(array.shape)), name


def holds(format, array):
    return array.dtype.type not in LACKS.get(format, ()) and (format != "orbax" or array.size)


@pytest.mark.parametrize("format", FORMATS)
def test_every_dtype_and_shape(tmp_path, format):
    rng = np.random.default_rng(5)
    arrays = {f"{np.dtype(d).name}.{'x'.join(map(str, s)) or 'scalar'}": random_array(rng, d, s) for d in DTYPES for s in SHAPES}
    want = {name: a for name, a in arrays.items() if holds(format, a)}
    top = tmp_path / "in"
    top.mkdir()
    paths = write_torch(top, want)
    assert export(top, paths, tmp_path / "out", format) == (0, "")
    check(tmp_path / "out", format, want)


@pytest.mark.parametrize("format", FORMATS)
def test_random_trees(tmp_path, format):
    for seed in range(6):
        rng, dice = np.random.default_rng(seed), random.Random(seed)
        dtypes = [d for d in DTYPES if np.dtype(d).isbuiltin == 1]
        arrays = {}
        for i in range(dice.randrange(1, 30)):
            name = "/".join(f"{dice.choice('abcxyz')}{dice.randrange(9)}" for _ in range(dice.randrange(3))) + f"{'/' if dice.randrange(2) else ''}n{i}"
            arrays[name.lstrip("/")] = random_array(rng, dice.choice(dtypes), tuple(dice.choice([1, 2, 3, 17, 0 if dice.randrange(8) == 0 else 5]) for _ in range(dice.randrange(5))))
        want = {name: a for name, a in arrays.items() if holds(format, a)} or {"n": np.arange(3)}
        top, out = tmp_path / f"in{seed}", tmp_path / f"out{seed}"
        top.mkdir()
        shard = dice.choice([0, 64, 500, 5000]) if format in SHARDED else 0
        assert export(top, write_npys(top, want), out, format, shard) == (0, "")
        check(out, format, want)


@pytest.mark.parametrize("format", SHARDED)
def test_shards_are_bounded(tmp_path, format):
    rng = np.random.default_rng(1)
    want = {f"w{i}": random_array(rng, np.float32, (7, 11, 13)) for i in range(5)}
    top, out = tmp_path / "in", tmp_path / "out"
    top.mkdir()
    limit = 700 if format in ("zarr3", "orbax") else 2 * 7 * 11 * 13 * 4 + 100
    assert export(top, write_npys(top, want), out, format, limit) == (0, "")
    check(out, format, want)
    data = [p.stat().st_size for p in out.rglob("*") if p.is_file() and p.suffix not in (".json",) and "meta" not in str(p).lower()]
    assert len(data) > (5 if format in ("zarr3", "orbax") else 2) and max(data) <= limit + (0 if format in ("zarr3", "orbax") else 8000)


@pytest.mark.parametrize("format", ["npy", "npz"])
def test_what_has_no_shards_says_so(tmp_path, format):
    np.save(tmp_path / "a.npy", np.arange(3))
    code, text = export(tmp_path, ["a.npy"], tmp_path / "out", format, 100)
    assert code == 1 and f"{format} has no shards" in text


@pytest.mark.parametrize("format", LACKS)
def test_a_dtype_that_the_format_lacks_is_named(tmp_path, format):
    kind = next(iter(LACKS[format]))
    paths = write_torch(tmp_path, {"good": np.arange(3), "bad": random_array(np.random.default_rng(0), kind, (2, 2))})
    code, text = export(tmp_path, paths, tmp_path / "out", format)
    assert code == 1 and text.startswith("EOPNOTSUPP: bad: ") and format in text and not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("format", FORMATS)
def test_names_of_any_kind(tmp_path, format):
    """Names that are no paths, or are not ASCII; those of folders are escaped, all others are as they are."""
    want = {'a"b\\c'.replace("\\", "" if format == "orbax" else "\\"): np.arange(2), "häß 日本": np.arange(3.0), "-": np.arange(1), "x\ty": np.arange(4), "a'b": np.arange(5)}
    torch.save({name: torch.from_numpy(a) for name, a in want.items()}, tmp_path / "in.pt")
    out = tmp_path / "out"
    assert export(tmp_path, ["in.pt"], out, format) == (0, "")
    found = load(out, format)
    if format in ("npy", "zarr3"):
        assert "a%22b%5Cc" in found and "h%C3%A4%C3%9F%20%E6%97%A5%E6%9C%AC" in found and sorted(map(len, found.values())) == [1, 2, 3, 4, 5]
    else:
        assert {n: a.tolist() for n, a in found.items()} == {n: a.tolist() for n, a in want.items()}


def test_names_that_a_format_cannot_have(tmp_path):
    t = torch.arange(3)
    cases = {
        ("zarr3", "a", "a/c/0"): "below another", ("zarr3", "x/zarr.json", "y"): "for itself", ("orbax", "a", "a.b"): "a is an array",
        ("orbax", "a/..", "b"): "directory of Orbax", ("orbax", "a\\b", "c"): "directory of Orbax", ("orbax", "_METADATA", "b"): "for itself", ("orbax", "a", "a/b"): "below another",
        ("safetensors", "__metadata__", "b"): "for itself",
    }  # fmt: skip
    for i, ((format, one, other), word) in enumerate(cases.items()):
        torch.save({one: t, other: t.clone()}, tmp_path / "in.pt")
        code, text = export(tmp_path, ["in.pt"], tmp_path / f"out{i}", format)
        assert code == 1 and word in text, (format, one, text)


def test_one_name_in_two_trees(tmp_path):
    for name, at in ("a", 1.0), ("b", 2.0):
        torch.save({"w": torch.full((2,), at), f"only.{name}": torch.zeros(1)}, tmp_path / f"{name}.pt")
    for format in FORMATS:
        out = tmp_path / format
        assert export(tmp_path, ["a.pt", "b.pt"], out, format) == (0, "")
        found = load(out, format)
        names = {"a.pt:w", "b.pt:w", "only.a", "only.b"}
        assert found.keys() == ({n.replace(":", "%3A") for n in names} if format in ("npy", "zarr3") else names), format


def test_what_is_no_array_is_left_out_and_what_is_damaged_is_an_error(tmp_path):
    torch.save({"w": torch.arange(3), "meta": torch.ones(2, device="meta")}, tmp_path / "in.pt")
    torch.save({"meta": torch.ones(2, device="meta")}, tmp_path / "none.pt")
    code, text = export(tmp_path, ["in.pt"], tmp_path / "out", "npz")
    assert code == 0 and text.startswith("in.pt:meta: ") and text.count("\n") == 1
    assert load_npz(tmp_path / "out").keys() == {"w"}
    code, text = export(tmp_path, ["none.pt"], tmp_path / "none", "npz")
    assert code == 1 and "ENOENT" in text
    (tmp_path / "z").mkdir()
    (tmp_path / "z/.zarray").write_text('{"zarr_format":2,"shape":[4],"chunks":[2],"dtype":"<f4","compressor":null,"order":"C","fill_value":"x","filters":null}')
    (tmp_path / "z/0").write_bytes(bytes(8))
    code, text = export(tmp_path, ["in.pt", "z/.zarray"], tmp_path / "gap", "npz")
    assert code == 1 and "z: a part of it is in no file" in text and not list((tmp_path / "gap").iterdir())


# --- Casts --------------------------------------------------------------------------------------------------------------


def bits_of(array):
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize])


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("source", FLOATS)
def test_casts(tmp_path, source, to):
    rng = np.random.default_rng(3)
    if np.dtype(source).itemsize <= 2:
        values = np.arange(1 << 8 * np.dtype(source).itemsize, dtype=np.uint32).astype({1: np.uint8, 2: np.uint16}[np.dtype(source).itemsize]).view(source)
    else:
        with np.errstate(all="ignore"):
            exact = np.concatenate([np.arange(1 << 8, dtype=np.uint8).view(k).astype(np.float64) for k in FLOATS if np.dtype(k).itemsize == 1]
                                   + [np.arange(1 << 16, dtype=np.uint16).view(k).astype(np.float64) for k in FLOATS if np.dtype(k).itemsize == 2])
            ties = (exact[:-1] + exact[1:]) / 2
            values = np.concatenate([random_array(rng, source, (20000,)), *(v.astype(source) for v in (exact, ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf)))])
    with np.errstate(all="ignore"):
        # From the exact number, in one rounding: ml_dtypes goes by way of float32, so what is a double is rounded to odd before.
        wide = values.astype(np.float64)
        if to in (np.float32, np.float64, np.float16):
            want = wide.astype(to)
        else:
            single = wide.astype(np.float32)
            inexact = np.isfinite(single) & (single.astype(np.float64) != wide)
            away = np.abs(single.astype(np.float64)) > np.abs(wide)
            bits = single.view(np.uint32).copy()
            bits[inexact & away] -= 1
            bits[inexact] |= 1
            large = np.isinf(single) & np.isfinite(wide)
            single = bits.view(np.float32).copy()
            single[large] = np.copysign(np.finfo(np.float32).max, wide[large])
            want = single.astype(to)
    torch.save({"v": tensor_of(values), "n": torch.arange(3), "c": torch.ones(2, dtype=torch.complex64)}, tmp_path / "in.pt")
    assert export(tmp_path, ["in.pt"], tmp_path / "out", "torch", 0, np.dtype(to).name) == (0, "")
    found = load_torch(tmp_path / "out")
    assert found["n"].tolist() == [0, 1, 2] and found["n"].dtype == np.int64 and found["c"].dtype == np.complex64
    got = found["v"]
    assert got.dtype == np.dtype(to) and got.shape == want.shape
    nan = np.isnan(want.astype(np.float64))
    assert (np.isnan(got.astype(np.float64)) == nan).all()
    assert (bits_of(got)[~nan] == bits_of(want)[~nan]).all()
