"""kill -9 of the daemon under four clients that save, change and delete steps in all ways, and one that reads: nobody hangs, the mount is back
within 5 s, all that was acknowledged is there, and of what was under way all or nothing.

54 kills, and six of test_crash.py; with CKPT_TEST_FULL=1 450 and 50, with CKPT_TEST_LONG=1 too 1,800 and 200; under a sanitizer 18.
CKPT_TEST_SEED=N has other moments.
"""

import errno
import os
import random
import shutil
import time

import pytest

from support.acts import see
from support.fixtures import FULL, LONG, SLOW, SOURCE, all_modes
from support.judge import judge
from support.mounting import errno_name

pytestmark = pytest.mark.timeout(140)

KILLS = 6 if SLOW > 1 else 600 if LONG else 150 if FULL else 18
SEED = os.environ.get("CKPT_TEST_SEED", "1")
BACK = 5 * SLOW  # seconds until the mount is back
TOLD = 30 * SLOW  # until a client counts as stuck: they all want the processor
FOLDERS = [[""], ["a/"], ["b/"], ["c/", "c/d/"]]  # of each client
ALL_FOLDERS = sum(FOLDERS, [])
DEAD = ("ENOTCONN", "ECONNABORTED", "EIO", "EINTR", "ECANCELED")  # the last three: of requests that the kernel was just handing over

BEGIN = """
import sys
from pathlib import Path
sys.dont_write_bytecode = True
sys.path.insert(0, tests)
from support.acts import Client, Record
from support.mounting import Program
record = Record(time.monotonic_ns)
client = Client(seed, Path(mount), store, Program(program), record, folders, 10**9)
"""
WORK = """
record.acts.clear()
client.run()
time.monotonic_ns(), str(client.problem), getattr(client.problem, "errno", None), record.acts
"""
# The client goes on from what is there now.
SETTLE = """
for act in record.acts:
    for path, files in act["steps"].items() if act["end"] is None else []:
        if files is None and path not in steps and len(act["steps"]) == 1:
            client.trash[path] = client.steps[path]
        elif files is not None and steps.get(path) == files:
            client.trash.pop(path, None)
client.steps, client.trackers = steps, {path for path in plain if path.endswith("newest.txt")}
"""
READ = """
while True:
    os.stat(top)
    for at, folders, names in os.walk(top):
        for name in names:
            try:
                open(os.path.join(at, name), "rb").read()
            except (FileNotFoundError, IsADirectoryError):
                pass
"""


class Worker:
    """One of the clients, in a process of its own that outlives the daemons, and its record."""

    def __init__(self, agent, seed, mount, folders):
        self._agent, self.folders = agent, folders
        self._agent.run(BEGIN, tests=str(SOURCE / "tests"), seed=seed, mount=str(mount.path), store=str(mount.store), program=str(mount.world.program), folders=folders)
        self.acts = []  # what was so after the last kill, and all since

    def start(self):
        self._agent.start(WORK)

    def wait(self, killed_ns):
        """Until it was told that the daemon is dead."""
        ended_ns, problem, error, acts = self._agent.result(TOLD)
        assert ended_ns > killed_ns, f"it failed while the daemon lived: {acts[-1]['what']}: {problem}"
        assert error is None or errno.errorcode[error] in DEAD, f"{acts[-1]['what']}: {problem}"  # None: a verb says it in its words
        self.acts += [act | {"durable": True} for act in acts]  # to a kill all is durable that was written

    def settle(self, seen):
        """What is there is so from now on."""
        mine = {kind: {path: what for path, what in seen[kind].items() if os.path.dirname(path) in [f.rstrip("/") for f in self.folders]}
                for kind in ("steps", "plain")}
        self._agent.run(SETTLE, **mine)
        self.acts = [{"what": "before", "begin": 0, "end": 0, "durable": True, "new": [], **mine}]


def drop_interrupted(mount, seen):
    """Each session is reached by its name, and removed as before a save anew."""
    for session in mount.status()["staged"]:
        assert session["state"] == "left" or session["name"] not in seen["steps"], f"{session['name']} is a step"
        if session["state"] != "left":
            shutil.rmtree(mount / session["name"])


class Kills:
    """The loop of the test, and what it has counted."""

    def __init__(self, mount, agent, seed):
        self.mount, self.dice, self.reader = mount, random.Random(seed), agent()
        for folder in ALL_FOLDERS[1:]:
            (mount / folder).mkdir()
        self.workers = [Worker(agent(), f"{seed} {folders[0]}", mount, folders) for folders in FOLDERS]
        self.kills = self.acts = self.under_way = self.came_through = 0
        self.told = self.back = 0.0  # the slowest, in seconds

    def round(self):
        for worker in self.workers:
            worker.start()
        self.reader.start(READ, top=str(self.mount.path))
        time.sleep(self.dice.uniform(0.05, 0.7) * SLOW)
        self._kill()
        self._come_back()
        seen = see(self.mount.path, ALL_FOLDERS)
        judge(sum((worker.acts for worker in self.workers), []), time.monotonic_ns(), seen)
        drop_interrupted(self.mount, seen)
        for worker in self.workers:
            self._count(worker.acts[1:], seen)
            worker.settle(seen)

    def _kill(self):
        killed_ns = time.monotonic_ns()
        self.mount.die()
        self.kills += 1
        for worker in self.workers:
            worker.wait(killed_ns)
        with pytest.raises(OSError) as e:
            self.reader.result(TOLD)
        assert errno_name(e.value) in DEAD
        self.told = max(self.told, (time.monotonic_ns() - killed_ns) / 1e9)

    def _come_back(self):
        if self.dice.random() < 0.2:  # not at once: it is killed again on its way
            self._unmount()
            self.mount.start_and_die(self.dice.uniform(0, 0.1))
            self.kills += 1
        began = time.monotonic()
        self._unmount()
        self.mount.start()
        self.back = max(self.back, time.monotonic() - began)

    def _unmount(self):
        self.mount.world.program("umount", "--dead", self.mount.path)

    def _count(self, acts, seen):
        cut_off = [act for act in acts if act["end"] is None]
        self.acts += len(acts)
        self.under_way += len(cut_off)
        self.came_through += sum(bool(act["steps"]) and all(seen["steps"].get(path) == files for path, files in act["steps"].items()) for act in cut_off)


@pytest.fixture
def options():
    return ["seal=yes"]  # and of what is sealed behind, too


@all_modes
def test_daemon_killed_under_four_writers_is_back_at_once_and_loses_nothing(mount, agent, ckptfs, mode, capsys):
    loop = Kills(mount, agent, f"{SEED} {mode}")
    while loop.kills < KILLS:
        loop.round()
    assert ckptfs.json("verify", "--read-data", mount.store)["bad"] == []
    assert loop.came_through > 0 or KILLS < 100, "no kill was in an act's last moments"
    assert loop.back < BACK
    with capsys.disabled():
        print(f"{mode}: {loop.kills} kills, {loop.acts} acts, of {loop.under_way} cut off {loop.came_through} had come through; "
              f"clients were told after {loop.told:.2f} s, the mount was back after {loop.back:.2f} s, at most", flush=True)
