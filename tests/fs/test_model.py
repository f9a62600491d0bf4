"""Any sequence of operations leaves a mount as a plain folder would be, with the steps in it listed when they are complete.

Hypothesis makes up the sequences of operations that are possible as things stand (support/model.py), and shrinks one that
fails; what it prints then can be kept below as it is. CKPT_TEST_FULL=1 tries more, and others each time.
"""

import time

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.fixtures import FULL, LONG, SLOW, needs_root, scratch_folder
from support.model import Model
from support.mounting import World

pytestmark = [pytest.mark.timeout(240), needs_root]

# What makes things comes more often than what takes them away.
KINDS = ["begin"] * 5 + ["write"] * 6 + ["commit"] * 5 + ["link"] * 3
KINDS += 2 * ["mkdir", "append", "truncate", "rename", "carry", "move", "undelete", "from"]
KINDS += ["take", "convert", "symlink", "chmod", "setxattr", "unlink", "rmdir", "rmtree", "rm", "remount", "kill"]

# Sequences that failed once.
FOUND = {
    "verify after a move and a new file": [("mkdir", "1"), ("commit", "1"), ("move", "1", "2"), ("write", "2/d", 1)],
    "verify after an undelete and a new file": [("mkdir", "1"), ("commit", "1"), ("rmtree", "1"), ("undelete", "1"), ("write", "1/d", 1)],
    "verify after a file was taken out": [("mkdir", "1"), ("write", "1/x", 1), ("commit", "1"), ("take", "1/x")],
    "verify after a file was taken out and the step moved": [("mkdir", "1"), ("write", "1/x", 1), ("commit", "1"), ("take", "1/x"), ("move", "1", "2")],
    "one file in two trees": [("write", "x", 5000), ("mkdir", "logs"), ("link", "x", "logs/y"), ("mkdir", "1"), ("rename", "x", "1/x"), ("commit", "1"),
                              ("append", "logs/y", 1)],
    "left over, and saved anew": [("mkdir", "1"), ("kill",), ("mkdir", "1"), ("commit", "1"), ("move", "1", "2")],
    "shared when it was committed, changed after a restart": [("mkdir", "1"), ("write", "1/x", 70_000), ("commit", "1"), ("rename", "1/x", "1/d"),
                                                              ("commit", "1"), ("kill",), ("append", "1/d", 5000)],
    "of two names one was taken out": [("mkdir", "1"), ("write", "1/y", 1), ("link", "1/y", "1/d"), ("commit", "1"), ("take", "1/d"), ("write", "1/y", 7)],
}


def run(ckptfs, operations):
    """operations(model) yields them as they come."""
    with scratch_folder() as scratch, World(ckptfs, scratch, time.monotonic() + 100 * SLOW) as world:
        model = Model(world)
        for operation in operations(model):
            model.do(operation)
        model.check_whole()


def fails(ckptfs, operations):
    try:
        run(ckptfs, lambda model: operations)
    except Exception:  # of whatever kind
        return True
    return False


def shorter(ckptfs, operations, seconds):
    """The same without what the failure does not need, as far as that is found in time."""
    end, i = time.monotonic() + seconds, 0
    while i < len(operations) and time.monotonic() < end:
        without = operations[:i] + operations[i + 1:]
        if fails(ckptfs, without):
            operations = without
        else:
            i += 1
    return operations


class Found(KeyboardInterrupt):
    """Ends Hypothesis at the first failure. Its own shrinking is of no use: what it draws depends on what is there, while here a
    sequence can be cut directly."""


def test_a_mount_is_a_plain_folder_in_which_steps_appear_when_complete(ckptfs):
    done = []

    def draw(data, model):
        for _ in range(data.draw(st.integers(10, 30))):
            possible = {kind: some for kind, some in model.possible().items() if some}
            done.append(data.draw(st.sampled_from(possible[data.draw(st.sampled_from([kind for kind in KINDS if kind in possible]))])))
            yield done[-1]

    @given(st.data())
    @settings(max_examples=(2000 if LONG else 400) if FULL else 120, derandomize=not FULL, deadline=None, database=None, print_blob=False, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    def explore(data):
        done.clear()
        try:
            run(ckptfs, lambda model: draw(data, model))
        except Exception as e:
            raise Found(str(e)) from e

    try:
        explore()
    except Found as e:
        pytest.fail(f"{e}\n{shorter(ckptfs, done, 60 * SLOW)}", pytrace=False)


@pytest.mark.parametrize("name", FOUND)
def test_what_failed_once(ckptfs, name):
    run(ckptfs, lambda model: FOUND[name])
