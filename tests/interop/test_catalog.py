"""What the catalog says of files that the frameworks' own libraries have written: every element of every array is where it says."""

import json
import pickle
import random
import subprocess
import tarfile
import warnings
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.catalog import by_name, catalog, decode, read, same

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # ranks are forked below
pytestmark = pytest.mark.timeout(240)


def as_numpy(tensor):
    import ml_dtypes

    tensor = tensor.detach()
    if tensor.dtype == torch.bool or tensor.is_complex():
        return tensor.numpy()
    kinds = {
        torch.bfloat16: ml_dtypes.bfloat16, torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
        torch.float8_e5m2: ml_dtypes.float8_e5m2, torch.float8_e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
        torch.float8_e5m2fnuz: ml_dtypes.float8_e5m2fnuz, torch.float8_e8m0fnu: ml_dtypes.float8_e8m0fnu,
    }  # fmt: skip
    if tensor.dtype in kinds:
        raw = torch.int16 if tensor.element_size() == 2 else torch.uint8
        return tensor.contiguous().view(raw).numpy().view(kinds[tensor.dtype])
    return tensor.numpy()


def check(top, names, want):
    assert set(names) == set(want)
    for name, tensor in want.items():
        wanted = as_numpy(tensor) if isinstance(tensor, torch.Tensor) else tensor
        assert same(read(top, names[name]), np.ascontiguousarray(wanted).reshape(wanted.shape)), name


class Slots:
    __slots__ = ("a", "__dict__")


