"""What the catalog says of databases of OCDBT that TensorStore and Orbax have written, held against what TensorStore reads of them; and of
what flax has written."""

import random
import shutil

import numpy as np
import pytest
from support.catalog import by_name, catalog, decode, read, same

ts = pytest.importorskip("tensorstore")
pytestmark = pytest.mark.timeout(240)

SHARDED = {
    "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 4], "codecs": [
        {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 1}}]}}],
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 8]}},
}  # fmt: skip


def database(path, **config):
    return {"driver": "ocdbt", "base": f"file://{path}/", "config": config}


def write(store, name, driver, values, metadata, context):
    kind = {"zarr": "dtype", "zarr3": "data_type"}[driver]
    name_of = {"zarr": values.dtype.str, "zarr3": str(values.dtype)}[driver] if values.dtype.kind != "V" else str(values.dtype)
    spec = {"driver": driver, "kvstore": {**store, "path": f"{name}/"}, "metadata": {"shape": values.shape, kind: name_of, **metadata}}
    ts.open(spec, create=True, context=context).result().write(values).result()


def stored(store, name, driver):
    return ts.open({"driver": driver, "kvstore": {**store, "path": f"{name}/"}}).result().read().result()


def check(top, store, names, drivers, manifest="db/manifest.ocdbt"):
    found = by_name(catalog(top, manifest))
    assert set(found) == set(names)
    for name, driver in zip(names, drivers):
        assert same(read(top, found[name], decode), stored(store, name, driver)), name
    return found


@pytest.mark.parametrize(
    "config",
    [
        {}, {"compression": None}, {"max_inline_value_bytes": 0}, {"max_inline_value_bytes": 1 << 20},
        {"max_decoded_node_bytes": 200}, {"max_decoded_node_bytes": 500, "compression": None, "version_tree_arity_log2": 1},
        {"manifest_kind": "numbered"}, {"compression": {"id": "zstd", "level": 19}},
    ],
    ids=["default", "plain", "outside", "inside", "deep", "deep-plain", "numbered", "zstd-19"],
)  # fmt: skip
def test_ocdbt_of_every_config(tmp_path, config):
    rng = np.random.default_rng(7)
    store, context = database(tmp_path / "db", **config), ts.Context()
    names, drivers = [], []
    for i in range(12):
        driver = ("zarr", "zarr3")[i % 2]
        values = rng.integers(1, 100, (5 + i, 9)).astype([np.float32, np.int16, np.uint8][i % 3])
        metadata = {"chunks": [3, 4], "compressor": {"id": "zlib", "level": 1} if i % 4 else None} if driver == "zarr" else SHARDED
        names.append(f"layers.{i}.weight" if i % 3 else f"opt/{i}")
        drivers.append(driver)
        write(store, names[-1], driver, values, metadata, context)
    found = check(tmp_path, store, names, drivers)
    assert {a["tree"] for a in found.values()} == {"db"} and {a["format"] for a in found.values()} == {"ocdbt"}
    inside = [p for a in found.values() for p in a["pieces"] if p["data"] is not None]
    assert bool(inside) == (config.get("max_inline_value_bytes") != 0)
    assert all(p["data"] is not None for a in found.values() for p in a["pieces"]) == (config.get("max_inline_value_bytes") == 1 << 20)


def test_ocdbt_of_the_latest_version(tmp_path):
    store, context = database(tmp_path / "db", version_tree_arity_log2=1), ts.Context()
    for i in range(20):
        write(store, f"w{i}", "zarr", np.full((4,), i + 1, np.int32), {"chunks": [2], "compressor": None}, context)
        array = ts.open({"driver": "zarr", "kvstore": {**store, "path": "w0/"}}, context=context).result()
        array.write(np.full((4,), 100 + i, np.int32)).result()
    ts.KvStore.open(store, context=context).result().delete_range(ts.KvStore.KeyRange("w5/", "w50")).result()
    names = [f"w{i}" for i in range(20) if i != 5]
    found = check(tmp_path, store, names, ["zarr"] * 19)
    assert read(tmp_path, found["w0"], decode)[0] == 119
    ts.KvStore.open(store, context=context).result().delete_range(ts.KvStore.KeyRange("a", "z")).result()
    assert not by_name(catalog(tmp_path, "db/manifest.ocdbt"))


