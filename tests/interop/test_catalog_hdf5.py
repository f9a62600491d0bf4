"""The catalog of HDF5 files that h5py has written, and of Keras's files in the form that Keras writes, held against what h5py reads."""

import json
import os
import random
import subprocess
import zipfile
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
from support.catalog import by_name, catalog, decode, read, same

pytestmark = pytest.mark.timeout(240)

LIBVERS = ["earliest", "v110", "latest"]


def values(dtype, *shape, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return np.frombuffer(rng.bytes(dtype.itemsize * int(np.prod(shape, dtype=int))), dtype).reshape(shape)


def native(array):
    array = np.asarray(array)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).reshape(array.shape)


def datasets(path):
    """All that h5py finds, by each of its names."""
    found = {}

    def take(name, thing):
        if isinstance(thing, h5py.Dataset):
            found[name] = thing[()]

    with h5py.File(path, "r") as f:
        f.visititems(take)
    return found


def check(top, name, *files, want=None):
    found = by_name(catalog(top, name, *files))
    want = datasets(top / name) if want is None else want
    assert set(found) == set(want)
    for key, array in want.items():
        assert found[key]["format"] == "hdf5" and found[key]["tree"] == name
        assert same(read(top, found[key], decode), native(array)), key
    return found


DTYPES = ["?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", ">i2", ">i8", ">u4", ">f2", ">f4", ">f8", "<c8", "<c16", ">c8"]


@pytest.mark.parametrize("libver", LIBVERS)
def test_every_dtype(tmp_path, libver):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as f:
        for dtype in DTYPES:
            f.create_dataset(f"plain {dtype}", data=values(dtype, 5, 3))
            f.create_dataset(f"chunked {dtype}", data=values(dtype, 5, 3), chunks=(2, 2), shuffle=True, compression=1)
            f.create_dataset(f"scalar {dtype}", data=values(dtype))
    found = check(tmp_path, "a.h5")
    assert len(found) == 3 * len(DTYPES) and found["plain >f4"]["big_endian"]


STORAGES = {
    "contiguous": {}, "chunked": {"chunks": (7, 4)}, "gzip": {"chunks": (7, 4), "compression": "gzip"},
    "shuffled": {"chunks": (7, 4), "compression": 9, "shuffle": True}, "shuffle alone": {"chunks": (7, 4), "shuffle": True},
    "sums": {"chunks": (7, 4), "fletcher32": True}, "all": {"chunks": (7, 4), "fletcher32": True, "compression": 4, "shuffle": True},
    "large chunk": {"chunks": (53, 29), "fletcher32": True, "compression": 4, "shuffle": True}, "rows": {"chunks": (1, 29)},
    "elements": {"chunks": (1, 1)}, "single gzip": {"chunks": (53, 29), "compression": 1}, "single": {"chunks": (53, 29)},
    "may grow": {"chunks": (7, 4), "maxshape": (100, 200)}, "grows": {"chunks": (7, 4), "maxshape": (None, 50), "compression": 1},
    "grows sideways": {"chunks": (3, 1), "maxshape": (70, None)}, "grows both ways": {"chunks": (7, 4), "maxshape": (None, None)},
    "grows both ways, gzip": {"chunks": (1, 2), "maxshape": (None, None), "compression": 1, "fletcher32": True},
}  # fmt: skip


@pytest.mark.parametrize("libver", LIBVERS)
def test_every_storage(tmp_path, libver):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as f:
        for name, how in STORAGES.items():
            for dtype in ("<f4", ">i2", "<c16", "u1"):
                f.create_dataset(f"{name}/{dtype}", data=values(dtype, 53, 29), **how)
        f.create_dataset("odd", data=values("u1", 53), chunks=(7,), fletcher32=True)
        f.create_dataset("five", data=values("<i2", 5, 4, 3, 2, 1), chunks=(2, 3, 2, 1, 1), compression=2)
        space, plist = h5py.h5s.create_simple((40,)), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(f.id, b"compact", h5py.h5t.NATIVE_DOUBLE, space, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, values("<f8", 40))
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_chunk((6,))
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        h5py.h5d.create(f.id, b"early", h5py.h5t.NATIVE_DOUBLE, space, early).write(h5py.h5s.ALL, h5py.h5s.ALL, values("<f8", 40))
    found = check(tmp_path, "a.h5")
    assert found["all/<f4"]["pieces"][0]["codecs"] == ["fletcher32", "zlib", "shuffle4"]
    assert len(found["elements/u1"]["pieces"]) == 53 * 29 and found["compact"]["pieces"][0]["bytes"] == 320


