"""Sealing: what a mount does behind, what of it is seen, what verify makes of it, and its ends."""

import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import numpy
import pytest
from safetensors.numpy import save_file

from support import trees
from support.mounting import errno_name, wait_until

pytestmark = pytest.mark.timeout(90)

XATTR = "user.ckptfs.sha256"
CHUNK = 4 << 20


@pytest.fixture
def options(request):
    return [getattr(request, "param", "seal=yes")]


@pytest.fixture
def sealed(ckptfs, store):
    """Waits until a step is sealed; its row of `ls`."""
    def wait(name):
        ckptfs("wait", "--sealed", "--timeout", "80s", store, name)
        return next(row for row in ckptfs.json("ls", store) if row["name"] == name)
    return wait


def write_step(mount, commit, name="1000", large=2 * CHUNK + 1):
    (mount / name / "sub").mkdir(parents=True)
    trees.write(mount / name / "sub/large", trees.content(name, large))
    trees.write(mount / name / "config", b"text")
    trees.write(mount / name / "empty", b"")
    os.link(mount / name / "config", mount / name / "link")
    commit(mount / name)
    return mount / name


def raw_of(store, name):
    """Where the bytes of a file lie."""
    found = [p for p in (store / "sessions").rglob(name) if p.is_file()]
    assert len(found) == 1, found
    return found[0]


def flip(path, at):
    mtime = path.stat().st_mtime_ns
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(mtime, mtime))


def test_a_mount_seals_behind_and_nobody_sees_a_change(mount, store, commit, sealed, ckptfs):
    top = write_step(mount, commit)
    before = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in top.rglob("*")}
    at = ckptfs.json("info", store, "1000")["versions"][0]["committed_at"]
    row = sealed("1000")
    assert row["sealed"] and row["committed_at"] == at
    for path in top.rglob("*"):
        if path.is_dir():
            with pytest.raises(OSError) as e:
                os.getxattr(path, XATTR)
            assert errno_name(e.value) == "ENODATA"
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert os.getxattr(path, XATTR).decode() == digest
        assert os.listxattr(path) == [], "what copies attributes must not take it along"
        rows = {r["path"]: r["sha256"] for r in ckptfs.json("ls", store, "1000")}
        assert rows[str(path.relative_to(top))] == digest
    assert {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in top.rglob("*")} == before
    assert mount.status()["sealing"] == {"files": 0, "bytes": 0} and mount.errors() == []
    copy = mount.path / "copy"
    subprocess.run(["cp", "-a", str(top / "config"), str(copy)], check=True)
    with pytest.raises(OSError):
        os.getxattr(copy, XATTR)
    with pytest.raises(OSError):
        os.setxattr(top / "config", XATTR, b"0" * 64)


def test_verify_finds_each_flipped_byte_of_what_is_sealed(mount, store, commit, sealed, ckptfs):
    write_step(mount, commit)
    sealed("1000")
    clean = ckptfs.json("verify", "--read-data", store)
    assert clean["bad"] == [] and clean["unsealed"] == 0
    assert "compared with its SHA-256" in ckptfs("verify", "--read-data", store).stdout
    raw = raw_of(store, "large")
    for at in (0, CHUNK - 1, CHUNK, 2 * CHUNK):
        flip(raw, at)
        assert ckptfs.json("verify", store)["bad"] == [], "without --read-data nothing is read"
        done = ckptfs("verify", "--read-data", store, check=False)
        chunk = at // CHUNK * CHUNK
        assert done.returncode == 1 and "1000/sub/large" in done.stderr and f"1 of 3 chunks, the first at bytes {chunk} to" in done.stderr
        flip(raw, at)
    flip(raw_of(store, "config"), 2)
    assert [b["path"] for b in ckptfs.json("verify", "--read-data", store, check=False)["bad"]] == ["config", "link"]


