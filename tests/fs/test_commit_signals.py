"""Signals and commits: clients that are killed, timers, long commits, disks that hang."""

import signal
import subprocess
import time

import pytest

from support import trees
from support.commits import OPEN_MARKER, assert_whole, error_line, listed
from support.fixtures import FULL, both_modes, needs_root
from support.mounting import LoopDisk, Mount, errno_name, wait_until

pytestmark = pytest.mark.timeout(90)

TIMER = """
ticks = 0
def tick(*_):
    global ticks
    ticks += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
"""


@pytest.fixture
def options():
    """Waits for open writers are short here, but where a test is about them."""
    return ["open_writers=1s"]


# --- Killed clients ---------------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
@pytest.mark.parametrize("content", [b"", b'{"metrics": {"loss": 1}}'])
def test_a_signal_that_ends_the_markers_holder_commits_nothing(mount, step, agent, commit, sig, content):
    made = trees.files(step)
    a = agent()
    a.run(OPEN_MARKER + "; os.write(fd, content)", step=step, content=content)
    a.kill(sig)
    a.wait_gone(5)
    time.sleep(0.3)  # RELEASE comes after the death, by itself
    assert not listed(mount)
    wait_until(lambda: mount.errors(), 5, "a line in errors")
    error_line(mount, "1000")
    commit(step)
    assert_whole(mount, made)


def test_a_step_of_a_killed_client_goes_on_with_the_next_one(mount, step, agent, commit):
    a = agent()
    a.run("fd = os.open(step + '/half', os.O_CREAT | os.O_WRONLY); os.write(fd, b'first'); os.mkdir(step + '/d')", step=step)
    a.kill()
    a.wait_gone(5)
    b = agent()
    b.run("fd = os.open(step + '/half', os.O_WRONLY | os.O_APPEND); os.write(fd, b' second'); os.close(fd)", step=step)
    commit(step)
    assert (mount / "1000/half").read_bytes() == b"first second"


class TestLongWait:
    @pytest.fixture
    def options(self):
        return ["open_writers=60s"]

    @both_modes
    @pytest.mark.parametrize("sig, timer", [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGTERM, False)])
    def test_client_killed_in_a_long_commit_is_gone_within_a_second_and_the_commit_goes_on(self, mount, step, agent, sig, timer):
        writer, a, joiner = agent(), agent(), agent()
        writer.run("fd = os.open(step + '/late', os.O_CREAT | os.O_WRONLY); os.write(fd, b'almost')", step=step)
        a.run(OPEN_MARKER, step=step)
        if timer:
            a.run(TIMER)
        a.start("os.close(fd)")
        assert a.still_busy(0.7), "the commit must wait for the writer, whatever signals come"
        a.kill(sig)
        assert a.wait_gone(5) < 1.0
        assert not listed(mount)
        joiner.run(OPEN_MARKER, step=step)
        joiner.start("os.close(fd)")
        assert joiner.still_busy(0.5)
        writer.run("os.write(fd, b' done'); os.close(fd)")
        joiner.result(timeout=10)
        assert listed(mount)
        assert (mount / "1000/late").read_bytes() == b"almost done"

    def test_commit_of_a_killed_client_ends_by_itself(self, mount, step, agent):
        writer, a = agent(), agent()
        writer.run("fd = os.open(step + '/late', os.O_CREAT | os.O_WRONLY)", step=step)
        a.run(OPEN_MARKER, step=step)
        a.start("os.close(fd)")
        assert a.still_busy(0.5)
        a.kill()
        a.wait_gone(1)
        writer.run("os.close(fd)")
        wait_until(lambda: listed(mount), what="the commit that nobody waits for")

    def test_timer_signals_do_not_end_the_wait_of_close(self, mount, step, agent):
        writer, a = agent(), agent()
        writer.run("fd = os.open(step + '/late', os.O_CREAT | os.O_WRONLY)", step=step)
        a.run(TIMER)
        a.run(OPEN_MARKER, step=step)
        a.start("os.close(fd)")
        assert a.still_busy(1.0)
        writer.run("os.close(fd)")
        a.result(timeout=10)
        assert listed(mount)

    def test_what_changes_the_step_waits_for_the_commit_and_then_finds_it_committed(self, world, store, mode, agent, commit):
        mount = Mount.new(world, store, mode=mode, options=["open_writers=60s", "amend=deny"])
        (mount / "1000").mkdir()
        made, step = trees.fill(mount / "1000", seed="1000"), str(mount / "1000")
        writer, a = agent(), agent()
        changes = {"create": "os.close(os.open(step + '/new', os.O_CREAT | os.O_WRONLY))", "open": "os.close(os.open(step + '/config.json', os.O_WRONLY))",
                   "rename": "os.rename(step + '/params', step + '/p')", "mkdir": "os.mkdir(step + '/d')"}
        waiting = {what: agent() for what in changes}  # now: starting them takes time, and the commit waits only so long
        writer.run("fd = os.open(step + '/late', os.O_CREAT | os.O_WRONLY)", step=step)
        a.run(OPEN_MARKER, step=step)
        a.start("os.close(fd)")
        assert a.still_busy(0.3)
        for what, code in changes.items():
            waiting[what].start(code, step=step)
        time.sleep(0.5)
        assert {what for what, w in waiting.items() if w.still_busy(0)} == set(changes)
        assert (mount / "1000/config.json").read_bytes() == made["config.json"], "reading does not wait"
        writer.run("os.close(fd)")
        a.result(timeout=10)
        outcome = {}
        for what, w in waiting.items():
            with pytest.raises(OSError) as e:
                w.result(timeout=10)
            outcome[what] = errno_name(e.value)
        assert outcome == dict.fromkeys(changes, "EROFS")
        assert_whole(mount, made | {"late": b""})


