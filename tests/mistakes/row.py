"""A mistake chosen by hand, as by_hand.py and by_hand_mount.py list them, and the suites that many of them name."""

import dataclasses


@dataclasses.dataclass
class Row:
    name: str
    where: str  # FILE:FUNCTION
    old: str    # its tokens stand there exactly once
    new: str
    suites: tuple  # tried in this order until one fails; FILE::TEST is one test of a pytest file


CRASH = "crash_test_commit"
FAULTS = "test_commit_faults"
CRASH_GC = "crash_test_gc"
DELETE_FAULTS = "test_delete_faults"
AMEND_FAULTS = "test_amend_faults"
GC_FAULTS = "test_gc_faults"
SHARED = ("test_shared", "test_shared_random", "test_shared_store", "test_shared_drop")
MODEL_PUSH, MODEL_ORDER, MODEL_PULL, MODEL_AMEND = (f"test_model_{name}" for name in ("push", "order", "pull", "amend"))
