"""Programs with no last act: their steps are listed when they have been quiet, in the times of ckptfs-steps(7). All save at once, on one
mount with default options, as each waits minutes for its first step."""

import io
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from cases import check_info
from conftest import measured
from frameworks import Framework, Job, run
from support import trees
from support.watcher import watch

SLACK = 6  # what may come on top of the time: a look each second, and a busy machine
FRAMEWORKS = [
    Framework("litgpt pretrain", "litgpt_pretrain", "litgpt", "step-{:08d}", "generic", "quiet", seconds=(60, 10)),
    Framework("Ray storage (Train v1, Tune, RLlib)", "ray_storage", "ray", "checkpoint_{:06d}", "generic", "quiet", at="trial", seconds=(300, 10)),
    Framework("a loop of your own, `step_N`", "own_loop", "", "step_{}", "generic", "quiet", variant="step_", seconds=(60, 10)),
    Framework("a loop of your own, `checkpoints/N`", "own_loop", "", "{}", "generic", "quiet", variant="", seconds=(60, 10)),
    Framework("a loop of your own, `iter_N`", "own_loop", "", "iter_{}", "generic", "quiet", variant="iter_", seconds=(300, 10)),
]


@pytest.fixture
def options():
    """The default: the other tests have a longer time."""
    return ["commit_quiet=10s"]


def last_change(step):
    return max(os.lstat(os.path.join(where, name)).st_mtime for where, folders, files in os.walk(step) for name in [*folders, *files])


def listed_at(w, name):
    return min(sight["at"] for sight in w.sights if name in sight["seen"])


def wait_listed(framework, folder, numbers, seconds):
    end = time.monotonic() + seconds
    while not set(numbers) <= set(framework.listed(folder)):
        assert time.monotonic() < end, f"{framework.title}: {numbers} are not listed after {seconds} s, but {framework.listed(folder)}"
        time.sleep(0.5)


def killed(world, mount, framework, folder, n):
    """Killed in the save of step n, when its first file is there."""
    job = Job(world, framework, "save", folder, n)
    path = folder / framework.at / framework.step(n)
    while not (path.is_dir() and os.listdir(path)) and job.processes[0].poll() is None:
        time.sleep(0.0005)
    job.kill()
    assert "saved" not in [said.split()[0] for _, said in job.said], "it was too late for a kill"


def one(world, mount, results, framework):
    column = partial(measured, results, framework)
    folder = mount / str(framework) / framework.home
    folder.mkdir(parents=True)
    first, later = framework.seconds
    where = folder / framework.at
    where.mkdir(exist_ok=True)
    below = os.path.relpath(where, mount.path)
    with column("watch"), watch(world, where, pattern=framework.pattern) as w:
        with column("save"):
            run(world, framework, "save", folder, 1, 2)
            wait_listed(framework, folder, [1, 2], first + 30)
            run(world, framework, "save", folder, 3)
            wait_listed(framework, folder, [1, 2, 3], later + 20)
            for n in (1, 2, 3):
                check_info(mount, framework, f"{below}/{framework.step(n)}", "quiet")
    with column("watch"):
        assert w.check_whole() == {framework.step(n) for n in (1, 2, 3)}
        for n, least in ((1, first), (3, later)):
            took = listed_at(w, framework.step(n)) - last_change(where / framework.step(n))
            assert least - 1 <= took <= least + SLACK, f"{framework.title}: step {n} was listed after {took:.1f} s"
    with column("restore"):
        run(world, framework, "load", folder, 1, 2, 3)
    with column("kill"), watch(world, where, pattern=framework.pattern) as w:
        killed(world, mount, framework, folder, 4)
        time.sleep(later + SLACK)
        assert framework.listed(folder) == [1, 2, 3]
        assert [s for s in world.program.json("sessions", mount.store) if s["name"].startswith(f"{below}/")]
        with column("resume"), column("rotate"):
            assert run(world, framework, "train", folder, 2, 2).words("resumed") == ["3"]
            assert framework.listed(folder) == [4, 5]
        run(world, framework, "load", folder, 4, 5)
    with column("kill"):
        w.check_whole()
    return folder


@pytest.mark.timeout(900)
def test_steps_are_listed_when_they_are_quiet(world, mount, results):
    rows = [io.StringIO() for _ in FRAMEWORKS]
    with ThreadPoolExecutor(len(FRAMEWORKS)) as pool:
        at_work = [pool.submit(one, world, mount, row, framework) for framework, row in zip(FRAMEWORKS, rows)]
        folders = [job.exception() or job.result() for job in at_work]
    for row in rows:  # in this order the table has them
        results.write(row.getvalue())
    wrong = [f"{framework.title}: {e!r}" for framework, e in zip(FRAMEWORKS, folders) if isinstance(e, BaseException)]
    assert not wrong, "\n".join(wrong)
    before = trees.describe(mount.path)
    mount.remount()
    assert trees.describe(mount.path) == before
    for framework, folder in zip(FRAMEWORKS, folders):
        with measured(results, framework, "restore"):
            run(world, framework, "load", folder, 4, 5)