@pytest.mark.parametrize("libver", LIBVERS)
def test_lzf(tmp_path, libver):
    rng = np.random.default_rng(3)
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as f:
        for i, (low, size) in enumerate([(2, 9000), (20, 9000), (2**15, 9000), (2, 1), (2, 300000), (1, 300000)]):
            data = np.sort(rng.integers(0, low, size)) if i % 2 else rng.integers(0, low, size)
            f.create_dataset(f"alone {i}", data=data.astype("i2"), compression="lzf")
            f.create_dataset(f"all {i}", data=data, compression="lzf", shuffle=True, fletcher32=True, chunks=(min(size, 70000),))
    want, found = datasets(tmp_path / "a.h5"), by_name(catalog(tmp_path, "a.h5"))
    assert set(found) == set(want) and found["all 4"]["pieces"][0]["codecs"] == ["fletcher32", "lzf", "shuffle8"]
    for key, array in want.items():
        assert found[key]["gathered"] == "yes" and found[key]["bytes"] == array.tobytes(), key


@pytest.mark.parametrize("libver", LIBVERS)
def test_elements_that_were_never_written(tmp_path, libver):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as f:
        f.create_dataset("empty", (0, 3), "<f4")
        f.create_dataset("empty chunks", (0,), "<f4", maxshape=(None,))
        f.create_dataset("unwritten", (4, 5), "<f8")
        f.create_dataset("unwritten chunks", (4, 5), "<f8", chunks=(2, 2), fillvalue=2.5)
        f.create_dataset("complex", (4,), ">c8", chunks=(2,), fillvalue=1 + 2j)
        f.create_dataset("bool", (4,), "?", chunks=(2,), fillvalue=True)
        for name, how in STORAGES.items():
            if "chunks" in how:
                f.create_dataset(f"holes {name}", (53, 29), ">i4", fillvalue=-7, **how)[10:20, 4:9] = 3
        for name, most in (("shrunk", 90), ("shrunk both ways", None)):
            f.create_dataset(name, data=values("<i4", 30, 30), chunks=(4, 4), maxshape=(None, most)).resize((9, 10))
        grown = f.create_dataset("grown", data=values("<i4", 3), chunks=(2,), maxshape=(None,), compression=1)
        grown.resize((5000,))
        grown[4000:] = 9
    check(tmp_path, "a.h5")


@pytest.mark.parametrize("libver", LIBVERS)
def test_many_chunks(tmp_path, libver):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as f:
        f.create_dataset("fixed", data=values("<u2", 7000), chunks=(3,))
        f.create_dataset("fixed filtered", data=values("<u2", 5000), chunks=(4,), fletcher32=True)
        f.create_dataset("whole pages", data=values("<u2", 2048), chunks=(1,))
        f.create_dataset("holes", (40000,), "<u2", chunks=(4,))[21000:21100] = 5
        f.create_dataset("grows", data=values("<u2", 7000), chunks=(2,), maxshape=(None,))
        f.create_dataset("grows filtered", data=values("<u2", 2000), chunks=(2,), maxshape=(None,), shuffle=True)
        f.create_dataset("grows both ways", data=values("<u2", 100, 70), chunks=(1, 1), maxshape=(None, None))
        f.create_dataset("grows both ways, holes", (900, 900), "<u2", chunks=(2, 3), maxshape=(None, None), compression=1)[300:500:7, 20:850:9] = 5
        # From chunk 131056 on, data blocks have pages.
        f.create_dataset("grown holes", (140000,), "<u2", chunks=(1,), maxshape=(None,))[135000:136500] = 5
    check(tmp_path, "a.h5")


@pytest.mark.parametrize("track_order", [False, True])
@pytest.mark.parametrize("libver", LIBVERS)
def test_groups(tmp_path, libver, track_order):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver, track_order=track_order) as f:
        for i in range(1000):
            f.create_dataset(f"many/layer.{i}", data=np.int32(i))
        for i in range(3000):
            f.create_group(f"more/group number {i} " + "x" * (i % 500))
        for i in range(5):
            f.create_dataset(f"few/{i}", data=np.arange(i))
        f.create_dataset("/".join("abcdefghij") + "/w", data=np.arange(3.0))
        f.create_dataset("n" * 3000, data=np.int8(3))
        f["few/ä \n %"] = np.ones(2)
        f.create_group("none")
        f["again"] = f["few/3"]
        for i in range(300):
            f["few"].attrs[f"attribute {i}"] = "x" * 100
        f["few/4"].attrs["large"] = np.arange(7000)
    want = datasets(tmp_path / "a.h5") | {"again": np.arange(3)}
    want["few/3"] = want["again"]
    check(tmp_path, "a.h5", want=want)


