"""Files that were made to do harm, as a user meets them: `ckptfs check` says which file and what of it, within 256 MiB and 5 s of a processor,
and finds nothing wrong with the file beside it. The suites of core/array try each field for itself; here are headers at their extremes, pieces that
do not fit, and what unpacks without end."""

import gzip
import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest
from support.fixtures import SLOW

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata  # noqa: E402

torch.set_num_threads(1)
pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore"), pytest.mark.skipif(SLOW > 1, reason="a sanitizer has memory and time of its own")]

MEMORY_KIB, SECONDS = 256 << 10, 5
EXTREMES = [-1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64]
SAMPLES = {}


def sample(*where):
    """A function that writes a step. where: what a row of `check` names, the file or the array, then a word of the reason."""
    def add(write):
        SAMPLES[write.__name__] = (write, where)
        return write

    return add


def each(values, *where):
    def add(write):
        for value in values:
            SAMPLES[f"{write.__name__}({value})"] = (lambda top, value=value: write(top, value), where)
        return write

    return add


# --- Headers at their extremes ------------------------------------------------------------------------------------------------


@each([(n,) for n in EXTREMES] + [(1 << 32, 1 << 32), (1,) * 70], "a.npy", "header")
def npy_shape(top, shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}}}".encode().ljust(245) + b"\n"
    (top / "a.npy").write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + bytes(64))


@each(["[" * 60, "[('a', '<f4'", "[)]", "['a", "'|O"], "a.npy", "header")
def npy_records(top, descr):
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (4,)}}".encode().ljust(245) + b"\n"
    (top / "a.npy").write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + bytes(64))


@each([0, 65535], "a.npy")
def npy_header(top, length):
    (top / "a.npy").write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", length) + bytes(64))


def safetensors(top, header, data=bytes(64)):
    header = json.dumps(header).encode()
    (top / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)


@each([0, 1 << 31, (1 << 63) - 1, (1 << 64) - 1], "a.safetensors")
def safetensors_length(top, length):
    (top / "a.safetensors").write_bytes(struct.pack("<Q", length) + b'{"w":{}}' + bytes(64))


@each(EXTREMES, "a.safetensors", "header")
def safetensors_shape(top, n):
    safetensors(top, {"w": {"dtype": "F32", "shape": [n, 4], "data_offsets": [0, 64]}})


@each([[-4, 4], [64, 0], [0, (1 << 64) - 1], [(1 << 63) - 1, (1 << 63) + 15], [0, 1 << 70]], "a.safetensors", "header")
def safetensors_offsets(top, offsets):
    safetensors(top, {"w": {"dtype": "F32", "shape": [4], "data_offsets": offsets}})


@sample("a.safetensors", "header")
def safetensors_overlapping(top):
    safetensors(top, {name: {"dtype": "F32", "shape": [4], "data_offsets": [at, at + 16]} for name, at in (("v", 0), ("w", 8))}, bytes(24))


