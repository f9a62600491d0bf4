"""A part of the other files' tests, with the programs of a sanitizer's build.

tests/run --preset asan runs all of them so; this is how the other runs have a part of it. The reports of a daemon fail the test
that mounted it (scratch in support/fixtures.py).
"""

import os
import subprocess
import sys

from support.fixtures import SOURCE

FOLDER = SOURCE / "tests/fs"


def _must(command, **kwargs):
    done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout


def build(preset, *programs):
    _must(["cmake", "--preset", preset])
    _must(["cmake", "--build", "--preset", preset, "--target", *programs])


def run_mounts(preset, tests, capsys, *options):
    environment = dict(os.environ, CKPTFS=str(SOURCE / "build" / preset / "ckptfs"))
    for name in ("CKPT_TEST_FULL", "CKPT_TEST_LONG"):  # ten times as long, by their slowness, they run anyway
        environment.pop(name, None)
    said = _must([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", FOLDER.parent, "-ra", *options,
                  *(FOLDER / test for test in tests)], env=environment)
    print(said[-8000:])
    with capsys.disabled():  # tests/run gathers them from our output
        print("", *(f"{line} [{preset}]" for line in said.splitlines() if line.startswith("SKIPPED")), sep="\n")


def run_programs(preset, programs):
    """C tests."""
    for program in programs:
        print(_must([SOURCE / "build" / preset / "tests" / program], env=dict(os.environ, CK_DEFAULT_TIMEOUT="600")))
