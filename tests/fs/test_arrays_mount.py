"""STEP/.arrays in a mount: the arrays of a step as files of NumPy, whatever its files are, and nothing else of the step changes by it."""

import concurrent.futures
import errno
import gzip
import json
import mmap
import os
import signal
import stat
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from test_arrays import saved

from support import trees
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(180)


def paths_of(want):
    """{TREE:NAME: array} to {path below .arrays: array}."""
    names = [key.partition(":")[2] for key in want]
    found = {}
    for key, array in want.items():
        tree, _, name = key.partition(":")
        if tree != ".":
            found[f"{tree}/{name}.npy"] = array
        if tree == "." or names.count(name) == 1:
            found[f"{name}.npy"] = array
    return found


def same(got, array):
    if array.dtype.name in ("bfloat16", "float8_e4m3fn"):
        assert got.dtype == np.dtype(f"V{array.dtype.itemsize}")
        got = got.view(array.dtype)
    return got.dtype == array.dtype and got.shape == array.shape and got.tobytes() == array.tobytes()


def walk(top):
    return sorted(os.path.relpath(os.path.join(folder, name), top) for folder, _, files in os.walk(top) for name in files)


def check(top, want):
    """All arrays, and no others, are there as they are wanted, by np.load and by a mapping."""
    paths = paths_of(want)
    assert walk(top / ".arrays") == sorted([*paths, "index.json"])
    for path, array in paths.items():
        assert same(np.load(top / ".arrays" / path), array), path
        assert same(np.load(top / ".arrays" / path, mmap_mode="r"), array), path
        assert os.stat(top / ".arrays" / path).st_size == len((top / ".arrays" / path).read_bytes())
    index = (top / ".arrays/index.json").read_bytes()
    assert len(index) == os.stat(top / ".arrays/index.json").st_size
    rows = json.loads(index)
    assert sorted(f"{r['tree']}:{r['name']}" for r in rows if r["name"]) == sorted(want)
    return rows


@pytest.fixture
def top(mount):
    (mount / "1000").mkdir()
    return mount / "1000"


@pytest.fixture
def made(top, commit):
    want = saved(top)
    for folder, _, files in os.walk(top):
        for name in files:
            os.chmod(os.path.join(folder, name), 0o644)  # safetensors makes files that are the user's alone
    commit(top)
    return want


