"""Data is in the bucket before its step is complete: files of a staged step are packed and sent once they are closed."""

import ctypes
import mmap
import os
import pathlib
import threading

import pytest

from support import trees
from support.mounting import wait_until
from test_s3 import client, environment, keys, node, probed_before, url  # noqa: F401

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
HELD = {"do": "reset-before"}  # all that is asked of the bucket


libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def map_shared(fd, length):
    """By hand: the module mmap keeps a descriptor of its own."""
    at = libc.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    assert at != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    return (ctypes.c_ubyte * length).from_address(at)


def random_file(path, mib=4):
    """Bytes that no pack has yet, and that no codec makes smaller."""
    data = os.urandom(mib * MIB)
    trees.write(path, data)
    return data


def await_packs(keys, count=1, before=()):
    wait_until(lambda: len(set(keys("packs/")) - set(before)) >= count, 30, "packs in the bucket")
    return set(keys("packs/"))


def local_packs(n):
    return {f"packs/{p.name}" for p in (n.work_dir / "packs").iterdir()}


def sent(fault_proxy):
    """The keys of what was put, without the URL's own part."""
    return [row["key"].split("/")[-2:] for row in fault_proxy.log() if row["op"] in ("PutObject", "UploadPart") and row["status"] == 200]


def test_packs_arrive_before_the_step_is_complete_and_nothing_but_the_entry_after_it(node, keys, fault_proxy):
    n = node("a", fault_proxy.endpoint)
    step = n / "1000"
    step.mkdir()
    for name in ("a.bin", "b.bin", "c.bin"):
        random_file(step / name)
    packs = await_packs(keys)
    # The rest in memory is sent a few seconds later, too.
    wait_until(lambda: sum(p.stat().st_size for p in (n.work_dir / "packs").iterdir()) > 12 * MIB, 30, "all three in packs")
    wait_until(lambda: set(keys("packs/")) == local_packs(n), 30, "all of them in the bucket")
    packs = set(keys("packs/"))
    assert n.listing() == [] and not [k for k in keys("log/") if k != "log/0000000000000001"]
    fault_proxy.renew()
    made = n.complete("1000")
    n.wait("1000")
    put = sent(fault_proxy)
    assert put and {folder for folder, _ in put} <= {"log", "m"}, put
    assert set(keys("packs/")) == packs == local_packs(n)
    n.lose()
    assert trees.describe(node("b") / "1000") == made


def test_files_are_read_once(node, keys, ckptfs):
    """Their bytes are taken out of the page cache's hands: a file that is changed past the mount is read again, others are not."""
    n = node("a")
    step = n / "1000"
    step.mkdir()
    random_file(step / "a.bin")
    random_file(step / "b.bin")
    wait_until(lambda: sum(p.stat().st_size for p in (n.work_dir / "packs").iterdir()) > 8 * MIB, 30, "both in packs")
    [raw] = n.work_dir.glob("sessions/*/b.bin")
    with open(raw, "r+b") as f:  # by root, behind the daemon's back
        f.write(b"changed")
    n.complete("1000")
    n.wait("1000")
    assert (step / "b.bin").read_bytes()[:7] == b"changed"
    assert ckptfs("verify", n.path, "--read-data", check=False).returncode == 0
    described = trees.describe(step)
    n.lose()
    assert trees.describe(node("b") / "1000") == described


@pytest.mark.parametrize("how", ["truncated", "in place", "replaced", "appended", "mapped", "by path"])
def test_a_file_that_is_written_again_has_its_last_bytes(node, keys, ckptfs, how):
    n = node("a")
    step = n / "1000"
    step.mkdir()
    path = step / "a.bin"
    data = bytearray(random_file(path))
    await_packs(keys)
    if how == "truncated":
        data = random_file(path)
    elif how == "in place":
        with open(path, "r+b") as f:
            f.seek(2 * MIB)
            f.write(b"other bytes")
        data[2 * MIB:2 * MIB + 11] = b"other bytes"
    elif how == "replaced":
        data = random_file(step / "new")
        os.rename(step / "new", path)
    elif how == "appended":
        with open(path, "ab") as f:
            f.write(b"more")
        data += b"more"
    elif how == "mapped":
        with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
            m[MIB:MIB + 6] = b"mapped"
        data[MIB:MIB + 6] = b"mapped"
    else:
        os.truncate(path, 3 * MIB)
        data = data[:3 * MIB]
    made = n.complete("1000")
    n.wait("1000")
    assert path.read_bytes() == bytes(data)
    assert ckptfs("verify", n.path, "--read-data", check=False).returncode == 0
    n.lose()
    other = node("b")
    assert trees.describe(other / "1000") == made and (other / "1000/a.bin").read_bytes() == bytes(data)


