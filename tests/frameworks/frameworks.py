"""The frameworks, what each does last, and how its driver is run."""

import fnmatch
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Framework:
    title: str                 # in the table of README.md
    driver: str                # drivers/NAME.py
    package: str
    name: str                  # of a step, with {} for its number
    profile: str = ""          # as `ckptfs info` has them; none: the step is one file
    event: str = ""
    variant: str = ""
    ranks: int = 1
    load_ranks: int = 1
    at: str = "."              # where the steps are, below the folder that the driver is given
    late: tuple = ()           # what may come after the event
    any_name: str = ""         # the event of a step whose name has no step form: empty where the framework has no such save
    half: str = ""             # the name of a step's folder that is being written, where it is another one
    trains: bool = True        # its driver's `train` saves in the way that the row is about
    stumbles: bool = False     # its next save fails over what a killed one left, here as on any filesystem
    tracker: str = ""          # the file from which it resumes, when that is written after the event
    wants: str = ""            # what may come after the event, and without which it does not resume from a step
    keeps: tuple = (4, 5)      # of the steps 1 to 5, when it is told to keep two
    passing: str = ""          # names like those of its steps, of plain folders in which it writes before
    replayed: bool = False     # its driver does what the framework's source says: it cannot be installed here
    settles: float = 0.0       # complete it is so long after its last change (CKPT_SETTLE_NS, and the time of a look)
    seconds: tuple = ()        # quiet: how long its first step, and the later ones, are not listed after their last change

    def __str__(self):
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    @property
    def version(self):
        return version(self.package) if self.package else ""

    @property
    def pattern(self):
        """Of the names that a listing may show for steps of its."""
        return re.sub(r"\{[^}]*\}", "[0-9]*", self.name) if self.name != "{}" or self.tracker else "*"

    @property
    def home(self):
        """The folder that its driver is given. Numbers that have no last act are steps in a folder `checkpoints`, and not in any other."""
        return "checkpoints" if self.name == "{}" and self.event == "quiet" else "run"

    def step(self, n):
        return self.name.format(n)

    def number(self, name):
        before, _, after = re.split(r"(\{.*\})", self.name)
        # Lightning saves beside what a killed run has left, under a name with a version.
        return int(re.fullmatch(re.escape(before) + r"(\d+)(-v\d+)?" + re.escape(after), name)[1])

    def listed(self, folder):
        """Numbers of the steps that a listing shows."""
        folder = Path(folder) / self.at
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(self.number(n) for n in fnmatch.filter(names, self.pattern) if not fnmatch.fnmatch(n, self.passing))

    def newest(self, folder):
        """The step from which the next run goes on, as its own rules say: a string, as it says it."""
        listed = [n for n in self.listed(folder) if not self.wants or (Path(folder) / self.at / self.step(n) / self.wants).exists()]
        if not self.tracker or not (Path(folder) / self.tracker).exists():
            return str(listed[-1])
        said = tracked(Path(folder) / self.tracker)
        assert int(said) in listed[-2:], f"{self.tracker} names {said}, and listed are {listed}"
        return said


def tracked(path):
    """The step that a tracker names, or that a file is a copy of."""
    if path.suffix != ".pt":
        return path.read_text(encoding="utf-8")
    import torch
    return str(torch.load(path)["step"].item())


class Job:
    """A driver at work, in one process or several. `said` has its lines, with when they came."""

    def __init__(self, world, framework, command, folder, *rest, ranks=None):
        ranks = ranks or framework.ranks
        self.framework, self.said = framework, []
        self._log = world.scratch / f"driver-{time.monotonic_ns()}.log"
        base = dict(os.environ, VARIANT=framework.variant, WORLD_SIZE=str(ranks), RENDEZVOUS=f"{self._log}.rendezvous", PYTHONDONTWRITEBYTECODE="1",
                    HOME=str(world.scratch))
        argv = [sys.executable, str(HERE / "drivers" / f"{framework.driver}.py"), command, str(folder), *map(str, rest)]
        self.processes = []
        for rank in range(ranks):
            with open(self._log, "ab") as log:
                p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log if rank else subprocess.PIPE, stderr=log, text=True,
                                     env=base | {"RANK": str(rank)}, start_new_session=True, cwd=world.scratch)
            self.processes.append(p)
        world.callback(self.kill)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.processes[0].stdout:
            self.said.append((time.monotonic(), line.strip()))

    def kill(self):
        """All of its processes and what they forked, at once."""
        for p in self.processes:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for p in self.processes:
            p.wait(60)
        self._reader.join(20)

    def wait(self, timeout=200):
        """Until all have ended, well."""
        deadline = time.monotonic() + timeout
        for p in self.processes:
            try:
                p.wait(max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{self.framework.driver} has not ended within {timeout} s\n{self.log()}") from None
        self._reader.join(20)
        time.sleep(self.framework.settles)
        assert not any(p.returncode for p in self.processes), f"{[p.returncode for p in self.processes]}\n{self.log()}"
        return self

    def log(self):
        text = self._log.read_text(errors="replace")
        return "\n".join([*(line for _, line in self.said), text[-5000:]])

    def wait_for(self, line, timeout=120):
        """When it said this; None when it ended without."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.processes[0].poll() is not None
            for when, said in list(self.said):
                if said == line:
                    return when
            if ended:
                return None
            assert time.monotonic() < deadline, f"{self.framework.driver} did not say {line!r}\n{self.log()}"
            time.sleep(0.002)

    def words(self, first):
        """What it said after this word, line by line."""
        return [said.split(" ", 1)[1] for _, said in self.said if said.startswith(first + " ")]


def run(world, framework, command, folder, *rest, ranks=None):
    if ranks is None and command.startswith("load"):
        ranks = framework.load_ranks
    return Job(world, framework, command, folder, *rest, ranks=ranks).wait()
