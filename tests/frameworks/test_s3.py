"""Each framework saves on one node of a store in a bucket; that node is lost with its disk, and another one goes on."""

import os

import pytest

import test_arrays
import test_jax
import test_quiet
import test_replayed
import test_torch
import test_trainers
import test_training
from frameworks import run
from support import trees
from support.mounting import wait_until
from support.nodes import *  # noqa: F403

FRAMEWORKS = [f for module in (test_arrays, test_jax, test_torch, test_training, test_trainers, test_replayed, test_quiet) for f in module.FRAMEWORKS]
STEPS_KEPT = 2
QUIET = "2s"  # for those with no last act, in place of 10


def seen(folder, framework, listed):
    """All that is there. The time of a plain folder, and of a plain file that was written again as it was, is each node's own."""
    steps = tuple(os.path.normpath(f"{framework.at}/{framework.step(n)}") for n in listed)
    return {path: row if os.path.normpath(path).startswith(steps) else row | {"mtime_ns": 0}
            for path, row in trees.describe(folder).items()}


@pytest.mark.timeout(600)
def test_it_resumes_on_another_node(world, node, framework, column):
    options = [f"commit_quiet={QUIET}"] if framework.event == "quiet" else []
    with column("s3"):
        first = node("a", options=options)
        (first / framework.home).mkdir()
        if framework.trains:
            assert set(run(world, framework, "train", first / framework.home, 3, STEPS_KEPT).words("resumed")) == {"none"}
        else:
            run(world, framework, "save", first / framework.home, 1, 2)
        wait_until(lambda: not first.status()["staged"], timeout=200, what="the end of the save")
        listed = framework.listed(first / framework.home)
        if framework.event == "quiet":
            wait_until(lambda: len(world.program.json("ls", first.path)) == len(listed), timeout=200, what="all as steps")
        before = seen(first / framework.home, framework, listed)
        assert listed
        first.wait(timeout=100)
        first.lose()
        second = node("b", options=options)
        assert framework.listed(second / framework.home) == listed
        assert seen(second / framework.home, framework, listed) == before
        run(world, framework, "load", second / framework.home, *listed)
        if framework.trains:
            newest = framework.newest(second / framework.home)
            assert run(world, framework, "train", second / framework.home, 1, STEPS_KEPT).words("resumed") == [newest]
        second.wait(timeout=100)
        assert second.errors() == []