def test_a_mapping_that_outlives_its_descriptor_is_seen_to_its_end(node, keys, ckptfs):
    """RELEASE comes at close(2) here. Stores after it need not change ctime, so the file is left to the commit until nobody can write it."""
    n = node("a")
    step = n / "1000"
    step.mkdir()
    data = bytearray(random_file(step / "a.bin"))
    await_packs(keys)
    fd = os.open(step / "a.bin", os.O_RDWR)
    mapped = map_shared(fd, len(data))
    over, count = threading.Event(), 0

    def store():  # without end: a page that was written out meanwhile takes a fault once, which changes ctime once
        nonlocal count
        while not over.is_set() or count % 256 < 2:
            count += 1
            for at in range(MIB, 2 * MIB, 4096):
                mapped[at] = count % 256

    writer = threading.Thread(target=store)
    writer.start()
    try:
        random_file(step / "b.bin", 24)  # is looked at before a.bin, which is written out meanwhile: the daemon does so after close
        os.close(fd)
        wait_until(lambda: not [f for f in descriptors(n) if f.endswith(".bin")], 30, "both to be looked at")
    finally:
        over.set()
        writer.join()
    for at in range(MIB, 2 * MIB, 4096):
        data[at] = count % 256
    libc.munmap(mapped, len(data))
    made = n.complete("1000")
    n.wait("1000")
    assert (step / "a.bin").read_bytes() == bytes(data)
    assert ckptfs("verify", n.path, "--read-data", check=False).returncode == 0
    n.lose()
    other = node("b")
    assert trees.describe(other / "1000") == made and (other / "1000/a.bin").read_bytes() == bytes(data)


def test_a_save_that_lacks_room_gets_that_of_unfinished_steps(node):
    """Below work_limit two steps have room as they are, and not with the packs of one."""
    n = node("a", options=["work_limit=28MiB", "commit_quiet=1s"])
    n.save("1", size=1000)
    n.wait("1")
    (n / "1000").mkdir()
    random_file(n / "1000/a.bin", 8)
    wait_until(lambda: sum(p.stat().st_size for p in (n.work_dir / "packs").iterdir()) > 8 * MIB, 30, "it in packs")
    (n / "2000").mkdir()
    for i in range(4):
        random_file(n / f"2000/{i}.bin")
    assert n.complete("2000")


def test_a_file_that_is_removed_is_garbage_at_the_commit(node, keys, ckptfs):
    n = node("a")
    step = n / "1000"
    step.mkdir()
    random_file(step / "gone.bin", 8)
    first = await_packs(keys)
    os.unlink(step / "gone.bin")
    random_file(step / "stays.bin", 1)
    made = n.complete("1000")
    n.wait("1000")
    # Almost all of what is in packs is garbage: that it may go was said when the step was complete.
    wait_until(lambda: ckptfs("gc", n.path, "--grace", "0s", check=False).returncode == 0 and not first & local_packs(n), 30, "it to go")
    n.lose()
    assert trees.describe(node("b") / "1000") == made


def test_a_step_that_is_given_up_is_garbage(node, keys, ckptfs):
    n = node("a")
    step = n / "1000"
    step.mkdir()
    random_file(step / "a.bin", 8)
    packs = await_packs(keys)
    assert ckptfs("gc", n.path, "--grace", "0s", check=False).returncode == 0
    assert packs <= local_packs(n)  # they are pinned
    os.unlink(step / "a.bin")
    step.rmdir()
    wait_until(lambda: ckptfs("gc", n.path, "--grace", "0s", check=False).returncode == 0 and not local_packs(n), 30, "them to go")
    assert n.save("2000", size=300_000)
    n.wait("2000")


@pytest.mark.parametrize("when", ["before the commit", "after it"])
def test_kill_9_leaves_no_more_than_garbage(node, keys, ckptfs, when):
    n = node("a")
    step = n / "1000"
    step.mkdir()
    data = random_file(step / "a.bin", 8)
    packs = await_packs(keys)
    random_file(step / "b.bin", 4)  # is being packed
    made = n.complete("1000") if when == "after it" else None
    n.kill9()
    n.start()
    if not made:
        random_file(step / "b.bin", 4)
        made = n.complete("1000")
    n.wait("1000")
    assert (step / "a.bin").read_bytes() == data
    assert packs <= set(keys("packs/"))  # what was there is found again
    assert ckptfs("gc", n.path, "--grace", "0s", check=False).returncode == 0
    assert ckptfs("verify", n.path, "--read-data", check=False).returncode == 0
    n.lose()
    assert trees.describe(node("b") / "1000") == made


def test_what_kill_9_leaves_goes_without_force(node, keys, ckptfs):
    """All packs are garbage then, which a collection asks about where it does not know why."""
    n = node("a")
    step = n / "1000"
    step.mkdir()
    random_file(step / "a.bin", 8)
    await_packs(keys)
    n.kill9()
    n.start()
    os.unlink(step / "a.bin")
    step.rmdir()
    assert local_packs(n)
    wait_until(lambda: ckptfs("gc", n.path, "--grace", "0s", check=False).returncode == 0 and not local_packs(n), 30, "them to go")


def test_nothing_is_packed_while_the_bucket_does_not_answer(node, fault_proxy, ckptfs):
    n = node("a", fault_proxy.endpoint)
    n.save("1", size=1000)
    n.wait("1")
    fault_proxy.play(HELD)
    wait_until(lambda: ckptfs.json("status", n.path)["uploading"]["unreachable_s"] is not None, 30, "it is known")
    before = local_packs(n)
    (n / "1000").mkdir()
    random_file(n / "1000/a.bin", 8)
    (n / "1000/b.bin").write_bytes(b"small")
    # The thread has looked at the queue: it holds no descriptor of the file any more.
    wait_until(lambda: not [f for f in descriptors(n) if f.endswith("a.bin")], 20, "the file to be left")
    assert local_packs(n) == before
    fault_proxy.play()
    made = n.complete("1000")
    n.wait("1000")
    n.lose()
    assert trees.describe(node("b") / "1000") == made


def descriptors(n):
    found = []
    for fd in pathlib.Path(f"/proc/{n.pid}/fd").iterdir():
        try:
            found.append(os.readlink(fd))
        except FileNotFoundError:
            continue
    return found
