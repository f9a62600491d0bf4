"""A mount under the sanitizer builds: the daemon of build/asan and build/tsan serves a part of the other files' tests.

tests/run --preset asan runs all of them so; this file is how the default suite has a taste of it. The reports of a
daemon fail the test that mounted it (scratch in support/fixtures.py).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.fixtures import FULL, SLOW, SOURCE

# One of each kind: what a mount does in its life, with threads at work on one step.
TASTE = ["test_contract.py", "test_main_job.py::test_step_is_written_committed_listed_and_read_back", "test_main_job.py::test_many_writers_at_once_in_one_step",
         "test_main_job.py::test_attributes_links_and_names_survive_the_commit_and_a_remount", "test_main_job.py::test_committed_step_cannot_be_changed",
         "test_commit_writers.py::test_leftover_of_a_fork_is_committed_as_a_private_copy_and_cannot_change_it",
         "test_commit_rename.py::test_rename_of_a_staged_step_into_another_moves_its_tree_there",
         "test_commit_signals.py::TestLongWait::test_what_changes_the_step_waits_for_the_commit_and_then_finds_it_committed",
         "test_crash.py::test_unfinished_step_is_kept_offered_and_its_name_is_free"]
ALL = ["test_contract.py", "test_reopen.py", "test_convert.py", "test_begin.py", "test_main_job.py", "test_commit_rules.py", "test_commit_signals.py", "test_commit_writers.py", "test_commit_rename.py", "test_crash.py", "test_bad_input.py", "test_mount.py"]


@pytest.mark.skipif(SLOW > 1, reason="this is a sanitizer build already: all other tests do the same")
@pytest.mark.parametrize("preset", ["asan", "tsan"])
@pytest.mark.timeout(280)
def test_mounts_under_sanitizers_report_nothing(preset, capsys):
    log = subprocess.run(["cmake", "--preset", preset], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert log.returncode == 0, log.stdout[-3000:] + log.stderr[-3000:]
    log = subprocess.run(["cmake", "--build", "--preset", preset, "--target", "ckptfs"], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert log.returncode == 0, log.stdout[-3000:] + log.stderr[-3000:]
    program = SOURCE / "build" / preset / "ckptfs"
    environment = dict(os.environ, CKPTFS=str(program))
    environment.pop("CKPT_TEST_FULL", None)  # ten times as long, by their slowness, they run anyway
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", here.parent, "-ra",
                           *(here / t for t in (ALL if FULL else TASTE))], cwd=here, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout[-8000:], done.stderr[-4000:])
    with capsys.disabled():  # tests/run gathers them from our output
        print("", *(f"{line} [{preset}]" for line in done.stdout.splitlines() if line.startswith("SKIPPED")), sep="\n")
    assert done.returncode == 0
