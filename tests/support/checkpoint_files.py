"""Checkpoints that are one file: small ones of each format, whole and cut off."""

import io
import json
import pickle
import struct
import zipfile


def zip_file(seed=1):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(zipfile.ZipInfo("archive/data.pkl"), pickle.dumps({"seed": seed}))  # without the time of day
        z.writestr(zipfile.ZipInfo("archive/data/0"), bytes([seed]) * 3000)
    return out.getvalue()


def npy(seed=1, shape=(20, 50)):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    count = 4
    for n in shape:
        count *= n
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes([seed]) * count


def safetensors(seed=1):
    header = json.dumps({"__metadata__": {"step": "1"}, "w": {"dtype": "F32", "shape": [500], "data_offsets": [0, 2000]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes([seed]) * 2000


def hdf5(seed=1):
    """A superblock of version 0 and what its end-of-file address counts."""
    block = b"\x89HDF\r\n\x1a\n" + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHI", 4, 16, 0)
    addresses = struct.pack("<QQQQ", 0, 2**64 - 1, 3000, 2**64 - 1)
    return (block + addresses).ljust(3000, bytes([seed]))


def pickled(seed=1):
    return pickle.dumps({"seed": seed, "data": bytes([seed]) * 3000}, protocol=4)


# File name and maker of each.
FORMATS = {
    "model.pt": zip_file,
    "model.pth": pickled,
    "model.ckpt": zip_file,
    "model.bin": zip_file,
    "model.safetensors": safetensors,
    "model.npz": zip_file,
    "model.npy": npy,
    "model.h5": hdf5,
    "model.keras": zip_file,
}
