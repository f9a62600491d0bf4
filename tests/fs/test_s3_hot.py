"""A file that was read whole from the bucket is kept on the node: it is hot from then on, and read without the network.

The first node saves, the second one reads. A file is hot when its raw file is in the work directory under its own name; `ckptfs ls` says it of
a step when all of its files are. What must not become hot is followed by one that must: files are kept in the order in which they were read.
"""

import functools
import mmap
import os
import random

import pytest

from support import trees
from support.mounting import wait_until
from test_s3 import client, environment, node, probed_before, url  # noqa: F401

pytestmark = pytest.mark.timeout(90)

MIB = 1 << 20
BIG = 9 * MIB + 12_345
SMALL = 300_000
AWAY = {"do": "reset-before"}


@functools.cache
def content(name):
    """Of random bytes, which stand in a pack as they are."""
    return random.Random(name).randbytes(BIG if name.startswith("big") else SMALL)


def save(n, step="1000", names=("big.bin", "big-2.bin", "small.bin", "small-2.bin")):
    (n / step).mkdir()
    for name in names:
        trees.write(n / step / name, content(name))
    n.complete(step)
    n.wait(step)


@pytest.fixture
def pair(node, fault_proxy):
    """A node that has saved, and one that has nothing, with a proxy between that and the bucket."""
    first = node("a")
    save(first)
    second = node("b", fault_proxy.endpoint)
    wait_until(lambda: "1000" in second.listing(), 20, "the step on the other node")
    return first, second


def raw_files(n, step="1000"):
    """{name: bytes} of the raw files."""
    return {p.name: p.read_bytes() for p in (n.work_dir / "sessions").rglob("*.bin") if p.is_file()}


def left_overs(n):
    return [p.name for p in (n.work_dir / "trash").iterdir() if p.name.startswith("copy-")]


def is_hot(n, step="1000"):
    return next(row["hot"] for row in n.world.program.json("ls", n.path) if row["name"] == step)


def wait_hot(n, *names):
    wait_until(lambda: set(names) <= raw_files(n).keys(), 30, f"{names} to be hot")


def bytes_fetched(fault_proxy):
    return sum(row["bytes_out"] for row in fault_proxy.log() if row["op"] == "GetObject" and "/packs/" in row["key"])


def test_a_file_that_was_read_whole_is_hot_and_read_without_the_bucket(pair, fault_proxy):
    _, n = pair
    before = trees.describe(n / "1000")  # it reads them all
    wait_hot(n, "big.bin", "big-2.bin", "small.bin", "small-2.bin")
    assert is_hot(n)
    assert left_overs(n) == []
    n.umount()
    fault_proxy.play(AWAY)
    n.start()
    assert trees.describe(n / "1000") == before
    fault_proxy.play()
    assert n.world.program("verify", "--read-data", n.work_dir, check=False).returncode == 0


def test_it_is_fetched_once(pair, fault_proxy):
    """The raw file is of what the reader was given."""
    _, n = pair
    fault_proxy.forget()
    assert (n / "1000/big.bin").read_bytes() == content("big.bin")
    wait_hot(n, "big.bin")
    assert raw_files(n) == {"big.bin": content("big.bin")}
    assert BIG <= bytes_fetched(fault_proxy) < BIG * 1.3


def test_half_of_a_file_is_not_enough_and_its_other_half_is_whoever_reads_it(pair):
    _, n = pair
    half = BIG // 2 // MIB * MIB
    with open(n / "1000/big.bin", "rb", buffering=0) as f:
        assert f.read(64 * 1024) == content("big.bin")[:64 * 1024]
        f.seek(BIG - 100_000)
        assert f.read() == content("big.bin")[-100_000:]
    assert (n / "1000/small.bin").read_bytes() == content("small.bin")
    wait_hot(n, "small.bin")
    wait_until(lambda: left_overs(n) == [], 20, "no copy of wrong bytes")
    assert raw_files(n).keys() == {"small.bin"} and not is_hot(n)
    fd = os.open(n / "1000/big.bin", os.O_RDONLY)
    try:
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            assert mapped[half:] == content("big.bin")[half:]
    finally:
        os.close(fd)
    assert (n / "1000/small-2.bin").read_bytes() == content("small-2.bin")
    wait_hot(n, "small-2.bin")
    assert raw_files(n).keys() == {"small.bin", "small-2.bin"}
    with open(n / "1000/big.bin", "rb", buffering=0) as f:
        assert f.read(half) == content("big.bin")[:half]
    wait_hot(n, "big.bin")
    assert raw_files(n)["big.bin"] == content("big.bin")


def test_a_file_that_is_open_stays_as_it_is_and_later_opens_are_passthrough(pair, fault_proxy):
    _, n = pair
    with open(n / "1000/big.bin", "rb") as early:
        assert early.read() == content("big.bin")
        wait_hot(n, "big.bin")
        early.seek(0)
        assert early.read() == content("big.bin")
        with open(n / "1000/big.bin", "rb") as beside:
            assert beside.read() == content("big.bin")
    fault_proxy.play(AWAY)
    fd = os.open(n / "1000/big.bin", os.O_RDONLY | os.O_DIRECT)  # past what the kernel keeps
    try:
        buffer = mmap.mmap(-1, MIB)
        assert os.preadv(fd, [buffer], 4 * MIB) == MIB and buffer[:] == content("big.bin")[4 * MIB:5 * MIB]
    finally:
        os.close(fd)


