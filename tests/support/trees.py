"""Trees of files: made up, written, and described so that two of them can be compared."""

import hashlib
import os
import stat
from pathlib import Path


def content(seed, size):
    """Bytes that nobody else has: every 32 of them depend on the seed and their place."""
    out = bytearray()
    block = hashlib.sha256(str(seed).encode()).digest()
    unit = hashlib.sha256(block).digest() * 128
    counter = 0
    while len(out) < size:
        out += block + counter.to_bytes(8, "little") + unit
        counter += 1
    return bytes(out[:size])


def write(path, data, mode=0o644):
    """Creates or replaces one file with plain calls."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view[:1 << 20]):]
    finally:
        os.close(fd)


def put(path, data):
    """The same, and the folders on the way to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, data)


def fill(folder, seed=0, files=8, size=20_000):
    """A small checkpoint: arrays in nested folders, an empty file, a symlink. Returns {path: bytes} of the files."""
    folder = Path(folder)
    made = {}
    for i in range(files):
        made[f"params/layer_{i % 3}/w{i}.bin"] = content((seed, i), size + 997 * i)
    made["config.json"] = b'{"hidden": 64}\n'
    made["empty"] = b""
    for name, data in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, data)
    os.symlink("params/layer_0", folder / "first")
    return made


def files(folder):
    """{path: bytes} of every file below."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if stat.S_ISREG(p.lstat().st_mode)}


def describe(folder, inodes=False, owners=True):
    """{path: everything that a step must keep} of a folder and all below it ("." is the folder).

    Extended attributes of ckptfs itself are left out. Directories' sizes and link counts belong to the disk's
    filesystem and are left out too.
    """
    folder = os.fspath(folder)
    out = {}
    for at, names, others in os.walk(folder):
        names.sort()
        for path in [at] * (at == folder) + [os.path.join(at, n) for n in names + others]:
            out[os.path.relpath(path, folder)] = _entry(path, inodes, owners)
    return out


def _entry(path, inodes, owners):
    st = os.lstat(path)
    entry = {"type": stat.S_IFMT(st.st_mode), "mode": stat.S_IMODE(st.st_mode), "mtime_ns": st.st_mtime_ns}
    if owners:
        entry["owner"] = (st.st_uid, st.st_gid)
    if inodes:
        entry["ino"] = st.st_ino
    if stat.S_ISLNK(st.st_mode):
        entry["target"] = os.readlink(path)
        return entry
    entry["xattrs"] = {n: os.getxattr(path, n) for n in sorted(os.listxattr(path)) if n.startswith("user.") and not n.startswith("user.ckptfs.")}
    if stat.S_ISREG(st.st_mode):
        entry["nlink"] = st.st_nlink
        entry["bytes"] = st.st_size
        digest = hashlib.sha256()
        with open(path, "rb") as f:
            while piece := f.read(1 << 20):
                digest.update(piece)
        entry["sha256"] = digest.hexdigest()
    return entry


def sizes(folder):
    """{path: size} of the files below, for a quick look by a watcher."""
    out = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            out[os.path.relpath(path, folder)] = os.lstat(path).st_size
    return out
