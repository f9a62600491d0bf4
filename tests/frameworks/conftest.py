import contextlib
import functools
import json
import os
import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite("cases", "frameworks", "support.watcher")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from support.fixtures import *  # noqa: E402,F401,F403

RESULTS = Path(os.environ.get("CKPT_BUILD_DIR") or Path(__file__).resolve().parents[2] / "build") / "frameworks"


def pytest_generate_tests(metafunc):
    """Each case that takes a framework runs with those of the module that it is in, for which it says something."""
    if "framework" in metafunc.fixturenames:
        which = metafunc.module.FRAMEWORKS
        if metafunc.function.__name__ == "test_a_step_of_any_name_appears_when_it_is_complete":
            which = [f for f in which if f.any_name]
        if metafunc.function.__name__ in ("test_it_rotates_and_resumes", "test_a_kill_in_a_save_leaves_whole_steps_and_the_next_run_resumes"):
            which = [f for f in which if f.trains]
        metafunc.parametrize("framework", which, ids=str)


@pytest.fixture(scope="module")
def results(request):
    """What was measured, a line each, for tests/frameworks/table."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / f"{Path(request.module.__file__).stem}.jsonl", "w", buffering=1) as f:
        yield f


@contextlib.contextmanager
def measured(results, framework, name):
    row = {"row": framework.title, "version": framework.version, "profile": framework.profile, "event": framework.event, "column": name,
           "replayed": framework.replayed}
    try:
        yield
    except BaseException:
        results.write(json.dumps(row | {"well": False}) + "\n")
        raise
    results.write(json.dumps(row | {"well": True}) + "\n")


@pytest.fixture
def column(results, framework):
    """`with column("restore"):` what is done there has this column of the framework's row."""
    return functools.partial(measured, results, framework)


@pytest.fixture
def folder(mount):
    """Where the frameworks save: no folder of steps by its name."""
    path = mount / "run"
    path.mkdir()
    return path