def test_without_room_below_work_limit_nothing_is_kept_and_nothing_goes(node):
    """Of 40 MiB the saved step takes 18, raw and packed, and the next one has as much left for it: small.bin has room, big.bin has none."""
    first = node("a")
    save(first)
    n = node("b", options=["work_limit=40MiB", "hot=all", "commit_quiet=1s"])
    save(n, "2000", ("big-3.bin",))
    assert (n / "1000/big.bin").read_bytes() == content("big.bin")
    assert (n / "1000/small.bin").read_bytes() == content("small.bin")
    wait_hot(n, "small.bin")
    assert raw_files(n).keys() == {"small.bin", "big-3.bin"} and left_overs(n) == []
    assert is_hot(n, "2000") and n.errors() == []


def test_a_kept_file_goes_before_a_saved_step(node):
    """With 48 MiB there is room for it, until a save comes."""
    first = node("a")
    save(first)
    n = node("b", options=["work_limit=48MiB", "hot=all", "commit_quiet=1s"])
    save(n, "2000", ("big-3.bin",))
    assert (n / "1000/big.bin").read_bytes() == content("big.bin")
    wait_hot(n, "big.bin")
    (n / "3000").mkdir()
    trees.write(n / "3000/small-3.bin", content("small-3.bin"))
    n.complete("3000")
    n.wait("3000")
    assert raw_files(n).keys() == {"big.bin", "big-3.bin", "small-3.bin"}
    save(n, "4000", ("big-4.bin",))
    wait_until(lambda: "big.bin" not in raw_files(n), 20, "the kept file to go")
    assert is_hot(n, "4000")
    assert (n / "1000/big.bin").read_bytes() == content("big.bin")


@pytest.mark.parametrize("moment", ["half", "whole"])
def test_a_crash_leaves_nothing_and_the_next_reading_is_kept(pair, agent, moment):
    _, n = pair
    reader = agent()
    reader.run("f = open(path, 'rb', buffering=0)", path=str(n / "1000/big.bin"))
    reader.run("len(f.read(size))", size=5 * MIB if moment == "half" else BIG)
    if moment == "half":
        wait_until(lambda: left_overs(n), 10, "a part of it in the trash")
    n.kill9()
    n.start()
    assert left_overs(n) == []
    assert raw_files(n) in ({}, {"big.bin": content("big.bin")})
    assert moment == "whole" or raw_files(n) == {}
    assert (n / "1000/big.bin").read_bytes() == content("big.bin")
    wait_hot(n, "big.bin")
    assert raw_files(n) == {"big.bin": content("big.bin")}


def test_wrong_bytes_in_a_pack_never_become_hot(pair, client, s3_server, s3_prefix):
    _, n = pair
    pages = client.list_objects_v2(Bucket=s3_server.bucket, Prefix=s3_prefix + "packs/")["Contents"]
    for row in pages:
        body = bytearray(client.get_object(Bucket=s3_server.bucket, Key=row["Key"])["Body"].read())
        at = body.find(content("big.bin")[6 * MIB:6 * MIB + 64])
        if at >= 0:
            body[at + 10] ^= 1
            client.put_object(Bucket=s3_server.bucket, Key=row["Key"], Body=bytes(body))
            break
    else:
        pytest.fail("no pack has these bytes as they are")
    with pytest.raises(OSError):
        (n / "1000/big.bin").read_bytes()
    assert (n / "1000/small.bin").read_bytes() == content("small.bin")
    wait_hot(n, "small.bin")
    wait_until(lambda: left_overs(n) == [], 20, "the end of the copy with wrong bytes")
    assert raw_files(n).keys() == {"small.bin"}


def test_a_file_that_was_replaced_meanwhile_is_the_new_one(pair, fault_proxy):
    first, n = pair
    with open(n / "1000/big.bin", "rb") as f:
        assert f.read() == content("big.bin")
        trees.write(n / "1000/big.bin.new", b"another text")
        os.replace(n / "1000/big.bin.new", n / "1000/big.bin")
    n.wait("1000")
    assert (n / "1000/big.bin").read_bytes() == b"another text"
    wait_until(lambda: (first / "1000/big.bin").read_bytes() == b"another text", 20, "the edit on the other node")


def test_links_and_attributes_are_those_of_the_step(node):
    first = node("a")
    (first / "1000").mkdir()
    trees.fill(first / "1000", seed="kinds")
    trees.write(first / "1000/big.bin", content("big.bin"), 0o640)
    os.link(first / "1000/big.bin", first / "1000/big-link.bin")
    os.setxattr(first / "1000/big.bin", "user.note", b"\x00\xff")
    os.utime(first / "1000/big.bin", ns=(1, 1_234_567_890_123_456_789))
    is_there = first.complete("1000")
    first.wait("1000")
    n = node("b")
    wait_until(lambda: "1000" in n.listing(), 20, "the step on the other node")
    assert trees.describe(n / "1000") == is_there
    wait_hot(n, "big.bin", "big-link.bin")
    wait_until(lambda: is_hot(n), 20, "all of it")
    n.remount()
    assert trees.describe(n / "1000") == is_there