def random_tensor(dtype, *shape):
    if dtype == torch.bool:
        return torch.rand(*shape) > 0.5
    raw = torch.randint(0, 256, (*shape, torch.empty(0, dtype=dtype).element_size()), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


TORCH_DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


def test_torch_of_every_dtype(tmp_path):
    want = {str(d).removeprefix("torch."): random_tensor(d, 3, 5) for d in TORCH_DTYPES}
    torch.save(want, tmp_path / "a.pt")
    check(tmp_path, by_name(catalog(tmp_path, "a.pt")), want)


def test_torch_names_are_paths(tmp_path):
    a, b, c, d = (random_tensor(torch.float32, 2, 3) for _ in range(4))
    torch.save({"model": {"layers": [{"weight": a}, (b, 5)]}, "opt": {0: {"m": c}, 7: d}, "step": 3, "x": None}, tmp_path / "a.pt")
    want = {"model.layers.0.weight": a, "model.layers.1.0": b, "opt.0.m": c, "opt.7": d}
    check(tmp_path, by_name(catalog(tmp_path, "a.pt")), want)
    torch.save(a, tmp_path / "alone.pt")
    check(tmp_path, by_name(catalog(tmp_path, "alone.pt")), {"alone": a})
    torch.save([a], tmp_path / "list.pt")
    check(tmp_path, by_name(catalog(tmp_path, "list.pt")), {"0": a})


def test_torch_views_share_a_storage(tmp_path):
    base = random_tensor(torch.bfloat16, 6, 8, 4)
    want = {
        "base": base, "t": base.permute(2, 0, 1), "slice": base[1:4, ::3, 2], "expanded": base[:1, :1, :1].expand(5, 8, 4),
        "scalar": base[2, 3, 1], "empty": base[:0], "none": base[:, 8:], "flip": base.transpose(0, 1)[5],
    }  # fmt: skip
    torch.save(want, tmp_path / "a.pt")
    names = by_name(catalog(tmp_path, "a.pt"))
    check(tmp_path, names, want)
    assert {p["offset"] for n in ("base", "t") for p in names[n]["pieces"]} == {names["base"]["pieces"][0]["offset"]}


def test_torch_state_of_a_model_and_its_optimizer(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.LSTM(8, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    model[1](model[0](torch.randn(6, 4))).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    want = {f"model.{k}": v for k, v in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        want.update({f"optimizer.state.{index}.{k}": v for k, v in state.items()})
    check(tmp_path, by_name(catalog(tmp_path, "a.pt")), want)
    torch.save(model, tmp_path / "whole.pt")
    names = by_name(catalog(tmp_path, "whole.pt"))
    assert same(read(tmp_path, names["_modules.0._parameters.weight"]), as_numpy(model[0].weight))
    assert same(read(tmp_path, names["_modules.1._buffers.running_mean"]), as_numpy(model[1].running_mean))


def test_torch_lists_what_it_cannot_read_with_the_reason(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    a = random_tensor(torch.float32, 3)
    torch.save(
        {
            "quantized": quantized, "sparse": torch.eye(3).to_sparse(), "meta": torch.ones(2, device="meta"),
            "conj": torch.ones(2, dtype=torch.complex64).conj(), "neg": torch.ones(2, dtype=torch.complex64).conj().imag, "a": a,
        },
        tmp_path / "a.pt",
    )  # fmt: skip
    names = by_name(catalog(tmp_path, "a.pt"))
    for name, word in (("quantized", "quantized"), ("sparse", "sparse"), ("meta", "meta"), ("conj", "conjugated"), ("neg", "negated")):
        assert word in names[name]["why"] and not names[name]["pieces"]
    assert same(read(tmp_path, names["a"]), a.numpy())


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_torch_of_every_protocol_and_numpy_inside(tmp_path, protocol):
    p = torch.nn.Parameter(random_tensor(torch.float32, 3, 2))
    p.note = "an attribute"
    array = np.arange(24, dtype=">i4").reshape(4, 6)
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    torch.save({"p": p, "n": array, "f": fortran, "e": np.zeros((0, 3)), "o": np.array([None])}, tmp_path / "a.pt", pickle_protocol=protocol)
    names = by_name(catalog(tmp_path, "a.pt"))
    assert same(read(tmp_path, names["p"]), p.detach().numpy())
    assert names["o"]["why"]
    assert same(read(tmp_path, names["n"]), array.astype("i4"))
    assert same(read(tmp_path, names["f"]), np.ascontiguousarray(fortran))
    assert names["e"]["why"] is None and names["e"]["shape"] == [0, 3]


def test_torch_arrays_inside_of_objects_are_listed(tmp_path):
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.rand(2, 3, 1), [3, 2], batch_first=True)
    jagged = torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)], layout=torch.jagged)
    slots = Slots()
    slots.a, slots.b = random_tensor(torch.float32, 2), random_tensor(torch.int8, 3)
    torch.save({"packed": packed, "jagged": jagged, "masked": np.ma.array([1, 2], mask=[0, 1]), "slots": slots}, tmp_path / "a.pt")
    names = by_name(catalog(tmp_path, "a.pt"))
    assert "nested" in names.pop("jagged")["why"] and "masked" in names.pop("masked")["why"]
    check(tmp_path, names, {"packed.0": packed.data, "packed.1": packed.batch_sizes, "slots.a": slots.a, "slots.b": slots.b})


def test_torch_without_a_zip_and_with_types_that_have_no_equal(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = {
            "i8": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "i32": torch.quantize_per_tensor(torch.ones(7), 0.1, 0, torch.qint32),
            "channels": torch.quantize_per_channel(torch.ones(3, 2), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 0, 0]), 0, torch.quint8),
            "packed": torch.quantize_per_tensor(torch.ones(5), 0.1, 0, torch.quint4x2), "complex32": torch.ones(3, dtype=torch.complex32),
            "a": random_tensor(torch.float32, 5), "b": random_tensor(torch.int64, 3),
        }  # fmt: skip
        torch.save(want, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    names = by_name(catalog(tmp_path, "a.pt"))
    for name in ("i8", "i32", "channels", "packed"):
        assert "quantized" in names.pop(name)["why"]
    assert "no equal" in names.pop("complex32")["why"]
    check(tmp_path, names, {"a": want["a"], "b": want["b"]})


def test_torch_names_that_repeat_keep_the_first(tmp_path):
    a, b = random_tensor(torch.float32, 2), random_tensor(torch.float32, 2)
    torch.save({"x": {"y": a}, "x.y": b}, tmp_path / "a.pt")
    found = catalog(tmp_path, "a.pt")
    assert [x["why"] is None for x in found["arrays"]] == [True, False] and not found["faults"]


@pytest.mark.parametrize("protocol", [2, 4])
def test_torch_without_a_zip(tmp_path, protocol):
    base = random_tensor(torch.bfloat16, 6, 8)
    want = {str(d).removeprefix("torch."): random_tensor(d, 3, 5) for d in TORCH_DTYPES}
    want |= {"base": base, "turned": base.t(), "row": base[2], "scalar": random_tensor(torch.float64), "empty": base[:0]}
    torch.save(want, tmp_path / "a.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    check(tmp_path, by_name(catalog(tmp_path, "a.pt")), want)
    torch.save(torch.nn.Linear(3, 2).state_dict(), tmp_path / "b.pt", _use_new_zipfile_serialization=False)
    check(tmp_path, by_name(catalog(tmp_path, "b.pt")), torch.load(tmp_path / "b.pt"))


def test_npy_of_records_and_objects_is_listed_with_the_reason(tmp_path):
    records = np.zeros((3, 2), [("a", "<i4"), ("b]'(", "<f8", (2,)), ("c", [("d", "|S3")])])
    objects = np.array([{"a": 1}, None], object)
    want = {"records": (records, "records"), "objects": (objects, "objects of Python"), "text": (np.array(["ab"]), "no numbers")}
    for name, (array, _) in want.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "a.npz", **{name: array for name, (array, _) in want.items()})
    np.savez_compressed(tmp_path / "b.npz", **{name: array for name, (array, _) in want.items()})
    found = catalog(tmp_path, *(f"{name}.npy" for name in want), "a.npz", "b.npz")
    assert not found["faults"] and len(found["arrays"]) == 9
    for row in found["arrays"]:
        array, word = want[row["name"]]
        assert word in row["why"] and row["shape"] == list(array.shape) and not row["pieces"]


def test_npy_that_is_cut_or_goes_on_says_which(tmp_path):
    with open(tmp_path / "two.npy", "wb") as f:
        np.save(f, np.arange(3))
        np.save(f, np.arange(4))
    np.save(tmp_path / "cut.npy", np.arange(100))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-1])
    faults = {f[0]: f[2] for f in catalog(tmp_path, "two.npy", "cut.npy")["faults"]}
    assert "several arrays in one file" in faults["two.npy"] and "shorter than its shape" in faults["cut.npy"]


