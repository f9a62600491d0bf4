"""A mount under the address and undefined behaviour sanitizers: what clients hand in, and what is made of it.

Two threads at once are for the thread sanitizer (test_tsan.py): hardly a test is here and there.
"""

import pytest

from support import sanitized
from support.fixtures import FULL, SLOW

PART = ["test_main_job.py::test_step_is_written_committed_listed_and_read_back",
        "test_main_job.py::test_attributes_links_and_names_survive_the_commit_and_a_remount", "test_main_job.py::test_committed_step_cannot_be_changed",
        "test_commit_rename.py::test_rename_of_a_staged_step_into_another_moves_its_tree_there", "test_contract.py"]
ALL = ["test_contract.py", "test_bad_input.py", "test_begin.py", "test_convert.py", "test_main_job.py", PART[-2], "test_seal.py"]


@pytest.mark.skipif(SLOW > 1, reason="this is a sanitizer build already: all other tests do the same")
@pytest.mark.timeout(280)
def test_mounts_read_and_free_nothing_wrongly(capsys):
    sanitized.build("asan", "ckptfs")
    sanitized.run_mounts("asan", ALL if FULL else PART, capsys)
