"""wait: until a step is committed, or until nothing is under way."""

import os
import signal
import subprocess
import time

import pytest

from support import trees
from support.mounting import wait_until
from test_cli import on_terminal

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def waiting(ckptfs, world):
    """Starts `ckptfs wait`, and sees that it waits."""
    def start(*words, **kwargs):
        p = subprocess.Popen([ckptfs.path, "wait", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
        world.callback(p.kill)
        time.sleep(0.4)
        assert p.poll() is None, p.communicate()
        return p
    return start


def ended(process, status=0):
    out, err = process.communicate(timeout=15)
    assert (process.returncode, out) == (status, ""), err
    return err


def test_wait_ends_when_a_step_is_committed(mount, store, waiting, stage, commit, ckptfs):
    staged, absent, newest, here = (waiting(*words, **kw) for words, kw in (((store, "1000"), {}), ((mount / "a/step_1",), {}), ((store, "a/latest"), {}), (("1000",), {"cwd": mount.path})))
    stage("1000")
    time.sleep(0.3)
    assert staged.poll() is None, "staged is not committed"
    commit(mount / "1000")
    assert ended(staged) == ended(here) == ""
    assert absent.poll() is newest.poll() is None
    (mount / "a").mkdir()
    stage("a/step_1")
    commit(mount / "a/step_1")
    assert ended(absent) == ended(newest) == ""
    assert ckptfs.json("wait", store, "1000") == {"ok": True}


def test_wait_begins_before_the_store_is_mounted(mount, store, waiting, stage, commit):
    mount.umount()
    waits = waiting(store, "1000")
    mount.start()
    stage("1000")
    commit(mount / "1000")
    ended(waits)
    mount.umount()
    ended(subprocess.Popen([waits.args[0], "wait", store, "1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def test_wait_for_a_commit_that_runs(mount, store, waiting, agent, stage):
    stage("1000")
    writer, a = agent(), agent()
    writer.run("fd = os.open(step + '/f', os.O_CREAT | os.O_WRONLY)", step=str(mount / "1000"))
    a.start("fd = os.open(step + '/.finalize', os.O_CREAT | os.O_WRONLY); os.close(fd)", step=str(mount / "1000"))
    wait_until(lambda: mount.status()["committing"] == ["1000"])
    waits, idle = waiting(store, "1000"), waiting("--idle", store)
    writer.run("os.close(fd)")
    a.result()
    assert ended(waits) == ended(idle) == ""


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_timeout_ends_it_with_1_and_says_for_what(mount, store, ckptfs, mounted):
    if not mounted:
        mount.umount()
    for d in ("0", "300ms"):
        began = time.monotonic()
        done = ckptfs("wait", "--timeout", d, store, "1000", check=False)
        assert done.returncode == 1 and time.monotonic() - began < 5
        assert done.stderr.splitlines()[0].startswith("ckptfs: 1000: not committed after ") and done.stderr.splitlines()[1].startswith("hint: ")
    assert ckptfs("wait", "--timeout", "30s", store).stderr == ""


def test_idle_is_when_nothing_is_under_way(mount, store, ckptfs, stage, commit):
    for n in range(3):
        stage(f"{n}")
        commit(mount / f"{n}")
        ckptfs("rm", "--now", "--yes", store, f"{n}")
    ckptfs("wait", "--idle", store)
    assert os.listdir(store / "trash") == [] and os.listdir(store / "sessions") == []
    status = ckptfs.json("status", store)
    assert (status["committing"], status["indexing"], status["removing"]) == ([], 0, 0)


@pytest.mark.parametrize("sig, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_it_with_its_number(mount, store, waiting, sig, status):
    waits = waiting(store, "1000")
    waits.send_signal(sig)
    assert ended(waits, status) == ""


def test_it_shows_that_it_waits_on_a_terminal_only(mount, store, ckptfs):
    said, status = on_terminal([ckptfs.path, "wait", "--timeout", "1500ms", store, "1000"])
    assert status == 1 and "waiting for 1000" in said
    assert ckptfs("wait", "--timeout", "1500ms", store, "1000", check=False).stderr.count("\n") == 2


@pytest.mark.parametrize("words, status, says", [(["--remote", "1000"], 1, "local store"), (["--remote"], 1, "local store"), (["--sealed", "--idle"], 2, "one of"), (["--idle", "--remote"], 2, "one of"),
                                                 (["1", "2"], 2, "one operand"), (["trash/1"], 2, "in the trash"), (["--timeout", "soon", "1"], 2, "duration"), (["1000/config.json"], 2, "a file in a step")])
def test_what_cannot_be_waited_for_is_refused(mount, store, stage, commit, ckptfs, words, status, says):
    stage("1000")
    commit(mount / "1000")
    done = ckptfs("wait", store, *words, check=False)
    assert done.returncode == status and says in done.stderr and len(done.stderr.splitlines()) == 2, done.stderr


def test_wait_for_the_seal_of_a_step_ends_when_it_is_removed(mount, store, waiting, stage, commit, ckptfs):
    stage("1000")
    commit(mount / "1000")
    waits = waiting("--sealed", store, "1000")
    ckptfs("rm", store, "1000")
    assert "not a step any more" in ended(waits, 1)
