"""A copy is no save: no profile claims it, no event counts, and how its copier ended says when it is complete."""

import os
import shutil
import subprocess
import time

import pytest

from support import trees
from support.mounting import wait_until
from support.quiet import ARRAY, FILES, UNIT, event, listed, options, stays_hidden, told  # noqa: F401
from support.watcher import watch

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("program", ["cp", "rsync", "tar"])
def test_a_copy_is_complete_when_its_copier_has_ended_well(mount, world, scratch, program, ckptfs, store):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    source = scratch / "step_1"
    source.mkdir()
    for name in FILES:
        trees.write(source / name, ARRAY if name.endswith(".safetensors") else b"{}")
    command = {"cp": ["cp", "-r", source, mount / "step_1"], "rsync": ["rsync", "-a", source, f"{mount.path}/"],
               "tar": ["sh", "-c", f"tar -C {scratch} -cf - step_1 | tar -C {mount.path} -xf -"]}[program]
    with watch(world, mount.path) as w:
        began = time.monotonic()
        subprocess.run(command, check=True)
        listed(mount, "step_1")
        assert time.monotonic() - began < 5.5 * UNIT or os.getloadavg()[0] > 2
    w.check(1)
    assert event(ckptfs, store, "step_1") == "quiet"


def test_a_copier_that_was_killed_leaves_no_step(mount, scratch):
    (scratch / "step_1").mkdir()
    for name in FILES:
        trees.write(scratch / "step_1" / name, ARRAY if name.endswith(".safetensors") else b"{}")
    archive = subprocess.run(["tar", "-C", scratch, "-cf", "-", *(f"step_1/{name}" for name in FILES)], check=True, capture_output=True).stdout
    copier = subprocess.Popen(["tar", "-C", mount.path, "-b1", "-xf", "-"], stdin=subprocess.PIPE)
    copier.stdin.write(archive[:8192])
    copier.stdin.flush()
    wait_until(lambda: (mount / "step_1" / FILES[1]).exists(), 20)
    copier.kill()
    copier.wait()
    told(mount, "step_1", "was killed by signal 9")
    stays_hidden(mount, "step_1", 8)


@pytest.mark.parametrize("program, units", [("cp", 1), ("mv", 1), ("rsync", 1), ("tar", 1), ("rclone", 1), ("sftp-server", 30), ("scp", 30)])
def test_no_profile_claims_a_copy_and_how_its_copier_ended_is_known_of_some(mount, scratch, ckptfs, store, program, units):
    """Where the program itself is not to be had, `cp` has its name: the name is what counts."""
    (scratch / "step_1").mkdir()
    for name in (*FILES, "random_states_0.pkl"):
        trees.write(scratch / "step_1" / name, ARRAY if name.endswith(".safetensors") else b"{}")
    shutil.copy(shutil.which("cp"), scratch / program)
    began = time.monotonic()
    subprocess.run([scratch / program, "-r", scratch / "step_1", mount / "step_1"], check=True)
    if units > 1:
        stays_hidden(mount, "step_1", 9)
    listed(mount, "step_1")
    assert units > 1 or time.monotonic() - began < 5.5 * UNIT or os.getloadavg()[0] > 2
    assert event(ckptfs, store, "step_1") == "quiet"


@pytest.mark.parametrize("age", [0, 3600])
def test_no_profile_claims_a_tree_that_is_copied_with_its_times(mount, scratch, agent, age):
    """shutil.copytree, in a process that goes on: a claimed step would wait for its event."""
    (scratch / "step_1").mkdir()
    for name in (*FILES, "random_states_0.pkl"):
        trees.write(scratch / "step_1" / name, ARRAY if name.endswith(".safetensors") else b"{}")
        os.utime(scratch / "step_1" / name, (time.time() - age,) * 2)
    copier = agent()
    copier.run("import shutil; shutil.copytree(a, b)", a=str(scratch / "step_1"), b=str(mount / "step_1"))
    stays_hidden(mount, "step_1", 4)
    listed(mount, "step_1")