def test_ocdbt_of_many_arrays_in_one_transaction(tmp_path):
    store = database(tmp_path / "db", max_decoded_node_bytes=100_000_000, max_inline_value_bytes=1024)
    kv = ts.KvStore.open(store).result()
    metadata = '{"zarr_format":2,"shape":[1],"chunks":[1],"dtype":"<i4","compressor":null,"order":"C","fill_value":null,"filters":null}'
    txn = ts.Transaction(atomic=True)
    for i in range(20_000):
        kv.with_transaction(txn).write(f"params.layer.{i}/.zarray", metadata)
        kv.with_transaction(txn).write(f"params.layer.{i}/0", i.to_bytes(4, "little"))
    txn.commit_async().result()
    found = by_name(catalog(tmp_path, "db/manifest.ocdbt"))
    assert len(found) == 20_000
    for i in (0, 1, 9_999, 19_999):
        assert read(tmp_path, found[f"params.layer.{i}"])[0] == i


def orbax_tree():
    import jax.numpy as jnp

    rng = np.random.default_rng(3)
    return {
        "params": {"dense": {"kernel": jnp.asarray(rng.standard_normal((40, 30)), jnp.bfloat16), "bias": jnp.ones(3)}, "list": [jnp.zeros(2), jnp.int32(5)]},
        "big": rng.standard_normal((200, 50)), "step": 7, "scalar": jnp.float32(2),
    }  # fmt: skip


ORBAX_NAMES = {
    "params.dense.kernel": ("params", "dense", "kernel"), "params.dense.bias": ("params", "dense", "bias"),
    "params.list.0": ("params", "list", 0), "params.list.1": ("params", "list", 1), "big": ("big",), "step": ("step",), "scalar": ("scalar",),
}  # fmt: skip


def leaf(tree, path):
    for key in path:
        tree = tree[key]
    return np.asarray(tree)


@pytest.mark.parametrize("zarr3", [False, True])
def test_orbax(tmp_path, zarr3):
    ocp = pytest.importorskip("orbax.checkpoint")
    tree = orbax_tree()
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=zarr3)).save(tmp_path / "state", tree)
    found = by_name(catalog(tmp_path, "state/manifest.ocdbt", "state/ocdbt.process_0/manifest.ocdbt"))
    assert set(found) == set(ORBAX_NAMES)
    for name, path in ORBAX_NAMES.items():
        assert same(read(tmp_path, found[name], decode), leaf(tree, path)), name
    # Before the databases of processes are joined each is all that there is.
    (tmp_path / "state/manifest.ocdbt").unlink()
    parts = by_name(catalog(tmp_path, "state/ocdbt.process_0/manifest.ocdbt"))
    assert set(parts) == set(ORBAX_NAMES) and all(a["fill"] is None for a in parts.values())
    for name, path in ORBAX_NAMES.items():
        assert same(read(tmp_path, parts[name], decode), leaf(tree, path)), name


@pytest.mark.parametrize("ocdbt", [False, True])
def test_orbax_names_that_are_missing_are_told(tmp_path, ocdbt):
    ocp = pytest.importorskip("orbax.checkpoint")
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)).save(tmp_path / "state", {**orbax_tree(), "none": None, "text": "x", "empty": {}})
    paths = [str(p.relative_to(tmp_path)) for p in sorted((tmp_path / "state").rglob("*")) if p.is_file()]
    found = by_name(catalog(tmp_path, *paths))
    assert {n.removeprefix("state/") for n in found} == set(ORBAX_NAMES)
    metadata = tmp_path / "state/_METADATA"
    text = metadata.read_text()
    metadata.write_text(text.replace('"key": "bias"', '"key": "bios"'))
    told = sorted((f[1], f[2].split(",")[0]) for f in catalog(tmp_path, *paths)["faults"])
    assert told == ([("Extra", "params.dense.bias")] if ocdbt else []) + [("Missing", "params.dense.bios")]


# --- MessagePack --------------------------------------------------------------------------------------------------------


def test_flax(tmp_path, monkeypatch):
    serialization = pytest.importorskip("flax.serialization")
    import jax.numpy as jnp

    rng = np.random.default_rng(11)
    tree = {
        "params": {"w": jnp.asarray(rng.standard_normal((7, 5)), jnp.bfloat16), "layers": [np.arange(6).reshape(2, 3), {"b": np.ones((2, 0, 3), np.float16)}]},
        "opt": (jnp.zeros((), jnp.int32), {"mu": rng.standard_normal((60, 3, 4))}), "step": np.int64(3), "scale": 0.5, "name": "run", "none": None, "z": 2j,
    }  # fmt: skip
    want = {
        "params.w": tree["params"]["w"], "params.layers.0": tree["params"]["layers"][0], "params.layers.1.b": tree["params"]["layers"][1]["b"],
        "opt.0": tree["opt"][0], "opt.1.mu": tree["opt"][1]["mu"], "step": tree["step"],
    }  # fmt: skip
    for chunk in (None, 512):
        if chunk:
            monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", chunk)
        (tmp_path / "model.msgpack").write_bytes(serialization.to_bytes(tree))
        (tmp_path / "checkpoint_5").write_bytes(serialization.to_bytes(tree))
        for name in ("model.msgpack", "checkpoint_5"):
            found = by_name(catalog(tmp_path, name))
            assert set(found) == set(want)
            for key, array in want.items():
                assert same(read(tmp_path, found[key]), np.asarray(array)), key
        assert len(found["opt.1.mu"]["pieces"]) > (1 if chunk else 0)


