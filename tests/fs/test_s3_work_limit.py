"""work_limit of a store in a bucket: the work directory stays below it, by what the bucket has going from there; writers wait, and are told."""

import errno
import os
import threading
import time

import pytest

from support import trees
from support.mounting import wait_until
from test_s3 import client, environment, keys, node, probed_before, url  # noqa: F401

pytestmark = pytest.mark.timeout(150)

MIB = 1 << 20
STEP = 4 * MIB
LIMIT = 28 * MIB
OPTIONS = [f"work_limit={LIMIT // MIB}MiB", "commit_quiet=1s", "hot=all"]
HELD = {"do": "reset-before"}


def used(n):
    """What the work directory takes on the disk."""
    seen, total = set(), 0
    for folder, _, names in os.walk(n.work_dir):
        for name in names:
            try:
                st = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            total += 0 if st.st_ino in seen else st.st_blocks * 512
            seen.add(st.st_ino)
    return total


def is_here(n, name):
    """Its raw files are in the work directory."""
    return next(row["hot"] for row in n.world.program.json("ls", n.path) if row["name"] == name)


def save(n, name):
    (n / name).mkdir()
    trees.write(n / name / "model.bin", trees.content(f"model {name}", STEP))
    return n.complete(name)


class Watch:
    """The most that the directory took while it was watched."""

    def __init__(self, n):
        self.node, self.most, self.over = n, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.wait(0.05):
            self.most = max(self.most, used(self.node))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def test_the_directory_stays_below_it_and_every_step_is_there(node):
    """Eight saves of 4 MiB, each raw and packed, are 64 MiB. The oldest are read from the bucket, the newest is here."""
    n = node("a", options=OPTIONS)
    made = {}
    with Watch(n) as watch:
        for i in range(8):
            made[f"{i + 1}000"] = save(n, f"{i + 1}000")
        n.wait()
        wait_until(lambda: used(n) <= LIMIT - 2 * STEP, 20, "room for the next save")
    assert watch.most <= LIMIT, f"{watch.most / MIB:.1f} MiB"
    assert is_here(n, "8000") and not is_here(n, "1000")
    assert {name: trees.describe(n / name) for name in made} == made
    assert n.errors() == []
    n.remount()
    assert {name: trees.describe(n / name) for name in made} == made
    n.lose()
    other = node("b")
    assert {name: trees.describe(other / name) for name in made} == made


def test_pinned_steps_and_open_files_stay_and_trash_goes_first(node, ckptfs, agent):
    n = node("a", options=OPTIONS)
    save(n, "1000")
    ckptfs("pin", n.path, "1000")
    save(n, "2000")
    reader = agent()
    reader.run("f = open(path, 'rb')", path=str(n / "2000/model.bin"))
    save(n, "3000")
    n.wait()
    ckptfs("rm", n.path, "3000")
    n.wait()
    for name in ("4000", "5000", "6000"):
        save(n, name)
        n.wait()
    wait_until(lambda: not is_here(n, "4000"), 20, "the oldest that may go")
    assert is_here(n, "1000") and is_here(n, "2000")
    assert reader.run("f.read()") == trees.content("model 2000", STEP)
    reader.run("f.close()")
    ckptfs("undelete", n.path, "3000")
    assert not is_here(n, "3000")
    assert (n / "3000/model.bin").read_bytes() == trees.content("model 3000", STEP)
    assert n.errors() == []


BEGIN = "os.mkdir(step); fd = os.open(step + '/model.bin', os.O_CREAT | os.O_WRONLY)"


@pytest.mark.parametrize("mode", ["passthrough", "daemon"])
def test_without_the_network_writers_wait_then_are_refused_and_nothing_is_lost(node, fault_proxy, agent, mode):
    """Nothing of what the bucket lacks goes. Once it takes something again, there is room again."""
    n = node("a", fault_proxy.endpoint, OPTIONS + (["no_passthrough"] if mode == "daemon" else []))
    fault_proxy.play(HELD)
    wait_until(n.errors, 30, "a line that the bucket does not answer")
    made = {}
    began = time.monotonic()
    for name in ("1000", "2000", "3000", "4000", "5000", "6000"):
        made[name] = save(n, name)
    assert time.monotonic() - began < 5
    (n / "7000").mkdir()
    (n / "rest").mkdir()
    trees.write(n / "7000/weights.bin", trees.content("weights", STEP - used(n) % STEP))
    trees.write(n / "rest/fill", b"x" * max(0, LIMIT - used(n)))
    time.sleep(1.5)
    saver = agent()
    saver.start(BEGIN, step=str(n / "8000"))
    assert saver.still_busy(5)
    assert n.listing() == [*made, "rest"]
    with pytest.raises(OSError) as refused:
        saver.result(timeout=60)
    assert refused.value.errno == errno.ENOSPC
    [line] = [line for line in n.errors() if "work_limit" in line]
    assert "object store" in line and "raise work_limit" in line, line
    made["7000"] = n.complete("7000")  # what ends a step is never refused
    assert {name: trees.describe(n / name) for name in made} == made
    saver.start(BEGIN, step=str(n / "9000"))
    assert saver.still_busy(1)
    fault_proxy.play()
    saver.result(timeout=60)
    saver.run("os.write(fd, data); os.close(fd); open(step + '/.finalize', 'w').close()", step=str(n / "9000"), data=b"x" * STEP)
    n.wait(timeout=60)
    wait_until(lambda: used(n) <= LIMIT, 20, "room")
    assert {name: trees.describe(n / name) for name in made} == made
    n.lose()
    other = node("b")
    assert {name: trees.describe(other / name) for name in made} == made
