"""Verbs of which one system call fails, or all from then on, is cut short, or is the last: the kernel asks clients/inject.c before each.

Whatever became of the verb, the store is as it was or as it was to be, no byte is another, what the verb said of it is so, and doing it again
works, with nothing cleaned up by hand. No file is fsynced again when its fsync has failed, but for the index, a cache that LMDB syncs for each
transaction. A sample of the calls and errors is tried, drawn from CKPT_TEST_SEED; with CKPT_TEST_LONG=1 all, some 11,000.
"""

import errno
import hashlib
import os
import random
import shutil
import subprocess
from collections import Counter

import pytest

from power.cuts import look_program
from power.points import Looker
from support import trees
from support.fixtures import FULL, LONG, SLOW

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(SLOW > 1, reason="sanitizers make system calls of their own")]

SEED = os.environ.get("CKPT_TEST_SEED", "1")
SAMPLE = 400 if FULL else 25  # of each verb
CALLS_LEAST = 100  # that a verb makes
KILLED = 128 + 9
OPENS = {"open", "openat", "openat2"}
MAKES = {"mkdir", "mkdirat", "symlinkat", "linkat", "renameat2", "write", "pwrite64", "pwritev", "ftruncate", "fallocate", "fsetxattr", "fsync", "fdatasync", "syncfs",
         "copy_file_range"} | OPENS
WAITS = {"read", "pread64", "write", "pwrite64", "pwritev", "fsync", "fdatasync", "copy_file_range", "fallocate", "flock", "ftruncate"} | OPENS

# What a verb makes of the steps: {name: whose files it has}. Before it there are 1, and 2 in the trash.
VERBS = {
    "save": (["save", "STORE", "FOLDER", "3"], {"1": "1", "3": "3"}),
    "save without an index": (["save", "STORE", "FOLDER", "3"], {"1": "1", "3": "3"}),
    "copy": (["copy", "SOURCE", "STORE"], {"1": "1", "3": "3"}),
    "rm": (["rm", "STORE", "1"], {}),
    "rm for good": (["rm", "--now", "--yes", "STORE", "1"], {}),
    "undelete": (["undelete", "STORE", "2"], {"1": "1", "2": "2"}),
    "mv": (["mv", "STORE", "1", "3"], {"3": "1"}),
    "index": (["verify", "--repair-index", "STORE"], {"1": "1"}),
    "index rebuild": (["index", "rebuild", "STORE"], {"1": "1"}),
}
BEFORE = {"1": "1"}


def ways(call):
    """What can become of a call; "+": of all from then on."""
    yield from ("kill", "EIO", "EIO+", "ENOMEM")
    if call in MAKES:
        yield from ("ENOSPC", "ENOSPC+", "EDQUOT", "EDQUOT+")
    if call in OPENS:
        yield from ("EMFILE", "EMFILE+")
    if call in WAITS:
        yield "EINTR"
    if call in ("pread64", "write", "pwrite64", "copy_file_range"):
        yield from ("short", "short+")


def digests(made):
    return {name: f"{hashlib.sha256(data).hexdigest()} {len(data)}" for name, data in made.items()} | {"first": "-> params/layer_0"}


