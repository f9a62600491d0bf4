"""What the log of a store says of the store itself, under a key: read and written byte by byte (core/FORMAT.md, sections 3 and 9)."""

import hashlib
import json
import os
import struct
import time

SET, ANY = 11, 2**64 - 1


def _sections(data):
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    rows = [struct.unpack_from("<4sIQQ", data, 40 + 24 * i) for i in range(struct.unpack_from("<I", data, 12)[0])]
    return {name: data[at : at + length] for name, _, at, length in rows}


def _container(magic, sections):
    body, rows = b"", b""
    for name, data in sections:
        at = 40 + 24 * len(sections) + len(body)
        rows += struct.pack("<4sIQQ", name, 1, at, len(data))
        body += data + bytes(-len(data) % 8)
    length = 40 + len(rows) + len(body) + 32
    whole = magic + struct.pack("<HHIQQQ", 1, 0, len(sections), 0, 0, length) + rows + body
    return whole + hashlib.sha256(whole).digest()


def _entries(store):
    return sorted((store / "log").glob("*"))


def said(store, key):
    """The value, None: there is none. Of a log of which nothing was trimmed."""
    value = None
    for entry in _entries(store):
        operations, at = _sections(entry.read_bytes())[b"OPER"], 0
        while at < len(operations):
            length, kind = struct.unpack_from("<IH", operations, at)
            body = operations[at + 88 : at + 88 + length]
            key_length = struct.unpack_from("<H", body, 16)[0] if kind == SET else 0
            if kind == SET and body[24 : 24 + key_length].decode() == key:
                value = body[24 + key_length :].decode() or None
            at += 88 + length + -length % 8
    return value


def say(store, key, value):
    """Appends an entry, as another version of ckptfs may have done. The store is not mounted."""
    store_id = json.loads((store / "store.json").read_text())["id"].encode()
    entries, now = _entries(store), time.time_ns()
    before = hashlib.sha256(entries[-1].read_bytes()).digest() if entries else bytes(32)
    seq = int(entries[-1].name, 16) + 1 if entries else 1
    body = struct.pack("<qQHHI", now, ANY, len(key), 0, len(value.encode())) + key.encode() + value.encode()
    head = store_id + bytes(4) + struct.pack("<Q", seq) + before + store_id + struct.pack("<Iq", 1, now)
    operation = struct.pack("<IHHQ", len(body), SET, 1, 0) + hashlib.sha256(head).digest()[:16] + store_id + struct.pack("<I16s", os.getuid(), b"storelog") + body
    (store / f"log/{seq:016x}").write_bytes(_container(b"ckpt-log", [(b"HEAD", head), (b"OPER", operation + bytes(-len(body) % 8))]))