def write_tar(path, want):
    """As torch 0.1 saved an object without tensors (torch/serialization.py: save() with _add_to_tar())."""
    members = {"sys_info": {"protocol_version": 1000, "little_endian": True}, "pickle": want, "storages": [0, []], "tensors": [0]}
    with tarfile.open(path, "w:", format=tarfile.PAX_FORMAT) as tar:
        for name, thing in members.items():
            part = path.with_name(name)
            part.write_bytes(b"".join(pickle.dumps(x, protocol=2) for x in (thing if isinstance(thing, list) else [thing])))
            tar.add(part, arcname=name)


def test_torch_as_a_tar_archive_is_listed_with_the_reason(tmp_path):
    write_tar(tmp_path / "a.pt", {"step": 3})
    assert torch.load(tmp_path / "a.pt", weights_only=False) == {"step": 3}
    with tarfile.open(tmp_path / "b.pt", "w:", format=tarfile.PAX_FORMAT) as tar:
        tar.add(tmp_path / "pickle", arcname="pickle")
    found = catalog(tmp_path, "a.pt", "b.pt")
    assert not found["faults"] and [(a["tree"], a["format"]) for a in found["arrays"]] == [("a.pt", "torch")]
    assert "tar archive" in found["arrays"][0]["why"] and not found["arrays"][0]["pieces"]


def test_torch_without_a_zip_that_is_damaged(tmp_path):
    torch.save({"a": torch.arange(4.0), "l": [torch.ones(2, 2), torch.zeros(3, dtype=torch.int8)]}, tmp_path / "good.pt", _use_new_zipfile_serialization=False)
    good = (tmp_path / "good.pt").read_bytes()
    rng = random.Random(13)
    paths = []
    for i in range(500):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(15, len(data))] = rng.choice([0, 255, 127, rng.randrange(256)])
        paths.append(f"{i}.pt")
        (tmp_path / paths[-1]).write_bytes(data[: rng.randrange(16, len(data))] if i % 5 == 0 else data)
    found = catalog(tmp_path, *paths, "good.pt")
    assert {a["name"] for a in found["arrays"] if a["tree"] == "good.pt"} == {"a", "l.0", "l.1"}
    assert len(found["faults"]) > 150 and all(f[1] and f[2] for f in found["faults"])
    for array in found["arrays"]:
        size = (tmp_path / array["tree"]).stat().st_size
        assert all(p["offset"] + p["bytes"] <= size for p in array["pieces"])