def refused(act, *args):
    try:
        act(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


# --- What is there ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["passthrough", "daemon"], indirect=True)
def test_every_array_is_there_hot_and_cold(mount, store, top, made, ckptfs):
    check(top, made)
    mount.umount()
    ckptfs("cool", store, "1000")
    assert not list(store.glob("sessions/*/model.safetensors"))
    mount.start()
    check(top, made)


def test_no_listing_and_no_copy_of_the_step_has_it(mount, top, made, scratch):
    assert (top / ".arrays/counts.npy").exists() and (mount / "latest/.arrays/counts.npy").exists()
    assert ".arrays" not in os.listdir(top)
    found = subprocess.run(["find", top], capture_output=True, text=True, check=True).stdout
    assert ".arrays" not in found and "model.safetensors" in found
    subprocess.run(["cp", "-r", top, scratch / "copy"], check=True)
    subprocess.run(["rsync", "-a", f"{top}/", scratch / "synced"], check=True)
    assert walk(scratch / "copy") == walk(scratch / "synced") == walk(top)
    assert stat.S_ISDIR(os.stat(top / ".arrays/ema").st_mode) and os.listdir(top / ".arrays/ema") == ["model.safetensors"]


def test_a_staged_step_has_none_until_it_is_committed(top, commit):
    np.save(top / "a.npy", np.arange(5))
    assert refused(os.stat, top / ".arrays") == "ENOENT"
    commit(top)
    assert np.load(top / ".arrays/a.npy").tolist() == [0, 1, 2, 3, 4]
    assert refused(os.stat, top / ".arrays/b.npy") == refused(os.stat, top / ".arrays/a") == "ENOENT"
    assert refused(os.stat, top / ".arrays/a.npy/x") == "ENOTDIR"


def test_what_the_step_has_itself_wins(top, commit):
    (top / ".arrays").mkdir()
    np.save(top / "a.npy", np.arange(3))
    trees.write(top / ".arrays/own", b"of the step")
    commit(top)
    assert os.listdir(top / ".arrays") == ["own"] and (top / ".arrays/own").read_bytes() == b"of the step"
    assert ".arrays" in os.listdir(top)
    os.unlink(top / ".arrays/own")


def test_names_are_escaped(top, commit):
    names = {"a": "a", "a/b": "a/b", "a.npy/c": "a%2Enpy/c", "x y,z": "x%20y%2Cz", "../up": "%2E%2E/up", "index.json/d": "index%2Ejson/d", "é": "%C3%A9",
             "n" * 252: "%%" + "4bd0c7d3bd8ae1bb65f8be7adc9b1d5a6ec9e2dd1bc3ba1aa7e3dfe84a2ab7c5"}
    save_file({name: np.full(3, i, np.float32) for i, name in enumerate(names)}, top / "m.safetensors")
    commit(top)
    found = walk(top / ".arrays")
    for i, (name, path) in enumerate(names.items()):
        if path.startswith("%%"):
            path = next(p for p in found if p.startswith("%%")).removesuffix(".npy")
            assert len(path) == 66
        for where in (path, f"m.safetensors/{path}"):
            assert f"{where}.npy" in found
            assert np.load(top / ".arrays" / f"{where}.npy").tolist() == [i] * 3, name
    assert len(found) == 2 * len(names) + 1


def test_a_broken_file_has_its_reason_in_the_index(mount, top, commit):
    np.save(top / "good.npy", np.arange(3))
    trees.write(top / "bad.safetensors", (1 << 40).to_bytes(8, "little") + b"{}")
    np.save(top / "objects.npy", np.array([{"a": 1}], dtype=object))
    commit(top)
    rows = json.loads((top / ".arrays/index.json").read_text())
    assert sorted(os.listdir(top / ".arrays")) == ["good.npy", "index.json"]
    [fault] = [r for r in rows if r.get("file") == "bad.safetensors"]
    assert fault["name"] is None and fault["why"]
    assert any("objects" in (r["name"] or r.get("file") or "") and r["why"] for r in rows)


def test_nesting_that_a_small_stack_has_no_room_for_breaks_nothing(top, commit):
    np.save(top / "good.npy", np.arange(3))
    deep = b'{"a":' * 2000 + b"1" + b"}" * 2000
    for name in ("zarr.json", ".zarray", "arrays.json", "m.safetensors.index.json", "_METADATA"):
        trees.write(top / name, deep)
    far = top / "/".join(["d"] * 40)
    far.mkdir(parents=True)
    np.save(far / "far.npy", np.arange(4))
    commit(top)
    assert np.load(top / ".arrays/good.npy").tolist() == [0, 1, 2]
    assert np.load(top / ".arrays" / os.path.relpath(far, top) / "far.npy").tolist() == [0, 1, 2, 3]
    assert [r["file"] for r in json.loads((top / ".arrays/index.json").read_text()) if not r["name"]]


# --- Nothing can be changed ---------------------------------------------------------------------------------------------------


def test_nothing_in_it_can_be_changed(mount, top, made):
    a, other = top / ".arrays", top / "config.json"
    acts = {
        "create": lambda: open(a / "new", "x"), "write": lambda: open(a / "counts.npy", "r+b"), "append": lambda: open(a / "counts.npy", "ab"),
        "truncate": lambda: os.truncate(a / "counts.npy", 0), "mkdir": lambda: os.mkdir(a / "new"), "mkdir below": lambda: os.mkdir(a / "ema/new"),
        "mknod": lambda: os.mknod(a / "new"), "symlink": lambda: os.symlink("x", a / "new"), "link": lambda: os.link(other, a / "new"),
        "link out": lambda: os.link(a / "counts.npy", top / "new"), "unlink": lambda: os.unlink(a / "counts.npy"), "rmdir": lambda: os.rmdir(a / "ema"),
        "rmdir it": lambda: os.rmdir(a), "rename": lambda: os.rename(a / "counts.npy", a / "new"), "rename it": lambda: os.rename(a, top / "new"),
        "rename in": lambda: os.rename(other, a / "new"), "rename out": lambda: os.rename(a / "counts.npy", top / "new"),
        "rename over": lambda: os.rename(top / "ema", a), "chmod": lambda: os.chmod(a / "counts.npy", 0o600), "chmod it": lambda: os.chmod(a, 0o700),
        "chown": lambda: os.chown(a / "counts.npy", 1, 1), "utime": lambda: os.utime(a / "counts.npy"),
        "setxattr": lambda: os.setxattr(a / "counts.npy", "user.x", b"1"), "removexattr": lambda: os.removexattr(a / "counts.npy", "user.x"),
    }
    assert {what: refused(act) for what, act in acts.items()} == dict.fromkeys(acts, "EROFS")
    check(top, made)
    assert other.exists() and (top / "ema").is_dir()


# --- Versions -----------------------------------------------------------------------------------------------------------------


def test_an_edit_has_new_arrays_and_an_open_file_keeps_its_own(mount, top, commit, ckptfs):
    np.save(top / "a.npy", np.arange(100_000))
    np.save(top / "gone.npy", np.arange(5))
    commit(top)
    with open(top / ".arrays/a.npy", "rb") as f, open(top / ".arrays/a.npy", "rb") as again:
        head, before = f.read(128), os.fstat(f.fileno())
        mapped = mmap.mmap(again.fileno(), 0, prot=mmap.PROT_READ)
        np.save(top / "new.npy", np.arange(100_000)[::-1])
        os.replace(top / "new.npy", top / "a.npy")
        os.unlink(top / "gone.npy")
        commit(top)
        wait_until(lambda: refused(os.stat, top / ".arrays/gone.npy") == "ENOENT", 60, "the version without it")
        wait_until(lambda: np.load(top / ".arrays/a.npy")[0] == 99_999, 60, "the new version")
        rest = f.read()
        assert np.frombuffer((head + rest)[128:], np.int64).tolist() == list(range(100_000))
        assert np.frombuffer(mapped[128:], np.int64)[-1] == 99_999
        assert os.fstat(f.fileno()).st_size == before.st_size
        mapped.close()
    assert np.load(top / ".arrays/a.npy").tolist() == list(range(99_999, -1, -1)), "no page of the version before"
    assert sorted(os.listdir(top / ".arrays")) == ["a.npy", "index.json"]


def test_nobody_can_know_the_numbers_of_nodes_before(mount, top, commit):
    np.save(top / "a.npy", np.arange(5))
    commit(top)
    seen = []
    for _ in range(2):
        mount.umount()
        mount.start()
        seen.append({os.stat(top / path).st_ino for path in (".arrays", ".arrays/a.npy", ".arrays/index.json")})
    assert len(seen[0]) == len(seen[1]) == 3 and not seen[0] & seen[1]


# --- Rights -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["allow_other"], indirect=True)
def test_who_may_not_read_a_file_may_not_read_its_arrays(mount, top, commit, agent):
    if os.geteuid() != 0:
        pytest.skip("only root can be other users")
    (top / "private").mkdir()
    save_file({"open": np.arange(3)}, top / "open.safetensors")
    save_file({"closed": np.arange(4)}, top / "closed.safetensors")
    save_file({"below": np.arange(5)}, top / "private/below.safetensors")
    for path, mode in {"open.safetensors": 0o644, "closed.safetensors": 0o600, "private/below.safetensors": 0o644, "private": 0o700}.items():
        os.chmod(top / path, mode)
    os.chmod(top, 0o755)
    commit(top)
    a = agent(uid=4321)
    arrays = str(top / ".arrays")
    read = "open(path, 'rb').read()[-8:].hex()"
    assert a.run(read, path=f"{arrays}/open.npy") == (2).to_bytes(8, "little").hex()
    for name in ("closed.npy", "closed.safetensors/closed.npy", "below.npy", "private/below.safetensors/below.npy", "index.json"):
        assert a.errno_of(read, path=f"{arrays}/{name}") == "EACCES", name
    assert a.errno_of("os.listdir(path)", path=arrays) == "EACCES"
    os.chmod(top / "closed.safetensors", 0o644)
    assert len(bytes.fromhex(a.run(read, path=f"{arrays}/closed.npy"))) == 8, "a change of rights counts at once"
    os.chmod(top / "private", 0o755)
    assert len(a.run("os.listdir(path)", path=arrays)) == 7
    os.chmod(top, 0o700)
    assert a.errno_of(read, path=f"{arrays}/open.npy") == "EACCES"


# --- Many at once, large ones, damage -----------------------------------------------------------------------------------------


def test_many_readers_at_once_read_what_is_there(mount, store, top, made, ckptfs):
    mount.umount()
    ckptfs("cool", store, "1000")
    mount.start()
    paths = list(paths_of(made).items())
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(lambda one: same(np.load(top / ".arrays" / one[0]), one[1]), paths * 8))