@both_modes
def test_removal_that_waited_for_a_commit_acts_on_the_committed_step(mount, step, agent, ckptfs, store):
    made = trees.files(step) | {"late": b""}
    writer, a, remover = agent(), agent(), agent()
    writer.run("fd = os.open(step + '/late', os.O_CREAT | os.O_WRONLY)", step=step)
    a.run(OPEN_MARKER, step=step)
    a.start("os.close(fd)")
    assert a.still_busy(0.3)
    remover.start("os.unlink(step + '/params/layer_0/w0.bin')", step=step)
    assert remover.still_busy(0.3)
    writer.run("os.close(fd)")
    a.result(timeout=10)
    remover.result(timeout=10)
    left = {p: data for p, data in made.items() if p != "params/layer_0/w0.bin"}
    for _ in range(2):
        assert_whole(mount, left)
        mount.remount()
    versions = ckptfs.json("info", store, "1000")["versions"]
    assert [(v["event"], v["files"]) for v in versions] == [("marker", len(made)), ("amend", len(left))], "the commit had it"


def test_what_waited_for_a_commit_that_failed_acts_on_the_staged_step(mount, step, agent, commit):
    made = trees.files(step)
    writer, a, late = agent(), agent(), agent()
    writer.run("fd = os.open(step + '/open', os.O_CREAT | os.O_WRONLY)", step=step)
    a.run(OPEN_MARKER, step=step)
    a.start("os.close(fd)")
    assert a.still_busy(0.3)
    late.start("fd = os.open(step + '/new', os.O_CREAT | os.O_WRONLY); os.write(fd, b'n'); os.close(fd)", step=step)
    with pytest.raises(OSError) as e:
        a.result(timeout=20)
    assert errno_name(e.value) == "EBUSY"
    late.result(timeout=20)
    writer.run("os.close(fd)")
    commit(step)
    assert_whole(mount, made | {"open": b"", "new": b"n"})


def test_two_that_complete_one_step_at_once_both_succeed(mount, agent, stage):
    for n in range(10):
        made = stage(str(n))
        several = [agent() for _ in range(3)] if n == 0 else several
        for a in several:
            a.run(OPEN_MARKER, step=str(mount / str(n)))
        for a in several:
            a.start("os.close(fd)")
        for a in several:
            a.result()
        assert str(n) in mount.listing() and trees.files(mount / str(n)) == made
    assert mount.errors() == []