class Trials:
    """One verb on a store that is made anew for each trial."""

    def __init__(self, world, name, inject):
        self.ckptfs, self.inject, self.scratch = world.program, inject, world.scratch
        self.arguments, self.after = VERBS[name]
        self.base, self.store, self.report = (self.scratch / what for what in ("base", "store", "report"))
        self.files = {}  # of each seed
        self.source = self.scratch / "source"
        for store in (self.base, self.source):
            self.ckptfs("init", store)
        for seed in ("1", "2", "3"):
            folder = self.scratch / seed
            folder.mkdir()
            self.files[seed] = digests(trees.fill(folder, seed=seed, files=2))
            self.ckptfs("save", self.source if seed == "3" else self.base, folder, seed)
        self.ckptfs("rm", self.base, "2")
        if name in ("index", "save without an index"):
            shutil.rmtree(self.base / "index")
        self.looker = Looker(world, look_program())

    def words(self):
        return [str(self.ckptfs), *({"STORE": str(self.store), "SOURCE": str(self.source), "FOLDER": str(self.scratch / "3")}.get(word, word) for word in self.arguments)]

    def run(self, n, how):
        """The verb with its call n so: (exit status, what it said, the calls)."""
        shutil.rmtree(self.store, ignore_errors=True)
        subprocess.run(["cp", "-a", self.base, self.store], check=True)
        error, sticky = how.rstrip("+"), "+" * how.endswith("+")
        done = subprocess.run([self.inject, self.report, self.store, str(n), f"{getattr(errno, error, error)}{sticky}", *self.words()],
                              capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr + done.stdout, self.report.read_text().splitlines()

    def listed(self):
        return {row["name"] for row in self.ckptfs.json("ls", self.store)}

    def check(self, steps):
        """The store, as a mount would find it, has these steps and no others, to the last byte."""
        seen = self.looker.ask("look", self.store)
        found = {name: {path: " ".join(what.split()[:2]) for path, what in files.items()} for name, files in seen.get("steps", {}).items()}
        assert found == {name: self.files[seed] for name, seed in steps.items()}, seen.get("error", "a step is not what it was")

    def trial(self, n, how):
        """What the verb said, without what differs from trial to trial."""
        status, said, calls = self.run(n, how)
        there = self.listed()
        done = there == set(self.after) if self.after != BEFORE else status == 0
        assert status in (0, 1) or (status == KILLED and how == "kill"), f"it ended with {status}"
        assert there in (set(BEFORE), set(self.after)), f"there are {there}"
        assert status != 0 or done, "it has not done what it said"
        assert status != 1 or not done or "Input/output error" in said or "in the trash by now" in said, f"it has done what it said it could not: {said}"
        assert status != 1 or said.startswith(("ckptfs: ", "index")), f"it says no reason: {said!r}"
        assert not [call for call in calls if call.startswith("!!") and "/index/" not in call], "a file was fsynced again after its fsync failed"
        if status == 1 and "+" not in how:
            assert self.ckptfs.json("sessions", self.store) == [], "it has left a session"
        assert status != 1 or "hint: " in said or "problems" in said, f"it does not say what to do: {said}"
        if not done:
            again = subprocess.run(self.words(), capture_output=True, text=True, timeout=60, check=False)
            assert again.returncode == 0, f"the next attempt: {again.stderr}"
        self.check(self.after)
        return status, said.replace(str(self.scratch), "")


def sample(points, dice):
    """Of the points, some: of each way one, of kills a fifth, else a verb might have none."""
    dice.shuffle(points)
    first = {how: (n, how) for n, how in points}.values()
    kills = [point for point in points if point[1] == "kill"][:SAMPLE // 5]
    chosen = list(dict.fromkeys([*first, *kills, *(point for point in points if point[1] != "kill")]))
    return chosen[:SAMPLE]


@pytest.mark.parametrize("name", VERBS)
def test_call_that_fails_or_is_the_last_leaves_the_old_or_the_new(world, client, capsys, name):
    trials = Trials(world, name, client("inject"))
    status, said, calls = trials.run(0, "kill")
    assert status == 0, said
    trials.check(trials.after)
    points = [(n, way) for n, call in enumerate(calls, 1) for way in ways(call.split()[0])]
    assert len(calls) > CALLS_LEAST, calls
    ends = Counter()
    for n, how in points if LONG else sample(points, random.Random(f"{SEED} {name}")):
        try:
            status, _ = trials.trial(n, how)
        except (AssertionError, subprocess.TimeoutExpired) as e:
            raise AssertionError(f"seed {SEED}, call {n} of {len(calls)}, {calls[n - 1]}: {how}: {e}") from e
        ends[{0: "done", 1: "failed", KILLED: "killed"}[status]] += 1
    assert ends["failed"] and ends["killed"], f"no fault came to anything: {dict(ends)}"
    with capsys.disabled():
        print(f"{name}: {len(calls)} calls, {sum(ends.values())} of {len(points)} faults: {dict(ends)}", flush=True)