def test_msgpack_that_is_damaged(tmp_path):
    serialization = pytest.importorskip("flax.serialization")
    good = serialization.to_bytes({"a": {"b": np.arange(6, dtype=np.float32)}, "c": [np.ones((2, 2)), np.int32(1)]})
    rng = random.Random(9)
    paths = []
    for i in range(400):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        paths.append(f"{i}.msgpack")
        (tmp_path / paths[-1]).write_bytes(data[: rng.randrange(1, len(data))] if i % 4 == 0 else data)
    found = catalog(tmp_path, *paths)
    assert len(found["faults"]) > 50 and all(f[1] and f[2] for f in found["faults"])
    for array in found["arrays"]:
        assert all(p["offset"] + p["bytes"] <= (tmp_path / p["file"]).stat().st_size for p in array["pieces"])


# --- Damage -------------------------------------------------------------------------------------------------------------


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def resealed(block):
    return block[:-4] + crc32c(block[:-4]).to_bytes(4, "little")


def test_ocdbt_with_hostile_blocks(tmp_path):
    """Bytes are changed and the checksum is made right again, of a manifest and of a node; each ends with a fault or a reason."""
    store = database(tmp_path / "good", compression=None, max_inline_value_bytes=1000)
    write(store, "w", "zarr", np.arange(12, dtype=np.float32).reshape(3, 4), {"chunks": [2, 4], "compressor": None}, ts.Context())
    rng = random.Random(5)
    manifest = (tmp_path / "good/manifest.ocdbt").read_bytes()
    assert resealed(manifest) == manifest
    paths = []
    for i in range(300):
        top = tmp_path / str(i)
        top.mkdir()
        shutil.copytree(tmp_path / "good/d", top / "d")
        data = bytearray(manifest)
        if i % 2:
            node = max((top / "d").iterdir(), key=lambda f: f.read_bytes().count(b".zarray"))
            whole = node.read_bytes()
            at = max((k for k in range(len(whole)) if whole.startswith(b"\x0c\xdb\x20\xde", k)), default=0)
            length = int.from_bytes(whole[at + 4 : at + 12], "little")
            block = bytearray(whole[at : at + length])
            for _ in range(rng.randrange(1, 4)):
                block[rng.randrange(14, min(len(block) - 4, 90))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            node.write_bytes(whole[:at] + resealed(bytes(block)) + whole[at + length :])
        else:
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(12, len(data) - 4)] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            data = resealed(bytes(data))
        (top / "manifest.ocdbt").write_bytes(data)
        paths.append(f"{i}/manifest.ocdbt")
    found = catalog(tmp_path, *paths)
    assert all(f[1] and f[2] for f in found["faults"]) and len(found["faults"]) > 50
    for array in found["arrays"]:
        for piece in array["pieces"]:
            assert piece["data"] is not None or piece["offset"] + piece["bytes"] <= (tmp_path / piece["file"]).stat().st_size


def test_ocdbt_that_lacks_a_file(tmp_path):
    store = database(tmp_path / "db", max_inline_value_bytes=1000)
    write(store, "w", "zarr", np.arange(500, dtype=np.float32), {"chunks": [500], "compressor": None}, ts.Context())
    assert not by_name(catalog(tmp_path, "db/manifest.ocdbt"))["w"]["why"]
    told = 0
    for file in list((tmp_path / "db/d").iterdir()):
        data = file.read_bytes()
        for rest in (None, data[:10]):
            file.write_bytes(rest) if rest else file.unlink()
            found = catalog(tmp_path, "db/manifest.ocdbt")
            whys = [a["why"] for a in found["arrays"]] + [f[2] for f in found["faults"]]
            told += any(w and "missing" in w for w in whys)
        file.write_bytes(data)
    assert told >= 2