@needs_root
class TestHangingDisk:
    """A frozen filesystem under the store: every change on it hangs until it is thawed, as on a dying disk."""

    @pytest.fixture
    def disk(self, world):
        return LoopDisk(world)

    @pytest.fixture
    def mount(self, world, disk, mode):
        return Mount.new(world, disk.path / "store", mode=mode)

    @both_modes
    @pytest.mark.parametrize("timer", [False, True])
    def test_client_killed_while_the_disk_hangs_is_gone_within_a_second(self, mount, disk, stage, agent, timer):
        made = stage("1000")
        a = agent()
        a.run(OPEN_MARKER, step=str(mount / "1000"))
        if timer:
            a.run(TIMER)
        disk.freeze()
        a.start("os.close(fd)")
        assert a.still_busy(0.7)
        a.kill()
        assert a.wait_gone(10) < 1.0
        assert not listed(mount), "it is listed before its record can be on disk"
        disk.thaw()
        wait_until(lambda: listed(mount), what="the commit that nobody waits for")
        assert_whole(mount, made)

    @pytest.mark.parametrize("timer", [False, True])
    def test_client_killed_in_a_commit_by_rename_is_gone_within_a_second(self, mount, disk, stage, agent, timer):
        made = stage("1000.orbax-checkpoint-tmp")
        a = agent()
        if timer:
            a.run(TIMER)
        disk.freeze()
        a.start("os.rename(r + '/1000.orbax-checkpoint-tmp', r + '/1000')", r=str(mount.path))
        assert a.still_busy(0.7)
        a.kill()
        assert a.wait_gone(10) < 1.0
        disk.thaw()
        wait_until(lambda: listed(mount), what="the commit that nobody waits for")
        assert not (mount / "1000.orbax-checkpoint-tmp").exists()
        assert_whole(mount, made)

    def test_committed_steps_can_be_read_and_listed_while_a_commit_hangs(self, mount, disk, stage, commit, agent):
        old = stage("999")
        commit(mount / "999")
        stage("1000")
        a = agent()
        a.run(OPEN_MARKER, step=str(mount / "1000"))
        disk.freeze()
        a.start("os.close(fd)")
        assert a.still_busy(0.3)
        reader = agent()
        assert reader.run("sorted(os.listdir(r))", r=str(mount.path), timeout=5) == ["999"]
        assert reader.run("open(r + '/999/config.json', 'rb').read()", timeout=5) == old["config.json"]
        assert [c if isinstance(c, str) else c["step"] for c in mount.status()["committing"]] == ["1000"]
        disk.thaw()
        a.result(timeout=20)
        assert mount.listing() == ["1000", "999"]

    def test_full_disk_fails_the_commit_and_the_next_attempt_works(self, mount, disk, stage, commit, ckptfs):
        made = stage("1000", size=100_000)
        disk.fill_up()
        with pytest.raises(OSError) as e:
            commit(mount / "1000")
        assert errno_name(e.value) == "ENOSPC"
        assert mount.listing() == []
        assert trees.files(mount / "1000") == made
        assert any("\t1000\tENOSPC\t" in line for line in mount.errors())  # the room is a line of its own
        with pytest.raises(OSError) as e:
            trees.write(mount / "1000/more", b"x" * (1 << 20))
        assert errno_name(e.value) == "ENOSPC"
        with pytest.raises(OSError) as e:
            (mount / "2000").mkdir()
        assert errno_name(e.value) == "ENOSPC"
        disk.make_room()
        (mount / "1000/more").unlink(missing_ok=True)
        commit(mount / "1000")
        assert_whole(mount, made)


# --- Signals during a save --------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.timeout(120)
def test_timer_signal_every_10_ms_disturbs_no_save(mount, client):
    """A C client that looks at every result: Python would hide an interrupted call by calling again."""
    program = client("timer_save")
    files, size = (400, 300_000) if not FULL else (4000, 1_000_000)
    done = subprocess.run([program, mount / "1000", str(files), str(size)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) >= 10, "too few signals to show anything"
    assert listed(mount)
    assert trees.files(mount / "1000") == {str(i): bytes([i % 256]) * size for i in range(files)}
