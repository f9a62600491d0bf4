"""Cooling and warming: steps in packs through the mount and the verbs, what damage of a pack does, and crashes on the way."""

import io
import mmap
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy
import pytest

from support import trees, weights
from support.fixtures import SLOW, all_modes, both_modes, needs_root
from support.mounting import LoopDisk, Mount, errno_name, wait_until
from support.packs import clean, flip, packs, unreadable

pytestmark = pytest.mark.timeout(240)

MB = 1 << 20
LARGE = 20 * MB + 12_345
HEADER, ROW, TAIL = 48, 64, 56  # of a pack, around and behind its chunks (core/FORMAT.md)


@pytest.fixture
def options(request):
    return getattr(request, "param", ["target_data_file_size=4MiB"])  # several packs of a step


def npy(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def model(seed):
    """bf16 weights and their master, each a chunk beside its header."""
    bf16, master = weights.model(seed, 60_000)
    return {"weights.npy": npy(bf16), "params/master.npy": npy(master)}


def write_step(mount, commit, name="1000", large=LARGE, seed=1):
    """A step with all kinds of files; {path: bytes}."""
    top = mount / name
    (top / "params/deep").mkdir(parents=True)
    some = random.Random(seed)
    made = {
        "random": some.randbytes(large),
        "text": b"".join(b"run %d step %d loss 2.5 lr 0.0003\n" % (seed, i) for i in range(large // 20))[:large],
        "config": b'{"hidden": 64}\n',
        "empty": b"",
        "params/again": None,
        "params/deep/mixed": some.randbytes(3 * MB) + bytes(3 * MB) + b"end",
    }
    made["params/again"] = made["random"][:8 * MB]  # its chunks are those of the other
    made.update({f"params/w{i}": some.randbytes(1 + 199 * i) for i in range(30)})
    made.update(model(seed))
    for path, data in made.items():
        trees.write(top / path, data, 0o640)
    with open(top / "sparse", "wb") as f:
        f.write(b"begin")
        f.seek(11 * MB)
        f.write(b"middle")
        f.truncate(24 * MB + 7)
    made["sparse"] = (b"begin" + bytes(11 * MB - 5) + b"middle").ljust(24 * MB + 7, b"\0")
    os.setxattr(top / "config", "user.note", b"kept")
    os.link(top / "config", top / "params/link")
    os.link(top / "text", top / "params/deep/text")
    os.symlink("params/w3", top / "first")
    os.utime(top / "params/w5", ns=(123_456_789_012_345_678, 123_456_789_012_345_678))
    made |= {"params/link": made["config"], "params/deep/text": made["text"]}
    commit(top)
    return made


def raw_bytes(store, least=2):
    """The sizes of the raw files of all sessions, each once."""
    return sorted({(st.st_dev, st.st_ino): st.st_size for p in (store / "sessions").rglob("*") if p.is_file() and not p.is_symlink()
                   for st in [p.stat()] if st.st_size >= least}.values())


def chunks_of(pack):
    """How many there are in a pack, and what they take."""
    data = pack.read_bytes()
    count, table = int.from_bytes(data[-TAIL:-TAIL + 4], "little"), int.from_bytes(data[-TAIL + 8:-TAIL + 16], "little")
    assert data[:8] == b"ckpt-pak" and table + count * ROW + TAIL == len(data)
    return count, table - HEADER


def row(ckptfs, store, name="1000"):
    return next(r for r in ckptfs.json("ls", store) if r["name"] == name)


def aligned(size):
    return mmap.mmap(-1, size)


def read_in_odd_ways(path, data, copy):
    """A file by every way of reading, each byte of it at least once; copy is a place in the same mount."""
    some, size = random.Random(path.name), len(data)
    assert path.read_bytes() == data
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(12):
            at, length = some.randrange(size + 2), some.choice([1, 7, 4095, 4096, 131_073, MB, 5 * MB + 3])
            assert os.pread(fd, length, at) == data[at:at + length], (path, at, length)
        assert os.pread(fd, 10, size) == b""
        if size:
            with mmap.mmap(fd, size, prot=mmap.PROT_READ) as m:
                assert m[:] == data
                assert m[size // 2] == data[size // 2]
        assert os.lseek(fd, 0, os.SEEK_END) == size
        for whence, want in ((os.SEEK_DATA, 0), (os.SEEK_HOLE, size)):
            if size:
                found = os.lseek(fd, 0, whence)
                assert found <= size if whence == os.SEEK_HOLE else found == want
            with pytest.raises(OSError) as e:
                os.lseek(fd, size, whence)
            assert errno_name(e.value) == "ENXIO"
        out = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        done = 0
        while n := os.copy_file_range(fd, out, 3 * MB + 1, done, done):
            done += n
        assert done == size and os.pread(out, size + 1, 0) == data
        os.close(out)
    finally:
        os.close(fd)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with aligned(MB) as buffer:
        for at in range(0, size, MB):
            assert os.preadv(fd, [buffer], at) == min(MB, size - at)
            assert buffer[:min(MB, size - at)] == data[at:at + MB]
    os.close(fd)


def read_by_threads(top, made, threads=8):
    """All files by so many threads at once, each in an order of its own."""
    wrong = []

    def read(seed):
        order = list(made)
        random.Random(seed).shuffle(order)
        for path in order:
            if (top / path).read_bytes() != made[path]:
                wrong.append(path)

    running = [threading.Thread(target=read, args=(i,)) for i in range(threads)]
    for t in running:
        t.start()
    for t in running:
        t.join()
    assert wrong == []


def drop_caches(mount):
    """Nothing of the files is in the page cache of the mount any more: a remount would do it, too."""
    for path in mount.path.rglob("*"):
        if path.is_file() and not path.is_symlink():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


# --- What is seen ---------------------------------------------------------------------------------------------------------


@all_modes
def test_a_cooled_step_is_what_it_was(mount, store, commit, ckptfs):
    made = write_step(mount, commit)
    top = mount / "1000"
    before, at = trees.describe(top, inodes=True), row(ckptfs, store)["committed_at"]
    names = {*os.listdir(top)}
    assert row(ckptfs, store)["hot"] and packs(store) == []
    files = {p: d for p, d in made.items() if d and p not in ("params/link", "params/deep/text")}  # hard links once
    total = sum(map(len, files.values()))
    answer = ckptfs.json("cool", store, "1000")
    assert answer["files"] == len(files) and answer["bytes"] == total and 0 < answer["stored_bytes"] < total
    assert sum(p.stat().st_size for p in packs(store)) == answer["stored_bytes"] and len(packs(store)) > 1
    assert raw_bytes(store) == [], "what is in packs has no raw file any more"
    for again in (False, True):
        assert trees.describe(top, inodes=True) == before
        for path in ("random", "text", "params/again", "params/deep/mixed", "sparse", "config", "params/w7", "empty"):
            read_in_odd_ways(top / path, made[path], mount / "copy")
        os.unlink(mount / "copy")
        drop_caches(mount)
        read_by_threads(top, made)
        assert {*os.listdir(top)} == names and mount.errors() == []
        now = row(ckptfs, store)
        assert not now["hot"] and now["sealed"] and now["committed_at"] == at and now["bytes"] == total
        clean(ckptfs, store)
        if not again:
            mount.remount()
    assert [v["event"] for v in ckptfs.json("info", store, "1000")["versions"]][-1] == "cool"
    assert ckptfs.json("cool", store, "1000") == {"files": 0, "bytes": 0, "stored_bytes": 0}
    assert "everything is in packs already" in ckptfs("cool", store, "1000").stderr


def own_memory(pid):
    """What a process has that is of no file."""
    return next(int(line.split()[1]) << 10 for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon:"))


@all_modes
def test_reading_a_cold_step_takes_the_memory_of_a_few_chunks(mount, store, commit, ckptfs):
    """Not of all that is read: the kernel keeps that."""
    made = {f"w{i}": random.Random(i).randbytes(40 * MB + 1000) for i in range(3)}
    os.mkdir(mount / "1000")
    for name, data in made.items():
        trees.write(mount / "1000" / name, data)
    commit(mount / "1000")
    ckptfs("cool", store, "1000")
    drop_caches(mount)
    before = own_memory(mount.pid)
    for name, data in made.items():
        assert (mount / "1000" / name).read_bytes() == data
    if SLOW == 1:  # sanitizers keep what is freed
        assert own_memory(mount.pid) - before < 64 * MB


@both_modes
def test_who_has_a_file_open_reads_on_while_it_is_cooled_and_warmed(mount, store, commit, ckptfs):
    made = write_step(mount, commit)
    top = mount / "1000"
    paths = [p for p, d in made.items() if d]
    unread = {p: os.open(top / p, os.O_RDONLY) for p in paths}  # small ones have no descriptor behind them yet
    mapped = {}
    for path in ("random", "text", "params/w20"):
        fd = os.open(top / path, os.O_RDONLY)
        mapped[path] = mmap.mmap(fd, len(made[path]), prot=mmap.PROT_READ)
        os.close(fd)
    wrong, rounds, stop = [], [0], threading.Event()

    def read():
        some = random.Random(5)
        while not stop.is_set():
            for path in some.sample(paths, 8):
                at = some.randrange(len(made[path]))
                fd = os.open(top / path, os.O_RDONLY) if some.random() < 0.5 else unread[path]
                if os.pread(fd, 200_000, at) != made[path][at:at + 200_000]:
                    wrong.append(path)
                if fd != unread[path]:
                    os.close(fd)
            rounds[0] += 1

    readers = [threading.Thread(target=read) for _ in range(3)]
    for t in readers:
        t.start()
    try:
        for verb in ("cool", "warm", "cool", "warm", "cool"):
            seen = rounds[0]
            assert ckptfs.json(verb, store, "1000")["files"] > 30
            wait_until(lambda seen=seen: rounds[0] > seen + 3, 30)
    finally:
        stop.set()
        for t in readers:
            t.join()
    assert wrong == [] and mount.errors() == []
    for path, m in mapped.items():
        assert m[:] == made[path]
    for path, fd in unread.items():
        assert os.pread(fd, len(made[path]) + 1, 0) == made[path]
        assert os.fstat(fd).st_size == len(made[path])
        os.close(fd)


def test_a_read_only_mount_beside_follows(mount, world, store, scratch, commit, ckptfs):
    made = write_step(mount, commit, large=6 * MB)
    beside = Mount.new(world, store, path=scratch / "beside", options=["ro"])
    held = {p: os.open(beside / "1000" / p, os.O_RDONLY) for p in ("random", "params/w3", "params/w9")}
    ckptfs("cool", store, "1000")
    for path, fd in held.items():
        assert os.pread(fd, len(made[path]), 0) == made[path]
    read_by_threads(beside / "1000", made, 2)
    assert beside.errors() == mount.errors() == []
    ckptfs("warm", store, "1000")
    for p in packs(store):
        p.unlink()  # as garbage collection may, once no version needs them
    for path, fd in held.items():
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, len(made[path]), 0) == made[path]
        os.close(fd)


def test_a_reader_of_packs_that_are_gone_finds_the_warmed_file(mount, store, commit, ckptfs):
    made = write_step(mount, commit)
    ckptfs("cool", store, "1000")
    mount.remount()
    fd = os.open(mount / "1000/random", os.O_RDONLY)
    assert os.pread(fd, 100, 0) == made["random"][:100]
    ckptfs("warm", store, "1000")
    for p in packs(store):
        p.unlink()
    assert os.pread(fd, LARGE, 0) == made["random"]
    os.close(fd)
    assert mount.errors() == []


# --- What is done with it -------------------------------------------------------------------------------------------------


def test_a_cold_file_is_linked_into_other_steps_and_folders(mount, store, commit, ckptfs):
    made = write_step(mount, commit)
    ckptfs("cool", store, "1000")
    (mount / "2000").mkdir()
    os.link(mount / "1000/random", mount / "2000/weights")
    os.link(mount / "1000/config", mount / "2000/config")
    st = os.stat(mount / "2000/weights")
    assert st.st_nlink == 1 and st.st_ino != os.stat(mount / "1000/random").st_ino and st.st_mode & 0o777 == 0o640
    (mount / "plain").mkdir()
    subprocess.run(["cp", "-al", str(mount / "1000/params"), str(mount / "plain/params")], check=True)
    commit(mount / "2000")
    for _ in range(2):
        assert (mount / "2000/weights").read_bytes() == made["random"]
        assert os.getxattr(mount / "2000/config", "user.note") == b"kept"
        for path, data in made.items():
            if path.startswith("params/"):
                assert (mount / "plain" / path).read_bytes() == data
        assert os.stat(mount / "plain/params/w5").st_mtime_ns == 123_456_789_012_345_678
        mount.remount()
    trees.write(mount / "plain/params/w3", b"other")
    assert (mount / "1000/params/w3").read_bytes() == made["params/w3"]
    assert not row(ckptfs, store)["hot"] and row(ckptfs, store, "2000")["hot"]
    subprocess.run(["cp", "-al", str(mount / "1000"), str(mount / "derived")], check=True)
    assert {p: d for p, d in trees.files(mount / "derived").items()} == made
    assert ckptfs.json("verify", store)["bad"] == []


@both_modes
def test_a_cold_step_is_written_into(mount, store, commit, ckptfs):
    made = write_step(mount, commit)
    top = mount / "1000"
    ckptfs("cool", store, "1000")
    mount.remount()
    inodes = {p: os.stat(top / p).st_ino for p in made}
    cold = {p: os.open(top / p, os.O_RDONLY) for p in ("random", "text", "params/w3", "params/w8", "params/deep/mixed")}
    for path, fd in cold.items():  # they are read from packs until they are closed
        assert os.pread(fd, 50, 0) == made[path][:50]
    with open(top / "random", "r+b") as f:
        f.seek(5 * MB)
        f.write(b"CHANGED")
    changed = dict(made, random=made["random"][:5 * MB] + b"CHANGED" + made["random"][5 * MB + 7:])
    assert "1000" not in mount.listing(), "it is reopened"
    trees.write(top / "params/w3", b"short")
    changed["params/w3"] = b"short"
    os.truncate(top / "params/w8", 10)
    changed["params/w8"] = made["params/w8"][:10]
    os.unlink(top / "params/deep/mixed")
    del changed["params/deep/mixed"]
    os.chmod(top / "params/w9", 0o600)
    for path, fd in cold.items():
        assert os.fstat(fd).st_size == len(made[path])
        assert os.pread(fd, LARGE, 0) == made[path], "an open file keeps its bytes"
    assert trees.files(top) == changed
    commit(top)
    assert trees.files(top) == changed and row(ckptfs, store)["hot"]
    linked = {"config", "params/link", "text", "params/deep/text"}  # a step that is reopened has copies of these, cold or not
    for path in changed.keys() - {"random", "params/w3", "params/w8", "params/w9"} - linked:
        assert os.stat(top / path).st_ino == inodes[path], path
    for path, fd in cold.items():
        assert os.pread(fd, LARGE, 0) == made[path]
        os.close(fd)
    mount.remount()
    assert trees.files(top) == changed
    assert trees.files(mount / ".ckptfs/trash/1000") == made
    assert mount.errors() == []
    ckptfs("cool", store, "1000")
    assert trees.files(top) == changed
    clean(ckptfs, store)


def test_a_cold_step_is_removed_had_back_moved_and_amended(mount, store, commit, ckptfs):
    made = write_step(mount, commit, large=6 * MB)
    ckptfs("cool", store, "1000")
    before = trees.describe(mount / "1000", inodes=True)
    held = os.open(mount / "1000/random", os.O_RDONLY)
    shutil.rmtree(mount / "1000")
    assert mount.listing() == []
    assert os.pread(held, LARGE, 0) == made["random"] and os.fstat(held).st_size == len(made["random"])
    assert trees.files(mount / ".ckptfs/trash/1000") == made
    ckptfs("undelete", store, "1000")
    assert trees.describe(mount / "1000", inodes=True) == before
    os.rename(mount / "1000", mount / "1001")
    assert trees.describe(mount / "1001", inodes=True) == before and not row(ckptfs, store, "1001")["hot"]
    trees.write(mount / "1001/late", b"late")
    trees.write(mount / "1001/params/later", made["random"][:4 * MB])
    assert trees.describe(mount / "1001/params/deep", inodes=True) == {
        "." if p == "params/deep" else p.removeprefix("params/deep/"): e for p, e in before.items() if p.startswith("params/deep")}
    now = row(ckptfs, store, "1001")
    assert not now["hot"] and not now["sealed"]
    os.close(held)
    made |= {"late": b"late", "params/later": made["random"][:4 * MB]}
    mount.remount()
    assert trees.files(mount / "1001") == made
    answer = ckptfs.json("cool", store, "1001")
    assert (answer["files"], answer["bytes"]) == (2, 4 * MB + 4)
    assert trees.files(mount / "1001") == made
    clean(ckptfs, store)
    ckptfs("rm", f"{mount.path}/1001/params/later")
    ckptfs("rm", f"{mount.path}/1001/random")
    del made["params/later"], made["random"]
    assert trees.files(mount / "1001") == made
    ckptfs("mv", store, "1001", "1002")
    ckptfs("pin", store, "1002")
    mount.remount()
    assert trees.files(mount / "1002") == made and mount.errors() == []
    clean(ckptfs, store)


def test_warm_brings_back_all_or_some(mount, store, commit, ckptfs):
    made = write_step(mount, commit)
    top = mount / "1000"
    before = trees.describe(top, inodes=True)
    sizes = raw_bytes(store)
    ckptfs("cool", store, "1000")
    taken = sum(p.stat().st_size for p in packs(store))
    assert ckptfs.json("warm", store, "1000", "--only", "nothing*")["files"] == 0
    assert "files are raw already" in ckptfs("warm", store, "1000", "--only", "nothing*").stderr
    answer = ckptfs.json("warm", store, "1000", "--only", "params/w1?")
    assert answer == {"files": 10, "bytes": sum(len(made[f"params/w{i}"]) for i in range(10, 20)), "stored_bytes": answer["bytes"]}
    assert ckptfs.json("warm", store, "1000", "--only", "link")["bytes"] == len(made["config"]), "any of its names counts"
    assert ckptfs.json("warm", store, "1000", "--only", "mixed")["files"] == 1
    assert not row(ckptfs, store)["hot"] and trees.describe(top, inodes=True) == before
    clean(ckptfs, store)
    mount.remount()
    assert trees.describe(top, inodes=True) == before
    ckptfs("warm", store, "1000")
    assert raw_bytes(store) == sizes and row(ckptfs, store)["hot"]
    assert sum(p.stat().st_blocks for p in (store / "sessions").rglob("sparse")) * 512 < MB, "what is zero takes no room"
    for _ in range(2):
        assert trees.describe(top, inodes=True) == before
        read_by_threads(top, made, 2)
        mount.remount()
    clean(ckptfs, store)
    assert ckptfs.json("cool", store, "1000")["stored_bytes"] == 0, "it is in packs already"
    assert sum(p.stat().st_size for p in packs(store)) == taken
    assert trees.describe(top, inodes=True) == before and mount.errors() == []
    clean(ckptfs, store)


def test_verbs_read_what_is_cold(mount, store, scratch, commit, ckptfs):
    made = write_step(mount, commit)
    write_step(mount, commit, "2000")
    (mount / "3000").mkdir()
    trees.write(mount / "3000/random", made["random"][:-1] + bytes([made["random"][-1] ^ 1]))
    commit(mount / "3000")
    before = trees.describe(mount / "1000")
    ckptfs("cool", store, "1000", "2000", "3000")
    for path in ("random", "text", "config", "empty", "sparse"):
        done = subprocess.run([ckptfs.path, "cat", str(store), "1000", path], stdout=subprocess.PIPE, check=True)
        assert done.stdout == made[path]
    assert ckptfs.json("diff", store, "1000", "2000")["same"] == len(made) + 1
    ckptfs("warm", store, "2000", "--only", "random")
    assert ckptfs.json("diff", store, "1000", "2000")["changed"] == []
    assert "random" in ckptfs.json("diff", store, "1000", "3000", check=False)["changed"]
    assert ckptfs.json("get", store, "1000", scratch / "got")["bytes"] == sum(len(d) for p, d in made.items() if p not in ("params/link", "params/deep/text"))
    assert trees.describe(scratch / "got") == before
    ckptfs("save", store, scratch / "got", "4000")
    assert trees.files(mount / "4000") == made
    mount.umount()
    done = subprocess.run([ckptfs.path, "cat", str(store), "1000", "random"], stdout=subprocess.PIPE, check=True)
    assert done.stdout == made["random"]
    mount.start()
    begun = ckptfs("begin", store, "5000", "--from", "1000")
    assert trees.files(mount / "5000") == made, begun
    ckptfs("commit", store, "5000")
    assert trees.files(mount / "5000") == made and mount.errors() == []


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_cool_and_warm_are_the_same_at_rest(mount, store, commit, ckptfs, mounted):
    made = write_step(mount, commit, large=6 * MB)
    write_step(mount, commit, "2000", large=5 * MB, seed=2)
    if not mounted:
        mount.umount()
    files = sum(1 for p, d in made.items() if d) - 2
    cooled = ckptfs.json("cool", store, "1000", "latest", "1000")
    assert cooled["files"] == 2 * files and cooled["stored_bytes"] == sum(p.stat().st_size for p in packs(store))
    assert raw_bytes(store) == []
    clean(ckptfs, store)
    assert ckptfs.json("warm", store, "1000")["files"] == files
    clean(ckptfs, store)
    if mounted:
        mount.umount()
    mount.start()
    assert trees.files(mount / "1000") == made
    for words in (["cool", store], ["warm", store], ["cool", store, "trash/1"], ["cool", store, "1000/config"], ["warm", store, "1000", "--only", ""]):
        done = ckptfs(*words, check=False)
        assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 2, words
    done = ckptfs("cool", store, "nosuch", check=False)
    assert done.returncode == 1 and "nosuch" in done.stderr


# --- What it takes --------------------------------------------------------------------------------------------------------


def test_what_it_takes_is_said_truly(mount, store, commit, ckptfs):
    made = write_step(mount, commit)
    files = {p: d for p, d in made.items() if d and p not in ("params/link", "params/deep/text")}
    total = sum(map(len, files.values()))
    assert ckptfs.json("du", store)["packed_bytes"] == 0 and row(ckptfs, store)["stored_bytes"] == total
    assert os.getxattr(mount / "1000/random", "user.ckptfs.stored_bytes") == str(LARGE).encode()
    ckptfs("cool", store, "1000")
    stored = sum(chunks_of(p)[1] for p in packs(store))
    du = ckptfs.json("du", store)
    assert du["logical_bytes"] == total and du["raw_bytes"] == 0 and du["packed_bytes"] == du["stored_bytes"] == stored
    assert sum(c["out_bytes"] for c in du["codecs"].values()) == stored
    assert sum(c["in_bytes"] for c in du["codecs"].values()) + du["deduplicated_bytes"] == total
    assert du["deduplicated_bytes"] >= 8 * MB, "params/again was there already"
    assert all(c["out_bytes"] <= c["in_bytes"] for c in du["codecs"].values()) and {"none", "zstd"} <= du["codecs"].keys()
    assert row(ckptfs, store)["stored_bytes"] == stored == ckptfs.json("info", store)["stored_bytes"] == ckptfs.json("info", store, "1000")["stored_bytes"]
    text = ckptfs("du", store).stdout
    assert re.search(rf"^packed +\S+ +{stored} ", text, re.M) and re.search(r"^packed/zstd +\S+ +\d+ ", text, re.M)
    assert "STORED" in ckptfs("ls", "-l", store).stdout
    taken = {p: int(os.getxattr(mount / "1000" / p, "user.ckptfs.stored_bytes")) for p in made}
    assert taken["empty"] == 0 and taken["random"] == LARGE and taken["text"] < LARGE // 3 and taken["sparse"] < MB
    assert taken["config"] == taken["params/link"]
    assert sum(taken[p] for p in files) == stored + taken["params/again"]
    assert os.listxattr(mount / "1000/random") == []
    for path in ("1000", "1000/params"):
        with pytest.raises(OSError) as e:
            os.getxattr(mount / path, "user.ckptfs.stored_bytes")
        assert errno_name(e.value) == "ENODATA"
    ckptfs("warm", store, "1000", "--only", "random")
    du = ckptfs.json("du", store)
    assert LARGE <= du["raw_bytes"] < LARGE + MB and du["packed_bytes"] == stored, "it is in both"
    assert row(ckptfs, store)["stored_bytes"] == stored - taken["random"] + LARGE + taken["params/again"]
    write_step(mount, commit, "2000", large=5 * MB, seed=2)
    ckptfs("cool", store, "2000")
    assert ckptfs.json("du", store, "1000")["packed_bytes"] == stored
    two, both = (ckptfs.json("du", store, *words)["packed_bytes"] for words in (["2000"], []))
    assert two > 5 * MB and stored + 5 * MB < both <= stored + two
    ckptfs("rm", store, "2000")
    du = ckptfs.json("du", store)
    assert du["packed_bytes"] == stored and du["trash_bytes"] == both - stored, "what the trash has alone"


# --- Damage ---------------------------------------------------------------------------------------------------------------


def test_a_bit_that_no_decoder_needs_is_found_by_who_reads_all(mount, store, commit, ckptfs):
    (mount / "1000").mkdir()
    (mount / "1000/text").write_bytes(b"some text " * 10000)
    commit(mount / "1000")
    ckptfs("cool", store, "1000")
    mount.remount()
    [pack] = packs(store)
    data = bytearray(pack.read_bytes())
    row = data[len(data) - TAIL - ROW:]
    assert row[48] == 1, "one frame of zstd, whose header has a bit that means nothing"
    data[HEADER + 4] ^= 0x10
    pack.write_bytes(data)
    assert (mount / "1000/text").read_bytes() == b"some text " * 10000
    ckptfs("verify", store)
    [bad] = ckptfs.json("verify", "--read-data", store, check=False)["bad"]
    assert bad["step"] == "1000" and pack.name in bad["problem"] and "is damaged" in bad["problem"]


@pytest.mark.parametrize("where", ["chunk", "last chunk", "table", "header", "tail", "shorter", "longer", "missing"])
def test_a_damaged_pack_never_gives_wrong_bytes(mount, store, scratch, commit, ckptfs, where):
    made = write_step(mount, commit, large=9 * MB)
    ckptfs("cool", store, "1000")
    mount.remount()
    whole = {p: p.read_bytes() for p in packs(store)}
    assert len(whole) > 3
    lost = set()
    for pack, data in whole.items():
        count, stored = chunks_of(pack)
        places = {"chunk": HEADER + stored // 3, "last chunk": HEADER + stored - 1, "table": HEADER + stored + 5, "header": 17, "tail": len(data) - 40}
        if where in places:
            flip(pack, places[where])
        elif where == "missing":
            pack.unlink()
        else:
            os.truncate(pack, len(data) - 1 if where == "shorter" else len(data) + 1)
        failed = unreadable(mount / "1000", made)
        quick = ckptfs.json("verify", store, check=False)["bad"]
        done = ckptfs("verify", "--read-data", store, check=False)
        bad = ckptfs.json("verify", "--read-data", store, check=False)["bad"]
        assert done.returncode == 1
        named = {b["path"] for b in bad}
        if where in ("table", "header", "tail"):
            assert failed == set() and named, "its chunks can be read all the same"
        else:
            assert failed and failed == named
        assert all(b["step"] == "1000" and pack.name in b["problem"] and re.search(r"at bytes \d+ to \d+: packs/", b["problem"]) for b in bad), bad
        assert {b["path"] for b in quick} == (set() if "chunk" in where else named)
        if failed:
            assert any("a pack that holds" in line for line in mount.errors())
            path = sorted(failed)[0]
            done = subprocess.run([ckptfs.path, "cat", str(store), "1000", path], capture_output=True)
            assert done.returncode == 1 and made[path].startswith(done.stdout) and b"cannot be read" in done.stderr
            assert ckptfs("get", store, "1000", scratch / "got", check=False).returncode == 1 and not (scratch / "got").exists()
            assert ckptfs("warm", store, "1000", "--only", path, check=False).returncode == 1
            assert not row(ckptfs, store)["hot"]
        pack.write_bytes(data)
        lost |= failed
        mount.remount()
    assert where in ("table", "header", "tail") or len(lost) > 2, "each pack has some"
    assert unreadable(mount / "1000", made) == set()
    clean(ckptfs, store)


def test_verify_passes_over_packs_that_nobody_needs_if_they_are_packs(mount, store, commit, ckptfs):
    write_step(mount, commit, large=6 * MB)
    ckptfs("cool", store, "1000")
    kept = {p: p.read_bytes() for p in packs(store)}
    ckptfs("rm", store, "1000", "--now", "--yes")
    assert ckptfs.json("ls", "--all", store) == []
    for pack, data in kept.items():  # a crash between their making and the version has left them
        pack.write_bytes(data)
    assert ckptfs.json("verify", "--read-data", store)["bad"] == []
    one = packs(store)[0]
    flip(one, one.stat().st_size - 5)
    [bad] = ckptfs.json("verify", store, check=False)["bad"]
    assert bad["step"] is None and bad["path"] == f"packs/{one.name}" and "no step needs it" in bad["problem"]
    one.unlink()
    (store / "packs/stranger").write_bytes(b"x")
    [bad] = ckptfs.json("verify", store, check=False)["bad"]
    assert bad["path"] == "packs/stranger" and "is not a pack" in bad["problem"]


def test_a_pack_of_a_warmed_file_that_is_gone_is_told_and_made_anew(mount, store, commit, ckptfs):
    made = write_step(mount, commit, large=6 * MB)
    ckptfs("cool", store, "1000")
    ckptfs("warm", store, "1000")
    gone = packs(store)[0]
    gone.unlink()
    assert trees.files(mount / "1000") == made
    [bad] = ckptfs.json("verify", store, check=False)["bad"]
    assert bad["step"] == "1000" and bad["path"] is None and gone.name in bad["problem"] and "is missing" in bad["problem"]
    assert ckptfs.json("cool", store, "1000")["stored_bytes"] > 0
    assert trees.files(mount / "1000") == made
    clean(ckptfs, store)


def test_a_raw_file_that_has_changed_stays_raw(mount, store, commit, ckptfs):
    made = write_step(mount, commit, large=6 * MB)
    ckptfs("seal", store)
    [raw] = (store / "sessions").rglob("mixed")
    flip(raw, 5 * MB)
    done = ckptfs("cool", store, "1000", check=False)
    assert done.returncode == 1 and "verify" in done.stderr
    assert any("mixed" in line and "not cooled" in line for line in mount.errors())
    assert raw_bytes(store) == [6 * MB + 3], "all others are in packs"
    flip(raw, 5 * MB)
    assert ckptfs.json("cool", store, "1000")["files"] == 1
    assert trees.files(mount / "1000") == made
    clean(ckptfs, store)


# --- Beside each other, and ends ------------------------------------------------------------------------------------------


def test_verify_beside_cooling_finds_no_damage(mount, store, commit, ckptfs):
    write_step(mount, commit, large=6 * MB)
    ckptfs("seal", store)
    stop, failed = threading.Event(), []

    def toggle():
        while not stop.is_set():
            for verb in ("cool", "warm"):
                done = ckptfs(verb, store, "1000", check=False)
                if done.returncode:
                    failed.append(done.stderr)

    t = threading.Thread(target=toggle)
    t.start()
    try:
        for i in range(12):
            answer = ckptfs.json("verify", *["--read-data"] * (i % 2), store, check=False)
            assert answer["bad"] == [], answer
    finally:
        stop.set()
        t.join()
    assert failed == []


def test_two_who_cool_and_warm_at_once_end_well(mount, store, commit, ckptfs):
    made = write_step(mount, commit, large=6 * MB)
    write_step(mount, commit, "2000", large=6 * MB)
    verbs = [["cool", "1000"], ["cool", "2000"], ["warm", "1000"], ["cool", "1000", "2000"], ["seal", "1000"], ["warm", "2000"]] * 2
    running = [subprocess.Popen([ckptfs.path, words[0], str(store), *words[1:]], stderr=subprocess.PIPE, text=True) for words in verbs]
    for i, process in enumerate(running):
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, (verbs[i], said)
    for name in ("1000", "2000"):
        assert trees.files(mount / name) == made
    clean(ckptfs, store)
    assert mount.errors() == []


def cooling(ckptfs, store):
    """A cooling that runs, of a step that takes seconds."""
    process = subprocess.Popen([ckptfs.path, "cool", str(store), "1000"], stderr=subprocess.PIPE, text=True)
    time.sleep(0.1)
    assert process.poll() is None, "it is too quick for this test"
    return process


def test_a_cooling_ends_with_its_mount_and_by_a_signal_and_nothing_is_lost(mount, store, commit, ckptfs):
    (mount / "1000").mkdir()
    trees.write(mount / "1000/f", os.urandom(400 * MB))
    commit(mount / "1000")
    before = trees.describe(mount / "1000", inodes=True)
    asks = cooling(ckptfs, store)
    asks.kill()
    asks.communicate()
    asks = cooling(ckptfs, store)
    began = time.monotonic()
    mount.umount()
    assert time.monotonic() - began < 4
    _, said = asks.communicate(timeout=20)
    assert asks.returncode == 1 and "the mount is ending" in said, said
    at_rest = cooling(ckptfs, store)
    at_rest.send_signal(signal.SIGINT)
    at_rest.communicate(timeout=20)
    assert at_rest.returncode in (130, -signal.SIGINT)
    assert row(ckptfs, store)["hot"] and ckptfs.json("verify", store)["bad"] == []
    mount.start()
    assert ckptfs.json("cool", store, "1000", timeout=120)["files"] == 1
    assert trees.describe(mount / "1000", inodes=True) == before


def test_a_kill_at_any_time_of_cooling_or_warming_loses_nothing(mount, store, commit, ckptfs):
    made = write_step(mount, commit, large=12 * MB)
    top = mount / "1000"
    before = trees.describe(top, inodes=True)
    ckptfs("seal", store)
    moments = random.Random(int(os.environ.get("CKPT_TEST_SEED", "1")))
    began = time.monotonic()
    ckptfs("cool", store, "1000")
    takes = time.monotonic() - began
    ckptfs("warm", store, "1000")
    for pack in packs(store):
        pack.unlink()  # so that each makes them anew
    for i in range(14):
        verb = "warm" if i % 4 == 3 else "cool"
        asks = subprocess.Popen([ckptfs.path, verb, str(store), "1000"], stderr=subprocess.DEVNULL)
        time.sleep(takes * moments.uniform(0, 1.1))
        mount.kill9()
        asks.wait(30)
        assert [b for b in ckptfs.json("verify", "--read-data", store, check=False)["bad"] if b["path"]] == []
        mount.start()
        assert trees.describe(top, inodes=True) == before, f"after {i} of {verb}"
        if i == 8:
            ckptfs("warm", store, "1000")
    ckptfs("cool", store, "1000")
    assert raw_bytes(store) == [], "what the crashes have left is gone, too"
    assert trees.files(top) == made and trees.describe(top, inodes=True) == before
    clean(ckptfs, store)
    ckptfs("warm", store, "1000")
    assert trees.describe(top, inodes=True) == before
    clean(ckptfs, store)


@needs_root
def test_a_full_disk_stops_cooling_and_warming_and_loses_nothing(world, scratch, commit, ckptfs):
    disk = LoopDisk(world, 160)
    store = disk.path / "store"
    mount = Mount.new(world, store, options=["target_data_file_size=4MiB"])
    made = write_step(mount, commit, large=12 * MB)
    ckptfs("seal", store)
    disk.fill_up()
    done = ckptfs("cool", store, "1000", check=False)
    assert done.returncode == 1 and "No space" in done.stderr
    assert trees.files(mount / "1000") == made and row(ckptfs, store)["hot"]
    disk.make_room()
    ckptfs("cool", store, "1000")
    disk.fill_up()
    done = ckptfs("warm", store, "1000", check=False)
    assert done.returncode == 1 and "No space" in done.stderr
    assert trees.files(mount / "1000") == made and not row(ckptfs, store)["hot"]
    disk.make_room()
    ckptfs("warm", store, "1000")
    assert trees.files(mount / "1000") == made
    assert [p.name for p in (store / "trash").iterdir()] == []
    clean(ckptfs, store)
