"""Three nodes of one store in a bucket do what they like at once, and one of them dies in the middle.

Each save has an id of its own, from which all its bytes follow. So whoever finds a step, by any name, on any node, knows whether it
is whole. Some names are saved by all of them at once; others are renamed; others are deleted. Meanwhile garbage is collected without any grace.
At the end all nodes show the same, and each step whose save was acknowledged is there once, but for those that somebody deleted.
"""

import contextlib
import os
import random
import shutil
import threading
import time
import traceback
from pathlib import Path

import pytest

from support import trees
from support.fixtures import FULL
from support.mounting import wait_until
from support.nodes import *  # noqa: F403

pytestmark = pytest.mark.timeout(240)

SECONDS = 60 if FULL else 12
SEED = int(os.environ.get("CKPT_TEST_SEED", "0"))
CONTESTED = [str(n) for n in range(100, 106)]


def files_of(save):
    """{name: bytes} of a save; its size is known from its id."""
    dice = random.Random(save)
    return {"id": save.encode(), **{f"shard-{i}": trees.content(f"{save} {i}", dice.choice((10, 5_000, 300_000))) for i in range(dice.randrange(1, 6))}}


@contextlib.contextmanager
def root_of(n):
    """The root as it is mounted now. By its path, a save that began beside a dead mount would go on in the next one, in whatever step has its name."""
    fd = os.open(n.path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


class Crew:
    def __init__(self, seed, ckptfs, nodes):
        self.seed, self.ckptfs, self.nodes = seed, ckptfs, nodes
        self.up = set(nodes)
        self.lock = threading.Lock()
        self.saved, self.deleted = set(), set()  # ids
        self.failures = []
        self.until = time.monotonic() + SECONDS
        self.counts = {}
        self.where = {}  # a save: its node, and when it was acknowledged

    # --- Acts. A node that is killed meanwhile fails them, and nothing is known of their outcome.

    def save(self, n, dice):
        name = dice.choice(CONTESTED) if dice.random() < 0.3 else f"{dice.choice('12')}{dice.randrange(10**7):07}"
        save = f"{name} {dice.randrange(10**12)}"
        with root_of(n) as root:
            try:
                os.mkdir(root / name)
            except FileExistsError:
                return
            for path, data in files_of(save).items():
                trees.write(root / name / path, data)
            trees.write(root / name / ".finalize", b"")
        with self.lock:
            if n in self.up:  # else it may be in the bare directory
                self.saved.add(save)
                self.where[save] = (str(n.path), time.time())

    def delete(self, n, dice):
        name = pick(n, dice, "1")
        if name:
            save = read(n / name / "id")
            with self.lock:
                self.deleted.add(save)  # from now on nobody can say whether it is there
            shutil.rmtree(n / name)

    def rename(self, n, dice):
        name = pick(n, dice, "2")
        if name:
            os.rename(n / name, n / f"2{dice.randrange(10**7):07}")

    def look(self, n, dice):
        del dice
        for name in n.listing():
            self.check(n, name)

    def collect(self, n, dice):
        if n is not self.nodes[1]:  # a verb whose mount has died has the store, until it ends
            self.ckptfs("gc", n.path, "--grace", "0s", *dice.choice(((), ("--delay", "0s"))), check=False)

    def check(self, n, name):
        """All or nothing: what is listed is whole, as long as it is listed as what it is."""
        found = {}
        try:
            save = read(n / name / "id")
            for path in os.listdir(n / name):
                found[path] = (n / name / path).read_bytes()
        except OSError as e:
            assert read(n / name / "id") != save or name not in n.listing(), f"{name} is listed, and cannot be read: {e!r}"
            return
        if save is None:
            assert name not in n.listing() or read(n / name / "id"), f"{name} is listed, and has no id"
            return
        found.pop(".finalize", None)
        if found != files_of(save) and read(n / name / "id") == save:
            raise AssertionError(f"{n.path}/{name}, which is {save!r}, has {sorted((k, len(v)) for k, v in found.items())}")

    def told(self, lost, there):
        """What is known of saves that are not there."""
        nodes = "\n".join(f"--- {n.path}\n{n.errors()}\n{n.log()[-3000:]}" for n in self.nodes)
        return f"{lost} are not in {there}; saved on {[(save, self.where.get(save)) for save in lost]}\n{nodes}"

    # --- Threads

    def work(self, index):
        dice = random.Random(f"{self.seed} {index}")
        acts = {self.save: 8, self.delete: 3, self.rename: 3, self.look: 4, self.collect: 1}
        while time.monotonic() < self.until and not self.failures:
            act = dice.choices(list(acts), acts.values())[0]
            n = self.nodes[index]
            try:
                act(n, dice)
                with self.lock:
                    self.counts[act.__name__] = self.counts.get(act.__name__, 0) + 1
            except (OSError, AssertionError) as e:
                lost_race = isinstance(e, OSError) and act in (self.delete, self.rename)
                if n in self.up and not lost_race:  # else it was killed, and what is there is the bare directory
                    self.failures.append(traceback.format_exc())


def read(path):
    with contextlib.suppress(OSError):
        return path.read_text()
    return None


def pick(n, dice, first):
    names = [x for x in n.listing() if x.startswith(first) and len(x) == 8]
    return dice.choice(names) if names else None


def ids(n):
    return sorted(read(n / name / "id") for name in n.listing())


@pytest.mark.parametrize("seed", range(SEED, SEED + (10 if FULL else 1)))
def test_whatever_they_do_at_once_all_agree_and_nothing_is_lost(node, ckptfs, seed):
    crew = Crew(seed, ckptfs, [node(name) for name in "abc"])
    threads = [threading.Thread(target=crew.work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    dice = random.Random(seed)
    while time.monotonic() < crew.until - 4:
        time.sleep(dice.uniform(2, 5))
        crew.up.remove(crew.nodes[1])
        crew.nodes[1].kill9()
        crew.nodes[1] = node("b", options=["nonempty"])
        crew.up.add(crew.nodes[1])
    for t in threads:
        t.join()
    assert not crew.failures, crew.failures[0] + "\n".join(n.log()[-3000:] for n in crew.nodes)
    for n in crew.nodes:
        n.wait(timeout=60)
    crew.nodes.append(node("d"))
    wait_until(lambda: len({tuple(n.listing()) for n in crew.nodes}) == 1, 20, "the same listing on all nodes")
    for n in crew.nodes:
        for name in n.listing():
            crew.check(n, name)
        there = ids(n)
        assert len(there) == len(set(there)), there
        lost = crew.saved - crew.deleted - set(there)
        assert not lost, crew.told(lost, there)
        assert ckptfs("verify", "--read-data", n.path).returncode == 0
    print(crew.counts, len(crew.saved), "saved", len(ids(n)), "there")


def test_a_save_that_began_beside_a_dead_mount_stays_out_of_the_next_one(scratch, monkeypatch):
    """Else it writes over a step of another save, which is missing then."""
    class Bare:
        path = scratch / "mnt"

        def __truediv__(self, name):
            return self.path / name

    class Dice(random.Random):
        def random(self):
            return 0  # a contested name

    def mounted_meanwhile(save):
        os.rename(Bare.path, scratch / "bare")
        for name in CONTESTED:
            (Bare.path / name).mkdir(parents=True)
            trees.write(Bare.path / name / "id", b"of another")
        return {"id": save.encode()}

    Bare.path.mkdir()
    monkeypatch.setattr("test_s3_three_nodes.files_of", mounted_meanwhile)
    Crew(0, None, []).save(Bare(), Dice(0))
    assert [read(Bare.path / name / "id") for name in CONTESTED] == ["of another"] * len(CONTESTED)
    assert [len(os.listdir(scratch / "bare" / name)) for name in os.listdir(scratch / "bare")] == [2]