def place_in_safetensors(path, name):
    """Where in the file its bytes are."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    begin, end = json.loads(data[8:8 + length])[name]["data_offsets"]
    return 8 + length + begin, end - begin


def place_in_npz(path, array):
    """By its bytes, which are there once."""
    data = path.read_bytes()
    assert data.count(array.tobytes()) == 1
    return data.index(array.tobytes()), array.nbytes


# Chunk ids are what packs and deduplication go by. What of them is seen from outside: verify names the chunk in which a byte has changed, and
# the SHA-256 of each is in what the store keeps of the step.
def test_a_frozen_array_is_the_same_chunks_in_other_files(mount, store, commit, sealed, ckptfs):
    frozen = numpy.random.default_rng(1).random((3, CHUNK // 8 + 11))  # 12 MiB and 264 bytes
    top = mount / "1000"
    top.mkdir()
    save_file({"frozen": frozen, "w": numpy.zeros(5, "f4")}, top / "a.safetensors")
    save_file({"adapter": numpy.ones(50000), "frozen": frozen, "z": numpy.ones(3, "i1")}, top / "b.safetensors", metadata={"step": "2000"})
    numpy.savez(top / "c.npz", first=numpy.ones(20000), frozen=frozen)
    numpy.save(top / "d.npy", frozen)
    commit(top)
    sealed("1000")
    places = {"a.safetensors": place_in_safetensors(top / "a.safetensors", "frozen"), "b.safetensors": place_in_safetensors(top / "b.safetensors", "frozen"),
              "c.npz": place_in_npz(top / "c.npz", frozen), "d.npy": (top.joinpath("d.npy").stat().st_size - frozen.nbytes, frozen.nbytes)}
    assert len({at for at, _ in places.values()}) == 4, "it stands somewhere else in each"
    assert all(length == frozen.nbytes for _, length in places.values())
    for chunk in range(0, frozen.nbytes, CHUNK):
        last = min(chunk + CHUNK, frozen.nbytes)
        for byte in (chunk, last - 1):
            for name, (at, _) in places.items():
                flip(raw_of(store, name), at + byte)
            bad = {b["path"]: b["problem"] for b in ckptfs.json("verify", "--read-data", store, check=False)["bad"]}
            assert bad.keys() == places.keys()
            for name, (at, _) in places.items():
                assert f"the first at bytes {at + chunk} to {at + last - 1}" in bad[name]
                flip(raw_of(store, name), at + byte)
    kept = b"".join(p.read_bytes() for p in [*(store / "log").rglob("*"), *(store / "m").rglob("*")] if p.is_file())
    data = frozen.tobytes()
    for chunk in range(0, len(data), CHUNK):
        assert kept.count(hashlib.sha256(data[chunk:chunk + CHUNK]).digest()) == 4
    assert ckptfs.json("verify", "--read-data", store)["bad"] == []


@pytest.mark.parametrize("options", ["seal=no"], indirect=True)
def test_the_verb_seals_what_a_mount_does_not(mount, store, commit, ckptfs):
    top = write_step(mount, commit)
    write_step(mount, commit, "2000", large=10)
    with pytest.raises(OSError):
        os.getxattr(top / "config", XATTR)
    assert os.getxattr(top / "empty", XATTR).decode() == hashlib.sha256(b"").hexdigest()
    assert ckptfs.json("verify", "--read-data", store)["unsealed"] > 0
    assert "are not sealed" in ckptfs("verify", "--read-data", store).stdout
    assert ckptfs("wait", "--sealed", "--timeout", "300ms", store, check=False).returncode == 1
    assert ckptfs.json("seal", store, "1000") == {"files": 3, "bytes": 2 * CHUNK + 5, "stored_bytes": 2 * CHUNK + 5}
    assert os.getxattr(top / "config", XATTR).decode() == hashlib.sha256(b"text").hexdigest()
    mount.umount()
    assert "sealed 3 files" in ckptfs("seal", store).stderr
    assert "everything is sealed already" in ckptfs("seal", store).stderr
    assert ckptfs.json("seal", store, "2000")["files"] == 0
    ckptfs("wait", "--sealed", store)
    assert ckptfs.json("verify", "--read-data", store) == {"steps": 2, "files": 6, "bytes": 2 * CHUNK + 5 + 14, "unsealed": 0, "bad": []}
    for words in (["trash/1"], ["1000/config"], ["nosuch"]):
        assert ckptfs("seal", store, *words, check=False).returncode in (1, 2)


def test_what_is_added_and_what_is_written_again_is_sealed(mount, store, commit, sealed):
    top = write_step(mount, commit, large=10)
    sealed("1000")
    trees.write(top / "late", b"late")
    trees.write(top / "sub/later", b"later")
    sealed("1000")
    for name in ("late", "sub/later", "config"):
        assert os.getxattr(top / name, XATTR).decode() == hashlib.sha256((top / name).read_bytes()).hexdigest()
    trees.write(top / "config", b"other")  # reopens the step
    commit(top)
    sealed("1000")
    assert os.getxattr(top / "config", XATTR).decode() == hashlib.sha256(b"other").hexdigest()


def test_an_end_is_not_waited_for_and_the_next_mount_goes_on(mount, store, commit, sealed):
    write_step(mount, commit, large=256 << 20)
    began = time.monotonic()
    mount.umount()
    assert time.monotonic() - began < 5
    mount.start()
    sealed("1000")


def test_a_kill_at_any_time_loses_nothing(mount, store, commit, sealed, ckptfs):
    top = write_step(mount, commit, large=64 << 20)
    want = trees.files(top)
    for wait in (0, 0.01, 0.03, 0.1, 0.3):
        time.sleep(wait)
        mount.kill9()
        assert ckptfs.json("verify", "--read-data", store)["bad"] == []
        mount.start()
        assert trees.files(top) == want
    sealed("1000")
    assert ckptfs.json("verify", "--read-data", store)["unsealed"] == 0 and mount.errors() == []


def test_rm_r_beside_it_removes_all(mount, store, commit, ckptfs):
    for n in range(40):
        name = str(1000 + n)
        write_step(mount, commit, name, large=100 * n)
        time.sleep(n * 0.0005)
        shutil.rmtree(mount / name)
        assert name not in mount.listing()
    assert mount.errors() == []


def test_what_cannot_be_read_is_told_once_and_the_rest_is_sealed(mount, store, commit, ckptfs):
    mount.remount(["seal=no"])
    top = write_step(mount, commit)
    write_step(mount, commit, "2000", large=10)
    raw = next(p for p in (store / "sessions").rglob("large") if p.stat().st_size > CHUNK)
    mount.umount()
    os.truncate(raw, CHUNK)
    mount.remount(["seal=yes"])
    ckptfs("wait", "--sealed", "--timeout", "80s", store, "2000")
    wait_until(lambda: mount.status()["sealing"]["files"] == 0, 10)
    assert len(mount.errors()) == 1 and "sub/large" in mount.errors()[0]
    assert os.getxattr(top / "config", XATTR).decode() == hashlib.sha256(b"text").hexdigest()
    assert ckptfs("seal", store, "1000", check=False).returncode == 1


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reading(ckptfs, store):
    """A foreground sealing that has begun to read what takes it seconds."""
    process = subprocess.Popen([ckptfs.path, "seal", store], stderr=subprocess.PIPE, text=True)
    time.sleep(0.1)
    assert process.poll() is None, "it is too quick for this test"
    return process


def test_a_foreground_sealing_ends_with_its_mount_and_by_a_signal(mount, store, commit, ckptfs):
    mount.remount(["seal=no"])
    write_step(mount, commit, large=1 << 30)
    asks = reading(ckptfs, store)
    asks.kill()
    asks.communicate()
    wait_until(lambda: cpu_seconds(mount.pid) == (time.sleep(0.3), cpu_seconds(mount.pid))[1], 5)  # nobody waits: it reads no more
    asks = reading(ckptfs, store)
    began = time.monotonic()
    mount.umount()
    assert time.monotonic() - began < 3
    _, said = asks.communicate(timeout=20)
    assert asks.returncode == 1 and "the mount is ending" in said, said
    at_rest = reading(ckptfs, store)
    at_rest.send_signal(signal.SIGINT)
    at_rest.communicate(timeout=20)
    assert at_rest.returncode in (130, -signal.SIGINT)
    [row] = ckptfs.json("ls", store)
    assert not row["sealed"] and ckptfs.json("verify", store)["bad"] == []
    assert ckptfs.json("seal", store)["files"] == 3
    assert ckptfs.json("verify", store)["unsealed"] == 0


def ask(store, **request):
    """What the process that has the store mounted answers: (lines that say how far it is, the answer)."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(store / "control.sock"))
        s.sendall(json.dumps(request).encode())
        s.shutdown(socket.SHUT_WR)
        *before, answer = s.makefile("rb").read().splitlines()
    return before, json.loads(answer)


@pytest.mark.parametrize("options", ["seal=no"], indirect=True)
@pytest.mark.parametrize("listens", [True, False])
def test_who_waits_for_a_mount_hears_how_far_it_is(mount, store, commit, listens):
    write_step(mount, commit, large=64 << 20)
    before, answer = ask(store, verb="seal", session=os.listdir(store / "sessions")[0], progress=listens)
    assert answer["ok"] is True and bool(before) == listens
    if listens:
        assert before[0][:1] == b"+" and 0 < sum(map(int, before)) <= (64 << 20) + len(b"text")