@pytest.mark.parametrize("libver", LIBVERS)
def test_links_that_are_not_followed_have_a_reason(tmp_path, libver):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as f:
        f["w"] = np.arange(4)
        f["soft"] = h5py.SoftLink("/w")
        f["external"] = h5py.ExternalLink("b.h5", "/w")
        f["g/self"] = f["/"]
        f["g/twice"] = f["g"]
        f["h"] = f["g"]
    found = by_name(catalog(tmp_path, "a.h5"))
    assert set(found) >= {"w", "soft", "external", "g/self", "g/twice"} and ("h" in found) == ("g" not in found)
    assert same(read(tmp_path, found.pop("w")), np.arange(4))
    assert "soft" in found["soft"]["why"] and "another file" in found["external"]["why"]
    assert all(a["why"] and not a["pieces"] for a in found.values())


@pytest.mark.parametrize("libver", LIBVERS)
def test_datatypes_with_a_name(tmp_path, libver):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as f:
        for i, dtype in enumerate([">f4", "<i8", "?", "<c16"]):
            f[f"types/{i}"] = np.dtype(dtype)
            f.create_dataset(f"plain {i}", data=values(dtype, 5, 3), dtype=f[f"types/{i}"])
            f.create_dataset(f"chunked {i}", data=values(dtype, 5, 3), dtype=f[f"types/{i}"], chunks=(2, 2), compression=1)
        f["types/text"] = h5py.string_dtype()
        f.create_dataset("text", (2,), f["types/text"])
    found = by_name(catalog(tmp_path, "a.h5"))
    assert "length" in found.pop("text")["why"]
    for key, array in datasets(tmp_path / "a.h5").items():
        if key != "text":
            assert same(read(tmp_path, found.pop(key), decode), native(array)), key
    assert not found


def test_arrays_that_are_not_read_have_a_reason(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as f:
        f["ok"] = np.arange(4)
        f["text"] = "words"
        f["fixed text"] = np.bytes_("words")
        f["record"] = np.zeros(3, [("a", "<f4"), ("b", "<i4")])
        f["bytes"] = np.zeros(3, "V5")
        f.create_dataset("enum", (3,), h5py.enum_dtype({"A": 0, "B": 1}, "i1"))
        f.create_dataset("reference", (3,), h5py.ref_dtype)
        f.create_dataset("array", (3,), np.dtype("(2,2)f4"))
        f.create_dataset("long", (3,), np.longdouble)
        f["null"] = h5py.Empty("f4")
        f.create_dataset("scale", data=np.zeros(100, "i4"), scaleoffset=3, chunks=(10,))
        f.create_dataset("elsewhere", (2,), "f4", external=[("b.raw", 0, 8)])
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource(f["ok"])
        f.create_virtual_dataset("virtual", layout)
    found = by_name(catalog(tmp_path, "a.h5"))
    assert same(read(tmp_path, found.pop("ok")), np.arange(4))
    words = {
        "text": "length", "fixed text": "strings", "record": "records", "bytes": "bytes", "enum": "enumeration", "reference": "references", "array": "arrays",
        "long": "floating", "null": "neither", "scale": "scaleoffset",
        "elsewhere": "other files", "virtual": "virtual",
    }  # fmt: skip
    assert set(found) == set(words)
    for name, word in words.items():
        assert word in found[name]["why"] and not found[name]["pieces"], found[name]


@pytest.mark.parametrize("user_block", [0, 512, 4096])
def test_user_block(tmp_path, user_block):
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=user_block) as f:
        f["w/0"] = values("<f4", 9)
        f.create_dataset("w/1", data=values("<f4", 9), chunks=(2,), compression=1)
    check(tmp_path, "a.h5")
    if user_block:
        (tmp_path / "b.h5").write_bytes(bytes(user_block) + (tmp_path / "a.h5").read_bytes()[user_block:])
        check(tmp_path, "b.h5")
    (tmp_path / "c.h5").write_bytes(bytes(1024) + (tmp_path / "a.h5").read_bytes()[user_block:])
    assert set(by_name(catalog(tmp_path, "c.h5"))) == {"w/0", "w/1"}


# --- Keras --------------------------------------------------------------------------------------------------------------


def keras_weights(path):
    """As keras.src.saving.saving_lib.H5IOStore writes: bfloat16 as bytes, with an attribute."""
    want = {}
    with h5py.File(path, "w") as f:
        for layer in ("dense", "dense_1"):
            for i, shape in enumerate([(12, 7), (7,)]):
                want[f"layers/{layer}/vars/{i}"] = values("<f4", *shape, seed=i)
        want["optimizer/vars/0"] = np.int64(17)
        for name, array in want.items():
            f.create_dataset(name, data=array)
        half = values("<u2", 4, 3).view(ml_dtypes.bfloat16)
        d = f.create_dataset("layers/half/vars/0", data=half)
        d.attrs["dtype"] = "bfloat16"
        f.create_group("_layer_checkpoint_dependencies").attrs["name"] = "x"
        f.create_dataset("layers/other/vars/0", data=half).attrs["dtype"] = "bfloat17"
    want["layers/half/vars/0"] = half
    return want