def test_damaged_bytes_are_an_error_and_a_line(mount, store, top, commit, ckptfs):
    np.save(top / "good.npy", np.arange(10))
    (top / "bad").mkdir()
    chunk = bytearray(gzip.compress(np.arange(300_000).tobytes(), 1))
    chunk[len(chunk) // 2] ^= 0x5A
    trees.write(top / "bad/0", bytes(chunk))
    zarray = {"zarr_format": 2, "shape": [300_000], "chunks": [300_000], "dtype": "<i8", "compressor": {"id": "gzip", "level": 1}, "fill_value": 0,
              "order": "C", "filters": None}
    trees.write(top / "bad/.zarray", json.dumps(zarray).encode())
    commit(top)
    assert np.load(top / ".arrays/good.npy").tolist() == list(range(10))
    with open(top / ".arrays/bad.npy", "rb") as f:
        assert refused(f.read) == refused(f.read) == "EIO"
    lines = [line for line in (mount / ".ckptfs/errors").read_text().splitlines() if "bad.npy" in line]
    assert len(lines) == 1 and "\t1000\t" in lines[0] and "damaged" in lines[0]


def test_bytes_that_the_kernel_has_need_no_daemon(mount, top, made):
    """A read(2) asks for nothing once all was read: neither for bytes nor for the size."""
    path = top / ".arrays" / next(p for p, array in paths_of(made).items() if array.size)
    program = "import os, sys\nfd = os.open(sys.argv[1], os.O_RDONLY)\nwhile os.read(fd, 64): pass\nprint(flush=True); input()\nprint(len(os.pread(fd, 1 << 20, 0)), flush=True)"
    reader = subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    reader.stdout.readline()
    os.kill(mount.pid, signal.SIGSTOP)
    try:
        said, _ = reader.communicate("\n", timeout=30)
    finally:
        os.kill(mount.pid, signal.SIGCONT)
        reader.kill()
    assert int(said) == path.stat().st_size
