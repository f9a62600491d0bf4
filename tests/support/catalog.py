"""The catalog of files as the reader has it, and the arrays that its pieces make: each element where the catalog says it is. What is gathered
here from the pieces is compared with what the reader gathers."""

import ctypes
import gzip
import json
import os
import subprocess
import tempfile
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np

DTYPES = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
    "c64": np.complex64, "c128": np.complex128, "i4": ml_dtypes.int4, "u4": ml_dtypes.uint4,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "f8e8m0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
NOT_GATHERED = {"i4", "u4"}


def catalog(top, *files):
    """{"arrays": [...], "faults": [...]}; files are paths below top."""
    program = os.environ.get("CKPT_CATALOG") or Path(os.environ["CKPT_BUILD_DIR"]) / "tests/interop_catalog"
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run([program, "-o", out, top, *map(str, files)], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        for i, array in enumerate(found["arrays"]):
            array["bytes"] = (Path(out) / str(i)).read_bytes() if array["gathered"] == "yes" else None
    for array in found["arrays"]:
        array["name"] = bytes.fromhex(array["name"]).decode("utf-8", "surrogateescape")
    return found


def by_name(found):
    assert not found["faults"], found["faults"]
    names = {a["name"]: a for a in found["arrays"]}
    assert len(names) == len(found["arrays"])
    return names


def read(top, array, decode=None):
    """The array, gathered piece by piece. decode takes the bytes and a piece with codecs, and gives its elements."""
    assert array["why"] is None, array
    dtype = np.dtype(DTYPES[array["dtype"]])
    whole = np.zeros(array["shape"], dtype)
    seen = np.zeros(array["shape"], np.int64)
    if array["fill"] is not None:
        whole[...] = np.frombuffer(bytes.fromhex(array["fill"]), dtype)[0]
    for piece in array["pieces"]:
        if piece["data"] is None:
            with open(Path(top) / piece["file"], "rb") as f:
                f.seek(piece["offset"])
                data = f.read(piece["bytes"])
        else:
            data = bytes.fromhex(piece["data"])
        assert len(data) == piece["bytes"]
        if piece["codecs"]:
            data = decode(data, piece)
        if all(piece["extent"]):
            stored = dtype.newbyteorder(">") if array["big_endian"] else dtype
            strides = [s * dtype.itemsize for s in piece["strides"]]
            box = tuple(slice(a, a + n) for a, n in zip(piece["start"], piece["extent"]))
            whole[box] = np.ndarray(piece["extent"], stored, data, piece["first"] * dtype.itemsize, strides)
            seen[box] += 1
    assert (seen <= 1).all() and (array["fill"] is not None or (seen == 1).all()), "pieces are missing or double"
    if array["gathered"] != "ENOTSUP" or not NOT_GATHERED & ({codec for p in array["pieces"] for codec in p["codecs"]} | {array["dtype"]}):
        assert array["gathered"] == "yes" and array["bytes"] == whole.tobytes(), array["name"]
    return whole


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def unblosc(data):
    library = ctypes.CDLL("libblosc.so.1")
    plain = ctypes.create_string_buffer(int.from_bytes(data[4:8], "little"))
    done = library.blosc_decompress_ctx(data, plain, ctypes.c_size_t(len(plain)), 1)
    assert done == len(plain)
    return plain.raw


def decode(data, piece):
    """All codecs but crc32c's and fletcher32's sums, which are not compared. blosc is its own library's."""
    for codec in piece["codecs"]:
        if codec in ("crc32c", "fletcher32"):
            data = data[:-4]
        elif codec == "blosc":
            data = unblosc(data)
        elif codec.startswith("shuffle"):
            width = int(codec.removeprefix("shuffle"))
            whole = len(data) // width * width
            data = np.frombuffer(data[:whole], np.uint8).reshape(width, -1).T.tobytes() + data[whole:]
        elif codec == "zstd":
            data = subprocess.run(["zstd", "-dqc"], input=data, capture_output=True, check=True).stdout
        else:
            data = {"gzip": gzip.decompress, "zlib": zlib.decompress, "deflate": lambda d: zlib.decompress(d, -15)}[codec](data)
    return data
