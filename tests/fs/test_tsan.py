"""A mount under the thread sanitizer: a few tests in which many write, or who waits meets who changes. With CKPT_TEST_FULL=1 its
daemon is killed by test_crash.py and under four writers by test_kill.py, a model of the name space goes through all that can be
done, and the C tests in which threads meet are run. The build asserts the order of locks, as all but release do (core/base/lock.h).
"""

import pytest

from support import sanitized
from support.fixtures import FULL, SLOW

PROGRAMS = ["test_backend_threads", "test_indexer", "test_move", "test_seal", "test_seal_readers"]
PART = ["test_main_job.py::test_many_writers_at_once_in_one_step", "test_model.py::test_what_failed_once",
        "test_commit_writers.py::test_leftover_of_a_fork_is_committed_as_a_private_copy_and_cannot_change_it",
        "test_commit_signals.py::TestLongWait::test_what_changes_the_step_waits_for_the_commit_and_then_finds_it_committed",
        "test_crash.py::test_unfinished_step_has_its_name_in_the_next_mount_and_is_gone_on_with"]
ALL = ["test_model.py", "test_crash.py", "test_commit_writers.py", "test_seal.py", *PART[:1], *PART[3:4],
       "test_should_save.py::test_eight_processes_half_of_them_verbs_get_one_answer", "test_should_save.py::test_retention_beside_readers",
       "test_hook.py::test_its_failure_is_a_line_in_errors", "test_temporary.py::test_the_last_temporary_step_alone_survives_the_next_commit"]
# Of tests that go two ways: with passthrough the kernel does what the daemon's threads do without. The model has it.
ONCE = ["-k", "not passthrough"]
# Over io_uring a FORGET comes on another queue than the reply before it, in an order that only the kernel knows of: reports of
# what is none. Clients that look up as these do meet it.
KILLS = ["test_kill.py"], ["-k", "not passthrough and not uring"]


@pytest.mark.skipif(SLOW > 1, reason="this is a sanitizer build already: all other tests do the same")
@pytest.mark.timeout(900 if FULL else 280)
def test_mounts_have_no_races(capsys):
    sanitized.build("tsan", "ckptfs", *(PROGRAMS if FULL else []))
    sanitized.run_mounts("tsan", ALL if FULL else PART, capsys, *ONCE)
    if FULL:
        sanitized.run_mounts("tsan", KILLS[0], capsys, *KILLS[1])
    sanitized.run_programs("tsan", PROGRAMS if FULL else [])
