"""What every framework must find on a mount: a module with FRAMEWORKS takes these tests by importing them."""

import os
import time
from fnmatch import fnmatch

import pytest

from frameworks import Job, run
from support import trees
from support.watcher import watch

STEPS_KEPT = 2


def info(mount, name):
    return mount.world.program.json("info", mount.store, name)


def check_info(mount, framework, name, event):
    """What completed it; files that came afterwards made more versions of it."""
    if event:
        about = info(mount, name)
        assert (about["profile"], about["versions"][0]["event"]) == (framework.profile, event), about


def below(framework, n):
    """A step's name as the verbs have it."""
    return os.path.normpath(os.path.join("run", framework.at, framework.step(n)))


@pytest.mark.timeout(400)
def test_a_save_is_listed_when_it_is_complete_and_is_restored(world, mount, folder, framework, column):
    with column("watch"):
        with watch(world, folder / framework.at, pattern=framework.pattern, ignored=framework.passing) as w:
            with column("save"):
                run(world, framework, "save", folder, 1, 2)
                assert framework.listed(folder) == [1, 2]
                for n in (1, 2):
                    check_info(mount, framework, below(framework, n), framework.event)
        assert w.check_whole(framework.late) == {framework.step(1), framework.step(2)}
    with column("restore"):
        run(world, framework, "load", folder, 1, 2)
        before = trees.describe(folder)
        mount.remount()
        assert trees.describe(folder) == before
        run(world, framework, "load", folder, 1, 2)
    assert mount.errors() == [] and world.program.json("sessions", mount.store) == []


@pytest.mark.timeout(400)
def test_it_rotates_and_resumes(world, mount, folder, framework, column):
    with watch(world, folder / framework.at, pattern=framework.pattern, ignored=framework.passing) as w:
        with column("rotate"):
            assert set(run(world, framework, "train", folder, 3, STEPS_KEPT).words("resumed")) == {"none"}
            assert framework.listed(folder)[-1] == 3
        with column("resume"):
            assert run(world, framework, "train", folder, 2, STEPS_KEPT).words("resumed") == ["3"]
    with column("rotate"):
        assert framework.listed(folder) == list(framework.keeps)
        w.check_whole(framework.late)
    with column("resume"):
        mount.remount()
        assert framework.listed(folder) == list(framework.keeps)
        run(world, framework, "load", folder, *framework.keeps)
        assert run(world, framework, "train", folder, 1, STEPS_KEPT).words("resumed") == ["5"]


def begun(job, framework, folder, n):
    """When the step's folder was there, by its exact name: much may be done before. A file begins at once."""
    when = job.wait_for(f"saving {n}")
    assert when, job.log()
    path = folder / framework.at / (framework.half or framework.name).format(n)
    while framework.profile and not any(path.parent.glob(path.name)) and f"saved {n}" not in [said for _, said in job.said] and job.processes[0].poll() is None:
        time.sleep(0.0005)
        when = time.monotonic()
    return when


def killed_in_a_save(world, mount, framework, folder, part):
    """Trains, and is killed when about this part of a save is done. Returns what it had resumed from, and whether there is the half
    of a step."""
    job = Job(world, framework, "train", folder, 1000, STEPS_KEPT)
    while not job.words("resumed"):
        assert job.processes[0].poll() is None, job.log()
        time.sleep(0.01)
    resumed = job.words("resumed")[0]
    first = 1 if resumed == "none" else int(resumed) + 1
    before = begun(job, framework, folder, first + 1)
    took = job.wait_for(f"saved {first + 1}") - before
    begun(job, framework, folder, first + 2)
    time.sleep(part * took)
    job.kill()
    time.sleep(max(0.3, framework.settles))  # what its last calls set going
    left = world.program.json("sessions", mount.store)
    if framework.stumbles:
        for session in left:
            world.program("abort", "--yes", mount.store, session["id"])
    return resumed, bool(left) if framework.profile and not framework.passing else int(job.words("saving")[-1]) not in framework.listed(folder)


@pytest.mark.timeout(500)
def test_a_kill_in_a_save_leaves_whole_steps_and_the_next_run_resumes(world, mount, folder, framework, column):
    with column("kill"):
        in_the_middle, last, part = 0, "none", 0.6
        with watch(world, folder / framework.at, pattern=framework.pattern, ignored=framework.passing) as w:
            for _ in range(8):
                resumed, half = killed_in_a_save(world, mount, framework, folder, part)
                assert resumed == last
                in_the_middle += half
                part *= 0.7 if half else 0.4  # too late: it says that it has saved some time after its last move
                last = framework.newest(folder)
                if in_the_middle == 2:
                    break
            assert in_the_middle, "no kill met a save"
            assert run(world, framework, "train", folder, 2, STEPS_KEPT).words("resumed") == [last]
        w.check_whole(framework.late)
        steps = framework.listed(folder)
        assert steps[-1] == int(last) + 2
        run(world, framework, "load", folder, *steps)
        for n in steps:
            check_info(mount, framework, below(framework, n), framework.event)


@pytest.mark.timeout(400)
def test_a_step_of_any_name_appears_when_it_is_complete(world, mount, folder, framework, column):
    """It has no step form: the folder is plain and seen as it is written, and becomes a step by its event."""
    with column("any name"):
        job = Job(world, framework, "save-as", folder, "mymodel", 7)
        sights = []
        while job.processes[0].poll() is None:
            sights += [s for s in world.program.json("ls", mount.store) if s["name"] == "run/mymodel"]
            newest = world.program("latest", mount.store, "run", check=False)
            if newest.returncode == 0 and not sights:
                sights += [s for s in world.program.json("ls", mount.store) if s["name"] == "run/mymodel"]
                assert sights, "latest names what ls does not"
        job.wait()
        whole = [p for p in trees.sizes(folder / "mymodel") if not any(fnmatch(p, pattern) for pattern in framework.late)]
        about = info(mount, "run/mymodel")
        check_info(mount, framework, "run/mymodel", framework.any_name)
        assert about["files"] >= len(whole)
        for sight in sights:
            assert sight["files"] >= len(whole), f"it was a step with {sight}, complete it has {about}"
        assert world.program("latest", mount.store, "run").stdout.strip() == "run/mymodel"
        run(world, framework, "load-as", folder, "mymodel", 7)
        mount.remount()
        run(world, framework, "load-as", folder, "mymodel", 7)
