"""Fixtures that both suites against a mount share; conftest.py of each imports them."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from support import trees
from support.agent import Agent
from support.alone import be_alone
from support.mounting import Mount, Program, World, mounts_below, sanitizer_reports, scratch_base
from support.object_fixtures import fault_proxy, s3_prefix, s3_server, shared_proxy  # noqa: F401

SOURCE = Path(__file__).resolve().parents[2]
FULL = os.environ.get("CKPT_TEST_FULL", "") not in ("", "0")
LONG = os.environ.get("CKPT_TEST_LONG", "") not in ("", "0")
# Sanitizer builds are some ten times slower.
SLOW = 10 if any(name in os.environ.get("CKPTFS", "") for name in ("asan", "tsan")) else 1

both_modes = pytest.mark.parametrize("mode", ["passthrough", "daemon"], indirect=True)
all_modes = pytest.mark.parametrize("mode", ["passthrough", "daemon", "uring"], indirect=True)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do what this test does (loop devices, other users, kernel switches)")


def pytest_sessionstart():
    be_alone()


def pytest_collection_modifyitems(items):
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit = (marker.args[0] if marker else 60) * (10 if FULL else 1) * SLOW
        item.add_marker(pytest.mark.timeout(limit), append=False)


@pytest.fixture(scope="session")
def ckptfs():
    """The program under test."""
    program = Path(os.environ.get("CKPTFS") or SOURCE / "build/ckptfs")
    assert program.exists(), f"{program} is not there: build it first, or set CKPTFS"
    return Program(program)


@contextlib.contextmanager
def scratch_folder():
    """A folder on a real disk that other users can enter. Nothing may be mounted there, nor a sanitizer have spoken, at its end."""
    path = Path(tempfile.mkdtemp(prefix="ckptfs-test-", dir=scratch_base()))
    path.chmod(0o755)
    yield path
    left = mounts_below(path)
    for point in left:
        subprocess.run(["umount", "-l", point], check=False, capture_output=True)
    reports = sanitizer_reports(path)
    shutil.rmtree(path, ignore_errors=True)
    assert not left, f"still mounted at the end of the test: {left}"
    assert not reports, reports


@pytest.fixture
def scratch():
    """That of this test."""
    with scratch_folder() as path:
        yield path


@pytest.fixture
def world(request, ckptfs, scratch):
    """What the test makes and what must be undone."""
    with World(ckptfs, scratch, time.monotonic() + request.node.get_closest_marker("timeout").args[0] * 0.8) as w:
        yield w


@pytest.fixture
def store(scratch):
    """Where the test's store is or will be."""
    return scratch / "store"


@pytest.fixture
def mode(request):
    mode = getattr(request, "param", "passthrough")
    if mode == "uring" and os.geteuid() != 0:
        pytest.skip("only root can turn FUSE over io_uring on")
    return mode


@pytest.fixture
def options(request):
    """Mount options: a test gives its own as a parameter, a module or class overrides it."""
    return [request.param] if hasattr(request, "param") else []


@pytest.fixture
def mount(world, store, mode, options):
    """The test's store, mounted."""
    return Mount.new(world, store, mode=mode, options=options)


@pytest.fixture
def agent(world):
    """Makes client processes: agent() or agent(uid=...)."""
    def make(**kwargs):
        a = Agent(**kwargs)
        world.callback(a.close)
        return a
    return make


@pytest.fixture
def stage(mount):
    """Makes a staged step with some files: stage("1000") returns {path: bytes}."""
    def make(name, seed=None, **kwargs):
        folder = mount / name
        folder.mkdir()
        return trees.fill(folder, seed=seed or name, **kwargs)
    return make


@pytest.fixture
def step(mount, stage):
    """A staged step, "1000", as a string for agents."""
    stage("1000")
    return str(mount / "1000")


@pytest.fixture
def commit():
    """Completes a staged step as a shell would, with optional marker content."""
    def close_marker(folder, text=b""):
        trees.write(Path(folder) / ".finalize", text)
    return close_marker


@pytest.fixture
def client(scratch):
    """Compiles tests/fs/clients/NAME.c and returns the program's path."""
    def build(name):
        program = scratch / name
        subprocess.run(["cc", "-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", str(program),
                        str(SOURCE / "tests/fs/clients" / f"{name}.c")], check=True)
        return program
    return build
