"""A copy of the tree, built once; a mistake in it rebuilds one file and the programs that are asked for."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from mistake import Wrong

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ["CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "core", "backends", "tools", "tests", "fs"]
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# What a pytest file needs besides ckptfs: this one installs all there is.
ALSO = {"test_fs_library": ("libckptfs", "man")}
C_LABELS = ("unit", "contract", "model", "fuzz", "crash")
# What a program takes without a mistake, five times, and this: a mistake may make it wait for ever.
LIMIT_MORE = 20
# Shorter loops than the tests' own, a mistake that only the full ones see would be seen too seldom; but each call in them.
ENVIRONMENT = {"CKPT_CRASH_SEEDS": "4", "CKPT_CRASH_STRIDE": "1", "CKPT_FUZZ_SECONDS": "0", "CK_FORK": "yes", "CK_TAP_LOG_FILE_NAME": "-",
               "PYTEST_ADDOPTS": "-x", "PYTHONDONTWRITEBYTECODE": "1"}


TIME_LIMIT = "time limit"


class NotBuilt(Exception):
    """It does not compile: the end of what was printed."""


class Tree:
    def __init__(self, folder):
        self.root = folder / "tree"
        self.build = folder / "build"
        self.limits = {}
        self.root.mkdir()
        for name in PARTS:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, self.root / name)
        run(["cmake", "-G", "Ninja", "-S", self.root, "-B", self.build, "-DCMAKE_BUILD_TYPE=Debug",
             f"-DCKPT_DEPS_DIR={ROOT / 'build/deps'}", f"-DCKPT_PYTHON={ROOT / 'build/venv/bin/python'}",
             f"-DCKPT_SERVERS_VENV={ROOT / 'build/servers-venv'}"])
        self.tests = self.listed()

    def listed(self):
        """What ctest knows of each suite, by name."""
        known = json.loads(run(["ctest", "--test-dir", self.build, "--show-only=json-v1"]))
        return {test["name"]: test for test in known["tests"]}

    def c_programs(self):
        """All of them; those that are about one thing first."""
        programs = [name for name in self.tests if self.property(name, "LABELS")[0] in C_LABELS]
        return sorted(programs, key=lambda name: C_LABELS.index(self.property(name, "LABELS")[0]))

    def property(self, suite, name):
        return next(p["value"] for p in self.tests[whole(suite)]["properties"] if p["name"] == name)

    def make(self, suite):
        is_c = self.property(suite, "LABELS")[0] in C_LABELS
        targets = [whole(suite)] if is_c else ["ckptfs", *ALSO.get(whole(suite), ())]  # what pytest starts
        run(["cmake", "--build", self.build, "--parallel", str(min(2, os.cpu_count() or 1)), "--target", *targets])
        if "command" not in self.tests[whole(suite)]:
            self.tests = self.listed()  # it tells of programs that are there
        if "command" not in self.tests[whole(suite)]:
            raise Wrong(f"{suite} has no program\nhint: tests/run mistakes makes build/venv, too")

    def is_sound(self, suite):
        """None when it passes without a mistake: what it takes then limits it. Else the test that failed."""
        if suite not in self.limits:
            self.make(suite)
            self.limits[suite] = 600
            began = time.monotonic()
            failed = self.test(suite)
            if failed:
                del self.limits[suite]
                return failed
            self.limits[suite] = 5 * (time.monotonic() - began) + LIMIT_MORE
        return None

    def test(self, suite):
        """None when it passes, else the test that failed first: nothing is run after it."""
        # Where it is ended, nobody else removes what it made.
        with tempfile.TemporaryDirectory(prefix="ckptfs-mistakes-", dir=SCRATCH, ignore_cleanup_errors=True) as scratch:
            return self.test_in(scratch, suite)

    def test_in(self, scratch, suite):
        limit = self.limits[suite]
        environment = {**os.environ, **dict(pair.split("=", 1) for pair in self.property(suite, "ENVIRONMENT")),
                       **ENVIRONMENT, "CK_DEFAULT_TIMEOUT": str(int(limit / 2)), "CKPT_TEST_TMP": scratch}
        for name in ("CKPT_TEST_FULL", "CKPT_TEST_LONG"):
            environment.pop(name, None)
        command = list(self.tests[whole(suite)]["command"])
        if "::" in suite:
            command += ["-k", suite.partition("::")[2]]
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", env=environment, cwd=self.build, start_new_session=True)
        watch = threading.Timer(limit, end_session, [process.pid])
        watch.start()
        try:
            failed = next(filter(None, map(failed_in, process.stdout)), None)  # one is enough
            late = time.monotonic() - began >= limit
            if not failed:
                process.wait()
        finally:
            watch.cancel()
            watch.join()
            if process.returncode is None:
                end_session(process.pid)
            process.communicate()
        if failed or late:
            return failed or TIME_LIMIT
        return f"exit status {process.returncode}" if process.returncode else None

    def plant(self, mistake):
        """Returns what mends it again."""
        path = self.root / mistake.file
        text = path.read_text()
        path.write_text(mistake.planted(text))
        return lambda: path.write_text(text)


def whole(suite):
    """Of NAME::CASE, one test of a pytest file, the file's."""
    return suite.partition("::")[0]


def end_session(leader):
    """Check runs each test in a process group of its own. The leader goes first: it would begin another."""
    left = [leader]
    while left:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        left = [pid for pid in members(leader) if pid != leader]


def members(session):
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, *numbers = stat.read_text().rpartition(")")[2].split()
            if int(numbers[2]) == session and state != "Z":
                yield int(stat.parent.name)


def failed_in(line):
    """The name of the test that failed, where a line of the output says so."""
    if line.startswith("not ok "):  # Check's, in the TAP that it writes as it goes
        name = line.split(":")[2]
        return name + (f" ({TIME_LIMIT})" if "timeout expired" in line else "")
    if line.startswith(("FAILED ", "ERROR ")) and "::" in line:  # pytest's
        return line.strip().partition("::")[2].partition(" - ")[0]
    return None


def run(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        raise NotBuilt(done.stdout[-3000:])
    return done.stdout