@each([(count, 0) for count in (1 << 31, (1 << 63) - 1, (1 << 64) - 1)] + [(0, n) for n in (1 << 31, (1 << 64) - 1)], "a.gguf")
def gguf_counts(top, counts):
    (top / "a.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, *counts) + bytes(64))


@each([1 << 31, (1 << 63) - 1, (1 << 64) - 1], "a.gguf")
def gguf_dimensions(top, n):
    (top / "a.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"w" + struct.pack("<IQQIQ", 2, n, n, 0, 0) + bytes(96))


def zarr2(top, chunk=bytes(16), **more):
    (top / "w").mkdir()
    metadata = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<f4", "compressor": None, "fill_value": 0, "filters": None, "order": "C"}
    (top / "w/.zarray").write_text(json.dumps(metadata | more))
    (top / "w/0").write_bytes(chunk)


@each([-1, 1 << 64, 1 << 70], "w/.zarray", "shape")
def zarr_shape(top, n):
    zarr2(top, shape=[n])


@each([-1, 0, 1 << 63, 1 << 64], "w/.zarray", "chunks")
def zarr_chunks(top, n):
    zarr2(top, chunks=[n])


@each(EXTREMES, "a.msgpack")
def msgpack_lengths(top, n):
    payload = b"\x93\x91\xcf" + struct.pack(">Q", n % (1 << 64)) + b"\xa5int32\xc4\x04abcd"
    (top / "a.msgpack").write_bytes(b"\x81\xa1w\xc7" + bytes([len(payload), 1]) + payload)


# --- Pieces that do not fit ----------------------------------------------------------------------------------------------------


def descriptor(top, pieces, shape=(8,)):
    (top / "a.bin").write_bytes(bytes(64))
    row = {"name": "w", "dtype": "float32", "shape": list(shape), "pieces": [{"file": "a.bin", "offset": 0, **p} for p in pieces]}
    (top / "arrays.json").write_text(json.dumps({"arrays": [row]}))


@sample(" w ", "in several")
def pieces_overlapping(top):
    descriptor(top, [{"flat": [0, 6]}, {"flat": [4, 8]}])


@sample(" w ", "in no file")
def pieces_gapped(top):
    descriptor(top, [{"flat": [0, 3]}, {"flat": [5, 8]}])


@each([[-1, 4], [4, 1], [0, 9], [0, (1 << 63) - 1], [(1 << 63) - 1, (1 << 63) - 1]], " w ", "flat range")
def pieces_flat(top, flat):
    descriptor(top, [{"flat": flat}])


@each([-1, 60, (1 << 63) - 1], " w ")
def pieces_offset(top, offset):
    descriptor(top, [{"offset": offset, "flat": [0, 8]}])


@each([1 << 64, 1 << 70], "arrays.json", "JSON")
def pieces_beyond(top, offset):
    descriptor(top, [{"offset": offset, "flat": [0, 8]}])


def distributed(top, change):
    dcp.save({"w": torch.arange(8.0), "other": torch.ones(2)}, checkpoint_id=str(top), no_dist=True)
    metadata = pickle.loads((top / ".metadata").read_bytes())
    chunks = metadata.state_dict_metadata["w"].chunks
    key = next(k for k in metadata.storage_data if k.fqn == "w")
    change(metadata, chunks, key)
    (top / ".metadata").write_bytes(pickle.dumps(metadata))


@each([-1, 1, (1 << 63) - 1, 1 << 64], " w ")
def dcp_offsets(top, n):
    distributed(top, lambda metadata, chunks, key: chunks.__setitem__(0, ChunkStorageMetadata([n], [8])))


@each([-1, 9, (1 << 63) - 1, 1 << 64], " w ")
def dcp_sizes(top, n):
    distributed(top, lambda metadata, chunks, key: chunks.__setitem__(0, ChunkStorageMetadata([0], [n])))


@each([-1, 1 << 40, (1 << 63) - 1, 1 << 64], " w ")
def dcp_storage(top, n):
    distributed(top, lambda metadata, chunks, key: setattr(metadata.storage_data[key], "offset", n))


@sample(" w ", "in no file")
def dcp_gapped(top):
    distributed(top, lambda metadata, chunks, key: setattr(metadata.state_dict_metadata["w"], "size", torch.Size([16])))


# --- What has no end ------------------------------------------------------------------------------------------------------------
# None: it need not be told. A list that has itself holds no array, and of a chunk no more is unpacked than its array has elements.


def torch_file(top, data):
    buffer = io.BytesIO()
    torch.save({"a": torch.arange(4.0)}, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(top / "a.pt", "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, data if name.endswith("data.pkl") else old.read(name))


@each([b"\x80\x02]q\x00h\x00a.", b"\x80\x02}q\x00X\x01\0\0\0ah\x00s.", b"\x80\x02]q\x00]q\x01(h\x00h\x00e0h\x01."], None)
def pickle_cycle(top, data):
    torch_file(top, data)


@sample("a.pt")
def pickle_doubling(top):
    lists = b"".join(b"]q" + bytes([i]) + b"(h" + bytes([i - 1]) + b"h" + bytes([i - 1]) + b"e" for i in range(1, 60))
    torch_file(top, b"\x80\x02]q\x00" + lists + b".")


@each([b"\x80\x02" + b"(" * 1_000_000 + b".", b"\x80\x02X\xff\xff\xff\xff.", b"\x80\x04\x8e" + b"\xff" * 8 + b"."], "a.pt")
def pickle_deep(top, data):
    torch_file(top, data)


def packed_zeros(size, wbits):
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()


@sample("a.npz")
def zip_bomb(top):
    """Each member says it is small, and unpacks to 256 MiB."""
    data = packed_zeros(256 << 20, -15)
    with zipfile.ZipFile(top / "a.npz", "w") as z:
        for i in range(16):
            z.writestr(f"w{i}.npy", b"")
    plain = bytearray((top / "a.npz").read_bytes())
    local, central = plain.find(b"PK\x03\x04"), plain.find(b"PK\x01\x02")
    name = b"w0.npy"
    head = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 8, 0, 0, 0, len(data), 144, len(name), 0) + name + data
    assert local == 0 and central > 0
    rows = b"".join(struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 8, 0, 0, 0, len(data), 144, len(name), 0, 0, 0, 0, 0, 0) + f"w{i % 10}.npy".encode() for i in range(10))
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 10, 10, len(rows), len(head), 0)
    (top / "a.npz").write_bytes(head + rows + end)


@sample(None)
def gzip_bomb_in_zarr(top):
    zarr2(top, gzip.compress(b"", 9)[:10] + packed_zeros(512 << 20, -15) + bytes(8), compressor={"id": "gzip", "level": 9})


@sample(None)
def zstd_bomb_in_zarr(top):
    zeros = subprocess.Popen(["head", "-c", "2G", "/dev/zero"], stdout=subprocess.PIPE)
    data = subprocess.run(["zstd", "-qc"], stdin=zeros.stdout, capture_output=True, check=True).stdout
    zeros.wait()
    zarr2(top, data, compressor={"id": "zstd", "level": 3})


# --- All of them ----------------------------------------------------------------------------------------------------------------


# A process keeps the peak of the one that it was forked from: this small one is between.
MEASURE = "import os, sys; pid = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]); _, status, used = os.wait4(pid, 0); "
MEASURE += "print(os.waitstatus_to_exitcode(status), used.ru_maxrss, used.ru_utime + used.ru_stime, file=sys.stderr)"


def checked(program, *args):
    """The rows of check, the KiB it took at most, and its seconds of a processor."""
    done = subprocess.run([sys.executable, "-ISc", MEASURE, program, *map(str, args), "--json"], capture_output=True, text=True, check=True)
    status, memory, seconds = done.stderr.split("\n")[-2].split()
    assert status in "01", done
    return json.loads(done.stdout)["findings"], int(memory), float(seconds)


def test_each_is_told_within_bounds(mount, store, ckptfs, tmp_path):
    mount.umount()
    wrong = []
    for kind in sorted({name.split("(")[0] for name in SAMPLES}):
        samples = {f"n{i}": (name, *SAMPLES[name]) for i, name in enumerate(n for n in SAMPLES if n.split("(")[0] == kind)}
        for folder, (_, write, _) in samples.items():
            (tmp_path / kind / folder).mkdir(parents=True)
            write(tmp_path / kind / folder)
            np.save(tmp_path / kind / folder / "good.npy", np.ones(3))
        ckptfs("save", store, tmp_path / kind, kind)
        findings, memory, seconds = checked(ckptfs.path, "check", store, kind, "--read-data")
        rows = [" ".join(str(row[key]) for key in ("file", "tree", "name", "what")) for row in findings if row["kind"] != "gone"]
        if memory >= MEMORY_KIB or seconds >= SECONDS or any("good" in row for row in rows):
            wrong.append((kind, memory, seconds, findings))
        for folder, (name, _, where) in samples.items():
            said = [row for row in rows if f"{folder}/" in row or f"{folder} " in row]
            if where[0] is not None and not any(all(word in row for word in where) for row in said):
                wrong.append((name[:80], where, said))
    assert not wrong, "\n".join(map(str, wrong))