def test_npy_npz_and_safetensors(tmp_path):
    rng = np.random.default_rng(1)
    want = {"w": rng.standard_normal((3, 4)).astype(np.float32), "f": np.asfortranarray(rng.standard_normal((5, 2))), "i": np.arange(7)}
    np.savez(tmp_path / "a.npz", **want)
    check(tmp_path, by_name(catalog(tmp_path, "a.npz")), want)
    save_file({k: np.ascontiguousarray(v) for k, v in want.items()}, tmp_path / "a.safetensors")
    check(tmp_path, by_name(catalog(tmp_path, "a.safetensors")), want)
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "d/big.npy", want["w"].astype(">f4"))
    check(tmp_path, by_name(catalog(tmp_path, "d/big.npy")), {"d/big": want["w"]})
    want |= {"zeros": np.zeros((300, 200)), "half": np.arange(9, dtype=np.float16), "scalar": np.array(3 + 4j), "big": want["w"].astype(">f4")}
    np.savez_compressed(tmp_path / "c.npz", **want)
    found = by_name(catalog(tmp_path, "c.npz"))
    assert all(p["codecs"] == ["deflate"] for a in found.values() for p in a["pieces"])
    for name, array in want.items():
        assert same(read(tmp_path, found[name], decode), np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).reshape(array.shape)), name


# --- torch.distributed.checkpoint ---------------------------------------------------------------------------------------


