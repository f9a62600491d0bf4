"""Cases of fs/cases/ run on the disk and in mounts, and what they say compared."""

import fnmatch
import json
import os
import subprocess
import sys
import time

import pytest

from support.fixtures import SLOW, SOURCE
from support.mounting import Mount, World

FS = SOURCE / "tests/fs"
RUN = FS / "cases/run.py"


class Difference:
    """A row of the list: | case | what | where | plain | mount | why |, of which the first two may be patterns."""

    def __init__(self, row):
        self.case, self.label, self.where, self.plain, self.ours = (cell.strip("` ") for cell in row[:5])

    def is_of(self, place, case, label):
        here = self.where == "everywhere" or set(self.where.split()) <= set(place.split())
        return here and fnmatch.fnmatchcase(case, self.case) and fnmatch.fnmatchcase(label, self.label)

    def of_any(self, names):
        return bool(fnmatch.filter(names, self.case))

    def __str__(self):
        return f"{self.case}: {self.label}, {self.where}: {self.plain} / {self.ours}"


def _differences():
    rows = [line.strip().strip("|").split(" | ") for line in (FS / "posix_differences.md").read_text().splitlines() if line.startswith("| `")]
    assert rows and all(len(row) == 6 and len(row[5]) > 20 for row in rows)
    return [Difference([cell.strip() for cell in row]) for row in rows]


DIFFERENCES = _differences()


def names_of(suite):
    """The cases of a suite of run.py."""
    code = f"import run; print('\\n'.join(run.load({suite!r})))"
    return subprocess.run([sys.executable, "-c", code], cwd=RUN.parent, check=True, capture_output=True, text=True).stdout.split()


class Places:
    """What the cases say in each place; a place is run when it is first asked for."""

    def __init__(self, ckptfs, scratch, places, arguments=()):
        self._ckptfs, self._scratch, self._places, self._arguments = ckptfs, scratch, places, arguments
        self._said = {}
        kind = subprocess.run(["stat", "-f", "-c", "%T", scratch], check=True, capture_output=True, text=True).stdout.strip()
        # The list was made by root on ext4: elsewhere some of it does not differ.
        self.strict = kind == "ext2/ext3" and os.geteuid() == 0

    def said(self, place):
        if place not in self._said:
            self._said[place] = AssertionError(f"the cases could not be run: {place}")  # once is enough
            self._said[place] = self._places.get(place, Places._on_disk)(self, place)
        if isinstance(self._said[place], AssertionError):
            pytest.fail(str(self._said[place]), pytrace=False)
        return self._said[place]

    def _on_disk(self, place):
        folder = self._scratch / place
        folder.mkdir()
        return self.cases(folder)

    def mounted(self, world, place, **kwargs):
        name = place.replace(" ", "-")
        return Mount.new(world, self._scratch / f"store-{name}", self._scratch / f"mnt-{name}", mode=place.split()[-1], **kwargs)

    def world(self):
        return World(self._ckptfs, self._scratch, time.monotonic() + 90 * SLOW)

    def cases(self, folder, *arguments):
        environment = dict(os.environ, CKPT_CASE_SECONDS=str(20 * SLOW), PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run([sys.executable, RUN, *self._arguments, *arguments, folder], check=True, capture_output=True, text=True, env=environment)
        return {one["case"]: one["said"] for one in map(json.loads, done.stdout.splitlines())}

    def compare(self, place, case):
        """Fails unless the mount says what the disk says, but for what is listed."""
        plain, ours = self.said("disk")[case], self.said(place)[case]
        assert "raised" not in plain, plain["raised"]
        assert "raised" not in ours, ours["raised"]
        wrong = []
        for label in plain | ours:
            got = plain.get(label, "nothing"), ours.get(label, "nothing")
            listed = [d for d in DIFFERENCES if d.is_of(place, case, label)]
            assert len(listed) <= 1, f"{case}: {label} is listed twice"
            if listed and got != (listed[0].plain, listed[0].ours) and (self.strict or got[0] != got[1]):
                wrong.append(f"listed otherwise: {listed[0]}\n  plain {got[0]}\n  mount {got[1]}")
            elif not listed and got[0] != got[1]:
                wrong.append(f"{label}\n  plain {got[0]}\n  mount {got[1]}")
        assert not wrong, "\n".join(wrong)
