"""Hours of a mount in seconds: its clock is the test's, by libfaketime; the daemon itself knows nothing of that."""

import glob
import json
import os

import pytest

from support.fixtures import SLOW
from support.mounting import Mount, wait_until

LIBRARY = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(SLOW > 1, reason="a sanitizer and libfaketime each want to be loaded first"),
              pytest.mark.skipif(not LIBRARY, reason="libfaketime is not installed (tools/deps --tests)")]


@pytest.fixture
def clock(scratch):
    """clock(3600): for the mount it is an hour later than for us. Time goes on meanwhile: minutes of leeway hide that."""
    def later(seconds):
        (scratch / "clock.new").write_text(f"+{seconds}\n")
        (scratch / "clock.new").rename(scratch / "clock")
    later(0)
    return later


@pytest.fixture
def mount(world, store, scratch, clock):
    fakes = [f"LD_PRELOAD={LIBRARY[0]}", f"FAKETIME_TIMESTAMP_FILE={scratch}/clock", "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1"]
    return Mount.new(world, store, prefix=["env", *fakes])


@pytest.fixture
def policy(mount):
    def put(document):
        (mount / ".ckptfs/policy.json").write_text(json.dumps(document))
    return put


def decided(mount, step):
    return (mount / f".ckptfs/should_save/{step}").read_text().strip()


def test_temporary_saves_by_time_in_a_run_of_hours(mount, policy, clock, stage, commit):
    policy({"preset": "eformer"})  # each 500 steps, and each 15 minutes
    clock(840)
    assert decided(mount, 100) == "0"
    clock(960)
    assert decided(mount, 101) == "1 temporary time_interval" and decided(mount, 102) == "0"
    clock(1500)
    stage("run-200")
    commit(mount / "run-200")
    clock(2340)
    assert decided(mount, 300) == "0"
    clock(2460)
    assert decided(mount, 301) == "1 temporary time_interval"
    assert decided(mount, 500) == "1 permanent step_intervals"
    clock(3460)
    assert decided(mount, 501) == "1 temporary time_interval"
    for name, text, temporary in (("run-500", b"", "false"), ("run-501", b"", "true"), ("run-502", b"", "false")):
        stage(name)
        commit(mount / name, text)
        assert os.getxattr(mount / name, "user.ckptfs.temporary").decode() == temporary, name


def test_decision_is_made_anew_after_ten_minutes(mount, policy, clock, stage, commit):
    policy({"save": {"continuous": {"minimum_interval_secs": 300}}})
    stage("1")
    commit(mount / "1")
    assert decided(mount, 2) == "0"
    clock(540)
    assert decided(mount, 2) == "0" and decided(mount, 3) == "1 permanent continuous"
    clock(660)
    assert decided(mount, 2) == "1 permanent continuous"
    clock(0)  # set back: what was decided then lies ahead of now
    assert decided(mount, 2) == "0"


def test_steps_stay_as_long_as_their_time(mount, policy, clock, stage, commit):
    policy({"keep": {"latest_duration": {"secs": 3600}}})
    for step in range(1, 5):
        clock(step * 1500)
        stage(str(step))
        commit(mount / str(step))
    assert wait_until(lambda: mount.listing() == ["2", "3", "4"], 30)
    assert mount.listing(".ckptfs/trash") == ["1"]
    clock(9 * 1500)
    stage("9")
    commit(mount / "9")
    assert wait_until(lambda: mount.listing() == ["9"], 30), "the newest stays, whatever the clock says"


def test_umount_is_refused_for_a_minute_after_the_last_write(mount, ckptfs):
    """It is the clock of the program that asks which is ahead: the times of the files are the disk's."""
    (mount / "step_1").mkdir()
    (mount / "step_1/shard0.bin").write_bytes(b"x")

    def umount(seconds):
        return ckptfs("umount", mount.path, check=False, env=dict(os.environ, LD_PRELOAD=LIBRARY[0], FAKETIME=f"+{seconds}s"))
    refused = umount(30)
    assert refused.returncode == 1 and "step_1 is being saved: it was written 3" in refused.stderr
    assert umount(61).returncode == 0
