"""Programs that copy a tree know no end: what they bring is listed after the marker, and never before it."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from frameworks import Framework
from support import trees
from support.watcher import watch

# As `aws s3 sync` downloads: several files at once, each under a temporary name of its own that is then renamed.
SYNC = """
import os, random, string, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

source, target = map(Path, sys.argv[1:])

def fetch(path):
    end = target / path
    end.parent.mkdir(parents=True, exist_ok=True)
    temporary = end.with_name(f"{end.name}.{''.join(random.choices(string.hexdigits, k=8))}")
    with open(temporary, "wb") as out, open(source / path, "rb") as data:
        while piece := data.read(1 << 18):
            out.write(piece)
    st = os.stat(source / path)
    os.utime(temporary, ns=(st.st_mtime_ns, st.st_mtime_ns))
    os.rename(temporary, end)

with ThreadPoolExecutor(4) as pool:
    list(pool.map(fetch, [p.relative_to(source) for p in source.rglob("*") if p.is_file()]))
"""


class Walker(Framework):
    @property
    def version(self):
        return "" if self.title == "object store sync" else "Debian's"


def walker(title):
    return Walker(title, "", "", "step_{}", "generic", "marker")


FRAMEWORKS = [walker("cp -r"), walker("rsync -a"), walker("tar x"), walker("object store sync")]


def start(framework, source, folder, scratch):
    """The walker that copies source/step_N into a folder that has it not: a process group, as rsync is several."""
    popen = partial(subprocess.Popen, start_new_session=True)
    target = folder / source.name
    if framework.title == "cp -r":
        return popen(["cp", "-r", source, folder])
    if framework.title == "rsync -a":
        return popen(["rsync", "-a", source, f"{folder}/"])
    if framework.title == "tar x":
        archive = scratch / f"{source.name}.tar"
        if not archive.exists():
            subprocess.run(["tar", "cf", archive, "-C", source.parent, source.name], check=True)
        return popen(["tar", "xf", archive, "-C", folder])
    return popen([sys.executable, "-c", SYNC, source, target])


@pytest.fixture
def source(scratch):
    """Steps on the plain disk, with the files that end a step for this or that framework."""
    def make(n):
        path = scratch / "source" / f"step_{n}"
        path.mkdir(parents=True)
        trees.fill(path, seed=n, size=200_000)
        (path / "first").unlink()  # a link: the one that syncs an object store brings none
        trees.write(path / "metadata.json", b'{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
        trees.write(path / ".metadata", b"x" * 100)
        trees.write(path / "trainer_state.json", b"{}")
        trees.write(path / ".snapshot_metadata", b"version: 1\n")
        return path
    return make


@pytest.mark.timeout(120)
def test_a_copy_is_listed_after_its_marker(world, mount, folder, scratch, source, framework, column):
    steps = [source(n) for n in (1, 2)]
    with column("watch"), column("save"):
        with watch(world, folder, pattern="step_*") as w:
            for path in steps:
                before = os.listdir(folder)
                assert start(framework, path, folder, scratch).wait(60) == 0
                assert os.listdir(folder) == before
                (folder / path.name / ".finalize").touch()
                assert path.name in os.listdir(folder)
                about = world.program.json("info", mount.store, f"run/{path.name}")
                assert (about["profile"], about["versions"][0]["event"]) == (framework.profile, framework.event)
        assert w.check_whole() == {path.name for path in steps}
    with column("restore"):
        for _ in range(2):
            for path in steps:
                assert trees.files(folder / path.name) == trees.files(path)
            mount.remount()
        back = scratch / "back"
        back.mkdir()
        for path in steps:
            assert start(framework, folder / path.name, back, scratch).wait(60) == 0
            assert trees.files(back / path.name) == trees.files(path)


@pytest.mark.timeout(120)
def test_a_killed_copy_is_not_listed_and_a_second_one_completes_it(world, mount, folder, scratch, source, framework, column):
    path = source(1)
    with column("kill"):
        for delay in (0.001, 0.003, 0.006, 0.01):
            copy = start(framework, path, folder, scratch)
            time.sleep(delay)
            os.killpg(copy.pid, signal.SIGKILL)
            copy.wait(20)
            assert os.listdir(folder) == []
        assert start(framework, path, folder, scratch).wait(60) == 0
        for name in set(trees.files(folder / path.name)) - set(trees.files(path)):
            (folder / path.name / name).unlink()  # temporary names of those that were killed
        (folder / path.name / ".finalize").touch()
        assert os.listdir(folder) == [path.name]
        assert trees.files(folder / path.name) == trees.files(path)