def check_keras(top, name, want):
    found = by_name(catalog(top, name))
    assert "bytes" in found.pop("layers/other/vars/0")["why"]
    assert set(found) == set(want)
    for key, array in want.items():
        assert found[key]["tree"] == name and same(read(top, found[key], decode), np.asarray(array)), key


def test_keras(tmp_path):
    want = keras_weights(tmp_path / "m.weights.h5")
    check_keras(tmp_path, "m.weights.h5", want)
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as z:
        z.writestr("metadata.json", '{"keras_version": "3.15.1"}')
        z.writestr("config.json", "{}")
        z.write(tmp_path / "m.weights.h5", "model.weights.h5")
    check_keras(tmp_path, "m.keras", want)
    with zipfile.ZipFile(tmp_path / "packed.keras", "w", zipfile.ZIP_DEFLATED) as z:
        z.write(tmp_path / "m.weights.h5", "model.weights.h5")
    found = catalog(tmp_path, "packed.keras")
    assert [a["name"] for a in found["arrays"]] == ["model.weights.h5"] and "compressed" in found["arrays"][0]["why"]


# --- Damage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("libver", LIBVERS)
def test_files_that_are_damaged(tmp_path, libver):
    with h5py.File(tmp_path / "good.h5", "w", libver=libver) as f:
        for i in range(12):
            f.create_dataset(f"g/{i}", data=values("<f4", 6), chunks=(2,), compression=1, shuffle=True, maxshape=(None,) if i % 2 else None)
        f["w"] = values("<f4", 6)
    good = (tmp_path / "good.h5").read_bytes()
    rng = random.Random(libver)
    used = [i for i, byte in enumerate(good) if byte and i >= 8]
    paths = []
    for i in range(800):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            at = rng.choice(used)
            data[at : at + rng.choice([1, 1, 2, 8])] = rng.choice([b"\0", b"\xff", bytes([rng.randrange(256)]), (at & ~7).to_bytes(8, "little")])
        paths.append(f"{i}.h5")
        (tmp_path / paths[-1]).write_bytes(data[: rng.randrange(16, len(data))] if i % 5 == 0 else data)
    found = catalog(tmp_path, *paths)
    assert len(found["faults"]) > 150 and all(f[1] and f[2] for f in found["faults"])
    for array in found["arrays"]:
        size = (tmp_path / array["tree"]).stat().st_size
        assert all(p["offset"] + p["bytes"] <= size for p in array["pieces"])


def flip(path, step=1):
    """The catalog of a file in which one bit of each byte, or of each `step`th one, is another."""
    program = Path(os.environ["CKPT_BUILD_DIR"]) / "tests/interop_flip"
    return json.loads(subprocess.run([program, path, str(step)], capture_output=True, text=True, check=True).stdout)


def test_each_bit_of_the_metadata_that_changes_is_told_or_does_not_count(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as f:
        f["w"] = values("<f4", 6)
        for i in range(6):  # they do not fit in what the header has at first
            f["w"].attrs[f"attribute {i}"] = np.arange(9)
        for i in range(60):
            f[f"many/a name of some length, so that they take several blocks: {i}"] = f["w"]
        f.create_dataset("fixed", data=values("u1", 5), chunks=(2,), fletcher32=True)
        f.create_dataset("grows", data=values("u1", 300), chunks=(1,), maxshape=(None,))
        f.create_dataset("grows both ways", data=values("u1", 10, 10), chunks=(1, 1), maxshape=(None, None))
    told = flip(tmp_path / "a.h5")
    assert not told["silent"] and told["same"]
    least = {
        "superblock": 48, "OHDR": 400, "OCHK": 90, "BTHD": 2 * 38, "BTIN": 30, "BTLF": 60 * 11, "FRHP": 146, "FHIB": 60, "FHDB": 2048,
        "FAHD": 28, "FADB": 30, "EAHD": 72, "EAIB": 200, "EASB": 20, "EADB": 16 * 8,
    }  # fmt: skip
    assert {field: told["faults"].get(field, 0) for field in least if told["faults"].get(field, 0) < least[field]} == {}


def test_the_same_of_arrays_of_chunks_that_have_pages(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as f:
        f.create_dataset("fixed", data=values("u1", 1100), chunks=(1,))
        f.create_dataset("grows", (140000,), "u1", chunks=(1,), maxshape=(None,))[135000:135040] = 5
    told = flip(tmp_path / "a.h5", step=97)
    assert not told["silent"] and told["same"]
    assert told["faults"]["FADB"] >= 1100 * 8 // 97 and told["faults"]["EADB"] >= 1024 * 8 // 97