def save_ranks(rank, top, want):
    """One of four ranks: its rows of each tensor."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, Replicate, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{top}.ranks", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (4,))
    state = {k: distribute_tensor(v, mesh, [Shard(1 if k == "columns" else 0) if v.dim() else Replicate()]) for k, v in want.items()}
    dcp.save({**state, "object": {"step": 3}}, checkpoint_id=top)
    dist.destroy_process_group()


def test_dcp_of_four_ranks(tmp_path):
    want = {
        "rows": random_tensor(torch.bfloat16, 10, 3), "columns": random_tensor(torch.float32, 3, 9), "few": random_tensor(torch.int64, 2),
        "scalar": random_tensor(torch.float64),
    }  # fmt: skip
    torch.multiprocessing.start_processes(save_ranks, (str(tmp_path / "step"), want), nprocs=4, start_method="fork")
    found = by_name(catalog(tmp_path, "step/.metadata"))
    thing = found.pop("object.step")
    assert "object" in thing["why"] and thing["pieces"][0]["codecs"] == ["torch"]
    check(tmp_path, found, want)
    assert len(found["rows"]["pieces"]) == 4 and {a["tree"] for a in found.values()} == {"step"}


def test_dcp_of_one_rank_that_lacks_a_file(tmp_path):
    import torch.distributed.checkpoint as dcp

    want = {"model": {f"layer.{i}": random_tensor(torch.float16, 4, i + 1) for i in range(300)}, "opt": {"step": torch.tensor(5.0)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(want, checkpoint_id=tmp_path)
    flat = {f"model.{k}": v for k, v in want["model"].items()} | {"opt.step": want["opt"]["step"]}
    check(tmp_path, by_name(catalog(tmp_path, ".metadata")), flat)
    (tmp_path / "__0_0.distcp").rename(tmp_path / "elsewhere")
    found = by_name(catalog(tmp_path, ".metadata"))
    assert set(found) == set(flat) and all("missing" in a["why"] and not a["pieces"] for a in found.values())
    data = (tmp_path / "elsewhere").read_bytes()
    (tmp_path / "__0_0.distcp").write_bytes(data[: len(data) // 2])
    found = by_name(catalog(tmp_path, ".metadata"))
    outside = [a for a in found.values() if a["why"]]
    assert 0 < len(outside) < len(found) and all("outside" in a["why"] for a in outside)


def test_dcp_with_hostile_metadata(tmp_path):
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"a": torch.arange(6.0).reshape(2, 3), "b": [torch.ones(2)], "c": "text"}, checkpoint_id=tmp_path / "good")
    good = (tmp_path / "good/.metadata").read_bytes()
    rng = random.Random(3)
    paths = []
    for i in range(600):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(11, len(data))
            data[at : at + rng.choice([0, 1, 1, 4])] = bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 1, 4])))
        paths.append(f"{i}/.metadata")
        (tmp_path / f"{i}").mkdir()
        (tmp_path / f"{i}/__0_0.distcp").symlink_to("../good/__0_0.distcp")
        (tmp_path / paths[-1]).write_bytes(data)
    found = catalog(tmp_path, *paths)
    assert len({a["tree"] for a in found["arrays"]} | {f[0].split("/")[0] for f in found["faults"]}) == 600
    assert all(f[1] and f[2] for f in found["faults"])
    (tmp_path / "0/.metadata").write_bytes(good.replace(b"__0_0.distcp", b"../good/a/b/"))
    assert all(a["why"] for a in catalog(tmp_path, "0/.metadata")["arrays"])


# --- Zarr ---------------------------------------------------------------------------------------------------------------


def write_zarr(path, driver, metadata, dtype, missing=False):
    ts = pytest.importorskip("tensorstore")
    store = ts.open({"driver": driver, "kvstore": {"driver": "file", "path": f"{path}/"}, "metadata": metadata}, create=True).result()
    values = np.random.default_rng(4).integers(1, 100, store.shape).astype(dtype)
    if missing:
        store[:2].write(values[:2]).result()
    else:
        store.write(values).result()
    return store.read().result()


BLOSC = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}


@pytest.mark.parametrize("dtype", ["<f4", ">i2", "|b1", "<c8", "bfloat16", "<u8"])
@pytest.mark.parametrize("order, separator, compressor", [("C", ".", None), ("F", "/", {"id": "zstd", "level": 3}), ("C", "/", {"id": "zlib", "level": 1}), ("C", ".", BLOSC)])
def test_zarr2(tmp_path, dtype, order, separator, compressor):
    import ml_dtypes

    metadata = {"shape": [5, 7, 3], "chunks": [2, 3, 3], "dtype": dtype, "order": order, "dimension_separator": separator, "compressor": compressor}
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype).newbyteorder("=")
    for missing in (False, True):
        want = write_zarr(tmp_path / f"a{missing}/w", "zarr", metadata, kind, missing)
        found = by_name(catalog(tmp_path, f"a{missing}/w/.zarray"))
        assert list(found) == [f"a{missing}/w"]
        array = found[f"a{missing}/w"]
        assert len(array["pieces"]) == (3 if missing else 9)
        assert same(read(tmp_path, array, decode), want.astype(kind))


def sharded(*inner, **more):
    return [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 3], "codecs": list(inner), **more}}]


TRANSPOSED = {"name": "transpose", "configuration": {"order": [1, 0]}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "float8_e4m3fn"])
@pytest.mark.parametrize(
    "codecs",
    [
        [LITTLE], [TRANSPOSED, BIG, {"name": "gzip", "configuration": {"level": 1}}],
        [LITTLE, {"name": "zstd", "configuration": {"level": 3}}, {"name": "crc32c"}], sharded(LITTLE),
        sharded(TRANSPOSED, LITTLE, {"name": "zstd"}, index_location="start", index_codecs=[LITTLE]), sharded(LITTLE, {"name": "crc32c"}),
    ],
    ids=["plain", "transposed", "zstd", "sharded", "sharded-start", "sharded-crc"],
)  # fmt: skip
def test_zarr3(tmp_path, dtype, codecs):
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    for keys in ({"name": "default"}, {"name": "v2"}):
        metadata = {
            "shape": [9, 8], "data_type": dtype, "codecs": codecs, "chunk_key_encoding": keys,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 6]}},
        }  # fmt: skip
        for missing in (False, True):
            path = f"{keys['name']}{missing}"
            want = write_zarr(tmp_path / path, "zarr3", metadata, kind, missing)
            found = by_name(catalog(tmp_path, f"{path}/zarr.json"))
            assert list(found) == [path]
            assert same(read(tmp_path, found[path], decode), want)


FILLS = {
    "float32": ["NaN", "Infinity", "-Infinity", -0.0, 0.1, 7, "0x7fc00001"], "float64": ["NaN", 0.1, "0xfff8000000000001"], "float16": ["NaN", 0.1, 70000.0],
    "bfloat16": ["-Infinity", 0.1, 3], "int8": [-128, 127], "uint8": [255], "int64": [-(2**63), 2**63 - 1], "uint64": [2**63 - 1, 2**63, 2**64 - 1], "bool": [True, False],
    "complex64": [[0.0, 0.0], [1.5, "NaN"], [-0.0, "-Infinity"]], "complex128": [[0.1, -0.2]], "float8_e4m3fn": [1.5],
}  # fmt: skip


@pytest.mark.parametrize("dtype", FILLS)
def test_zarr_fill_values(tmp_path, dtype):
    import ml_dtypes

    ts = pytest.importorskip("tensorstore")
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    for i, fill in enumerate(FILLS[dtype]):
        metadata = {"shape": [5], "data_type": dtype, "codecs": [LITTLE], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}, "fill_value": fill}
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{tmp_path}/{i}/"}, "metadata": metadata}
        store = ts.open(spec, create=True).result()
        store[:2].write(np.ones(2, kind)).result()
        found = by_name(catalog(tmp_path, f"{i}/zarr.json"))[f"{i}"]
        assert len(found["pieces"]) <= 1 and same(read(tmp_path, found), store.read().result()), fill
    for fill in ("nan", "0x1", "0xgggggggg", [1, 2, 3], {}, "", 0.5 if kind.kind in "iu" else "1", -1 if kind.kind == "u" else "x", 2**64 if kind.kind in "iu" else "x"):
        metadata["fill_value"] = fill
        text = json.loads((tmp_path / f"{i}/zarr.json").read_text())
        (tmp_path / f"{i}/zarr.json").write_text(json.dumps({**text, "fill_value": fill}))
        found = catalog(tmp_path, f"{i}/zarr.json")["arrays"][0]
        assert found["fill"] is None and found["gathered"] != "yes", fill


def test_zarr_fill_of_integers_may_be_a_whole_real(tmp_path):
    kinds = {"<i4": [(0.0, 0), (-0.0, 0), (7.0, 7), (-3e2, -300)], "|u1": [(255.0, 255)], "<i8": [(-(2.0**63), -(2**63))]}
    wrong = {"<i4": [2.0**31, 0.5], "|u1": [256.0, -1.0], "<i8": [2.0**63, 1e300], "<u8": [-1.0]}
    for dtype in {*kinds, *wrong}:
        for fill, want in [*kinds.get(dtype, []), *((fill, None) for fill in wrong.get(dtype, []))]:
            metadata = {"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": dtype, "compressor": None, "fill_value": fill, "order": "C", "filters": None}
            (tmp_path / "z").mkdir(exist_ok=True)
            (tmp_path / "z/.zarray").write_text(json.dumps(metadata))
            found = by_name(catalog(tmp_path, "z/.zarray"))["z"]
            if want is None:
                assert found["fill"] is None and found["gathered"] != "yes", fill
            else:
                assert same(read(tmp_path, found), np.full(3, want, np.dtype(dtype))), fill


def test_zarr_index_of_a_shard_has_a_checksum(tmp_path):
    shard = {"shape": [9, 8], "data_type": "float32", "codecs": sharded(LITTLE), "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 6]}}}
    shard["codecs"][0]["configuration"]["index_codecs"] = [LITTLE, {"name": "crc32c"}]
    want = write_zarr(tmp_path / "w", "zarr3", shard, np.float32)
    assert same(read(tmp_path, by_name(catalog(tmp_path, "w/zarr.json"))["w"]), want)
    file = tmp_path / "w/c/0/0"
    good = file.read_bytes()
    for at in (len(good) - 4, len(good) - 4 - 2 * 16, len(good) - 4 - 16 + 1):  # the sum; the place of a chunk, which stays inside
        file.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        found = by_name(catalog(tmp_path, "w/zarr.json"))["w"]
        assert "checksum" in found["why"] and found["gathered"] != "yes"


def test_zarr_lists_what_it_cannot_read_with_the_reason(tmp_path):
    write_zarr(tmp_path / "w", "zarr", {"shape": [4], "chunks": [2], "dtype": "<f4", "compressor": None}, np.float32)
    assert read(tmp_path, by_name(catalog(tmp_path, "w/.zarray"))["w"]).shape == (4,)
    text = (tmp_path / "w/.zarray").read_text()
    (tmp_path / "w/.zarray").write_text(text.replace('"compressor":null', '"compressor":{"id":"lzma"}'))
    assert "codec" in by_name(catalog(tmp_path, "w/.zarray"))["w"]["why"]
    (tmp_path / "w/.zarray").write_text(text)
    (tmp_path / "w/1").write_bytes(b"short")
    assert "bytes" in by_name(catalog(tmp_path, "w/.zarray"))["w"]["why"]
    rng = random.Random(5)
    faults = 0
    for _ in range(150):
        data = bytearray(text.encode())
        for _ in range(rng.randrange(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(b'0129-.[]{},:"lfux')
        (tmp_path / "w/.zarray").write_bytes(data)
        found = catalog(tmp_path, "w/.zarray")
        faults += bool(found["faults"])
        assert len(found["faults"]) + len(found["arrays"]) == 1
    assert faults > 50


# --- GGUF ---------------------------------------------------------------------------------------------------------------


def test_gguf(tmp_path):
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(2)
    want = {
        "token_embd.weight": rng.standard_normal((6, 64)).astype(np.float32), "half": rng.standard_normal((3, 4, 5)).astype(np.float16),
        "i8": np.arange(7, dtype=np.int8), "i64": np.arange(3), "f64": rng.standard_normal(2),
    }  # fmt: skip
    quantised = rng.standard_normal((4, 256)).astype(np.float32)
    for alignment in (32, 256):
        w = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
        w.add_custom_alignment(alignment)
        w.add_array("tokens", ["<s>", "", "a" * 1000] * 3000)
        w.add_array("scores", [0.5] * 3000)
        for name, array in want.items():
            w.add_tensor(name, array)
        for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0):
            w.add_tensor(kind.name, gguf.quants.quantize(quantised, kind), raw_dtype=kind)
        bf16 = gguf.quants.quantize(quantised, gguf.GGMLQuantizationType.BF16)
        w.add_tensor("bf16", bf16, raw_dtype=gguf.GGMLQuantizationType.BF16)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        names = by_name(catalog(tmp_path, "a.gguf"))
        assert read(tmp_path, names.pop("bf16")).tobytes() == bf16.tobytes()
        for tensor in gguf.GGUFReader(tmp_path / "a.gguf").tensors:
            if tensor.name in ("Q8_0", "Q4_0"):
                array = names.pop(tensor.name)
                assert tensor.name in array["why"] and array["shape"] == [4, 256]
                assert [(p["offset"], p["bytes"]) for p in array["pieces"]] == [(tensor.data_offset, tensor.n_bytes)]
        check(tmp_path, names, want)


def test_gguf_types_are_those_of_its_library(tmp_path):
    gguf = pytest.importorskip("gguf")
    w = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    for kind, (elements, width) in gguf.GGML_QUANT_SIZES.items():
        if elements > 1 and kind.name != "Q8_1":  # ggml's has two halves, and so 36 bytes; the library still counts two floats
            w.add_tensor(kind.name, np.zeros((2, 3 * width), np.uint8), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    names = by_name(catalog(tmp_path, "a.gguf"))
    for tensor in gguf.GGUFReader(tmp_path / "a.gguf").tensors:
        array = names.pop(tensor.name)
        assert f"{tensor.name}: blocks of" in array["why"] and array["shape"] == [int(n) for n in tensor.shape[::-1]]
        assert [(p["offset"], p["bytes"]) for p in array["pieces"]] == [(tensor.data_offset, tensor.n_bytes)]
    assert not names


# --- Hostile pickles ----------------------------------------------------------------------------------------------------


def rewrite(source, to, pickle):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(to, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, pickle if name.endswith("data.pkl") else old.read(name))


def test_torch_with_hostile_pickles(tmp_path):
    """None ends the reader, none is run, and a file beside it is read as ever."""
    torch.save({"a": torch.arange(4.0), "l": [torch.ones(2, 2)]}, tmp_path / "good.pt")
    with zipfile.ZipFile(tmp_path / "good.pt") as z:
        good = z.read(next(n for n in z.namelist() if n.endswith("data.pkl")))
    mark = tmp_path / "executed"
    system = b"\x80\x02cos\nsystem\n(X" + len(f"touch {mark}").to_bytes(4, "little") + f"touch {mark}".encode() + b"tR."
    hostile = [
        system, system[:-1] + b"0}.", b"\x80\x02]q\x00h\x00a.", b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
        b"\x80\x02]" + b"q\x00]q\x01(" + b"h\x00h\x00e0h\x01." , b"\x80\x04\x8e" + b"\xff" * 8 + b".", b"\x80\x02X\xff\xff\xff\xff.",
        b"\x80\x02Nr\xff\xff\xff\x7f.", b"\x80\x02" + b"(" * 100000 + b".", b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b".",
        b"\x80\x02]q\x00" + b"".join(b"]q" + bytes([i]) + b"(h" + bytes([i - 1]) + b"h" + bytes([i - 1]) + b"e" for i in range(1, 60)) + b".",
    ]  # fmt: skip
    rng = random.Random(7)
    while len(hostile) < 600:
        data = bytearray(good)
        kind = rng.randrange(4)
        if kind == 0:
            del data[rng.randrange(2, len(data)) :]
        elif kind == 1:
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(2, len(data))] = rng.randrange(256)
        elif kind == 2:
            at = rng.randrange(2, len(data))
            data[at:at] = bytes(data[rng.randrange(2, len(data)) :][: rng.randrange(1, 40)])
        else:
            at = rng.randrange(2, len(data))
            data[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"\0\0\0\0"])
        hostile.append(bytes(data))
    names = []
    for i, pickle in enumerate(hostile):
        names.append(f"{i}.pt")
        rewrite(tmp_path / "good.pt", tmp_path / names[-1], pickle)
    found = catalog(tmp_path, *names, "good.pt")
    assert not mark.exists()
    assert all(f[1] and f[2] for f in found["faults"]) and len(found["faults"]) > 250
    assert {a["name"] for a in found["arrays"] if a["tree"] == "good.pt"} == {"a", "l.0"}
    for array in found["arrays"]:
        size = (tmp_path / array["tree"]).stat().st_size
        assert all(p["offset"] + p["bytes"] <= size for p in array["pieces"])


# --- Models in several files, and raw bytes -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_files_of_an_index_are_one_model(tmp_path, kind):
    want = {f"layers.{i}.weight": random_tensor(torch.bfloat16, 3, i + 1) for i in range(9)}
    stem, _, end = kind.partition(".")
    names = [f"{stem}-0000{k + 1}-of-00003.{end}" for k in range(3)]
    for k, name in enumerate(names):
        part = dict(list(want.items())[k::3])
        if end == "bin":
            torch.save(part, tmp_path / name)
        else:
            from safetensors.torch import save_file as save_tensors

            save_tensors(part, tmp_path / name)
    weight_map = {n: names[i % 3] for i, n in enumerate(want)}
    (tmp_path / f"{kind}.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    found = by_name(catalog(tmp_path, *names, f"{kind}.index.json"))
    check(tmp_path, found, want)
    assert {a["tree"] for a in found.values()} == {kind}
    (tmp_path / names[1]).unlink()
    found = catalog(tmp_path, f"{kind}.index.json", names[0], names[2])
    missing = sorted(f[2].split(",")[0] for f in found["faults"] if f[1] == "Missing")
    assert missing == sorted(n for n, file in weight_map.items() if file == names[1]) and len(found["arrays"]) == 6
    assert [f for f in found["faults"] if f[1] == "weight_map"][0][2] == f"the file {names[1]} is missing"


def test_arrays_json(tmp_path):
    values = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    (tmp_path / "a.bin").write_bytes(b"head" + values.tobytes()[:88])
    (tmp_path / "b.bin").write_bytes(values.tobytes()[88:])
    turned = np.ascontiguousarray(values.transpose(2, 0, 1))
    (tmp_path / "c.bin").write_bytes(turned.tobytes())
    step = {"arrays": [
        {"name": "flat", "dtype": "f32", "shape": [3, 4, 5], "pieces": [
            {"file": "a.bin", "offset": 4, "flat": [0, 22]}, {"file": "b.bin", "offset": 0, "flat": [22, 60]}]},
        {"name": "turned", "dtype": "float32", "shape": [3, 4, 5], "pieces": [{"file": "c.bin", "offset": 0, "strides": [4, 1, 12]}]},
    ]}  # fmt: skip
    (tmp_path / "arrays.json").write_text(json.dumps(step))
    check(tmp_path, by_name(catalog(tmp_path, "arrays.json")), {"flat": values, "turned": values})
