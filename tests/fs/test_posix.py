"""What POSIX and Linux say of files, as the plain filesystem does it: every case of cases/ runs there and in a mount.

What a mount answers must be what the disk's own filesystem answers, to the last value. The exceptions are in
posix_differences.md, each with its reason; one that does not occur any more fails, too.
"""

import fnmatch
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.fixtures import SLOW, scratch_folder
from support.mounting import Mount, World

HERE = Path(__file__).resolve().parent
RUN = HERE / "cases/run.py"
# Where the cases run: words that the list of differences uses, the mode of the mount, and the folder in it.
PLACES = {
    "staged passthrough": ("passthrough", "1000"),
    "plain passthrough": ("passthrough", "plain"),
    "staged daemon": ("daemon", "1000"),
    "plain daemon": ("daemon", "plain"),
}

pytestmark = pytest.mark.timeout(120)


def _names():
    code = "import run; print('\\n'.join(run.CASES))"
    return subprocess.run([sys.executable, "-c", code], cwd=RUN.parent, check=True, capture_output=True, text=True).stdout.split()


NAMES = _names()


class Difference:
    """A row of the list: | case | what | where | plain | mount | why |, of which the first two may be patterns."""

    def __init__(self, row):
        self.case, self.label, self.where, self.plain, self.ours = (cell.strip("` ") for cell in row[:5])

    def is_of(self, place, case, label):
        here = self.where == "everywhere" or set(self.where.split()) <= set(place.split())
        return here and fnmatch.fnmatchcase(case, self.case) and fnmatch.fnmatchcase(label, self.label)

    def __str__(self):
        return f"{self.case}: {self.label}, {self.where}: {self.plain} / {self.ours}"


def _differences():
    rows = [line.strip().strip("|").split(" | ") for line in (HERE / "posix_differences.md").read_text().splitlines() if line.startswith("| `")]
    assert rows and all(len(row) == 6 and len(row[5]) > 20 for row in rows)
    return [Difference([cell.strip() for cell in row]) for row in rows]


DIFFERENCES = _differences()


class Places:
    """What the cases say in each place; a place is run when it is first asked for."""

    def __init__(self, ckptfs, scratch):
        self._ckptfs, self._scratch, self._said = ckptfs, scratch, {}
        kind = subprocess.run(["stat", "-f", "-c", "%T", scratch], check=True, capture_output=True, text=True).stdout.strip()
        # The list was made by root on ext4: elsewhere some of it does not differ.
        self.strict = kind == "ext2/ext3" and os.geteuid() == 0

    def said(self, place):
        if place not in self._said:
            self._said[place] = self._run(place)
        return self._said[place]

    def _run(self, place):
        if place == "disk":
            folder = self._scratch / "disk"
            folder.mkdir()
            return self._cases(folder)
        mode, folder = PLACES[place]
        with World(self._ckptfs, self._scratch, time.monotonic() + 90 * SLOW) as world:
            path = self._scratch / f"mnt-{mode}-{folder}"
            mount = Mount.new(world, self._scratch / f"store-{mode}-{folder}", path, mode=mode)
            (mount / folder).mkdir()
            said = self._cases(mount / folder)
            assert (folder in mount.listing()) == (folder == "plain")
            assert not [line for line in mount.errors() if "choose another name" not in line]
            return said

    @staticmethod
    def _cases(folder):
        environment = dict(os.environ, CKPT_CASE_SECONDS=str(20 * SLOW))
        done = subprocess.run([sys.executable, RUN, folder], check=True, capture_output=True, text=True, env=environment)
        return {one["case"]: one["said"] for one in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def places(ckptfs):
    with scratch_folder() as scratch:
        yield Places(ckptfs, scratch)


@pytest.mark.parametrize("place", [pytest.param(p, marks=pytest.mark.skipif("passthrough" in p and os.geteuid() != 0, reason="only root has passthrough"))
                                   for p in PLACES])
@pytest.mark.parametrize("case", NAMES)
def test_a_mount_answers_as_the_disk_does(places, place, case):
    plain, ours = places.said("disk")[case], places.said(place)[case]
    assert "raised" not in plain, plain["raised"]
    assert "raised" not in ours, ours["raised"]
    wrong = []
    for label in plain | ours:
        got = plain.get(label, "nothing"), ours.get(label, "nothing")
        listed = [d for d in DIFFERENCES if d.is_of(place, case, label)]
        assert len(listed) <= 1, f"{case}: {label} is listed twice"
        if listed and got != (listed[0].plain, listed[0].ours) and (places.strict or got[0] != got[1]):
            wrong.append(f"listed otherwise: {listed[0]}\n  plain {got[0]}\n  mount {got[1]}")
        elif not listed and got[0] != got[1]:
            wrong.append(f"{label}\n  plain {got[0]}\n  mount {got[1]}")
    assert not wrong, "\n".join(wrong)


def test_what_is_listed_is_of_a_case_and_linked(places):
    said = places.said("disk")
    for one in DIFFERENCES:
        assert any(one.is_of(place, case, label) for place in PLACES for case in said for label in said[case]), f"no such case: {one}"
    readme = (HERE.parents[1] / "README.md").read_text()
    assert re.search(r"tests/fs/posix_differences\.md", readme)
