"""The rules of completion, each against the real kernel: which close commits, what waits, what signals do, what fails."""

import os
import signal
import subprocess
import threading
import time

import pytest

from support import trees
from support.fixtures import FULL, both_modes, needs_root
from support.mounting import LoopDisk, Mount, errno_name, wait_until
from support.watcher import watch

pytestmark = pytest.mark.timeout(90)

OPEN_MARKER = "fd = os.open(step + '/.finalize', os.O_CREAT | os.O_WRONLY, 0o644)"
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


@pytest.fixture
def step(mount, stage):
    """A staged step, "1000", as a string for agents."""
    step_path = mount / "1000"
    stage("1000")
    return str(step_path)


def listed(mount):
    return mount.listing() == ["1000"]


def close_error(agent_, fd="fd"):
    return agent_.errno_of(f"os.close({fd})")


def assert_whole(mount, made, name="1000"):
    """The step is listed with just these bytes, and is so from a fresh start too."""
    for _ in range(2):
        assert name in mount.listing()
        assert trees.files(mount / name) == made
        mount.remount()


def error_line(mount, *words):
    """The newest line of .ckptfs/errors has all these words."""
    lines = mount.errors()
    assert lines, "nothing in .ckptfs/errors"
    for word in words:
        assert word in lines[-1], f"{word!r} is not in {lines[-1]!r}"


# --- Which close is the completion ------------------------------------------------------------------------------------


@both_modes
def test_forked_child_that_exits_does_not_commit(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER, step=step)
    for _ in range(3):
        a.run("""
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
""")
    a.run("""
child = os.fork()
if child == 0:
    os.close(fd)
    os._exit(0)
os.waitpid(child, 0)
""")
    time.sleep(0.2)
    assert not listed(mount)
    a.run("os.close(fd)")
    assert listed(mount)


def test_child_that_keeps_the_marker_open_does_not_delay_the_commit(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER, step=step)
    child = a.run("""
child = os.fork()
if child == 0:
    time.sleep(1000)
child
""")
    try:
        a.run("os.close(fd)")
        assert listed(mount)
    finally:
        os.kill(child, signal.SIGKILL)
        a.run("os.waitpid(child, 0)")
    assert listed(mount)
    assert mount.errors() == []


def test_exit_of_the_process_that_has_the_marker_open_is_its_close(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER, step=step)
    assert a.exit(3) == 3
    assert listed(mount)


def test_close_by_another_thread_of_the_opener_commits(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER, step=step)
    a.run("t = threading.Thread(target=os.close, args=(fd,)); t.start(); t.join()")
    assert listed(mount)


def test_exec_with_close_on_exec_is_a_close(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER, step=step)
    a.start("os.execv('/bin/sleep', ['sleep', '1000'])")  # Python's descriptors close on exec
    wait_until(lambda: listed(mount), what="the commit")


def test_first_close_of_a_duplicate_commits_and_the_second_says_the_same(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER, step=step)
    a.run("other = os.dup(fd); os.close(other)")
    assert listed(mount)
    assert close_error(a) is None


def test_second_close_returns_the_stored_error(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER + "; os.write(fd, b'not JSON'); other = os.dup(fd)", step=step)
    assert close_error(a, "other") == "EINVAL"
    count = len(mount.errors())
    assert close_error(a) == "EINVAL"
    assert len(mount.errors()) == count
    assert not listed(mount)


def test_last_release_commits_what_no_flush_of_the_opener_did(mount, step, agent):
    """Two processes that share one table of descriptors: the opener ends, which closes nothing; the other one closes."""
    a = agent()
    a.run("""
CLONE_FILES = 0x400
number = {"x86_64": 56}.get(os.uname().machine, 220)
child = ctypes.CDLL(None).syscall(number, CLONE_FILES | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    try:
        os.open(step + '/.finalize', os.O_CREAT | os.O_WRONLY, 0o644)
    finally:
        os._exit(0)
os.waitpid(child, 0)
names = {n: os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd") if os.path.islink("/proc/self/fd/" + n)}
fd = [int(n) for n, target in names.items() if target.endswith("/.finalize")][0]
""", step=step)
    assert not listed(mount)
    a.run("os.close(fd)")
    wait_until(lambda: listed(mount), what="the commit by the last release")
    assert mount.errors() == []


@needs_root
def test_clients_whose_pid_the_daemon_cannot_know_commit_too(world, store, commit):
    """A daemon in a pid name space of its own sees pid 0 for ours."""
    m = Mount.new(world, store, prefix=["unshare", "--pid", "--fork", "--kill-child=KILL"])
    (m / "1000").mkdir()
    made = trees.fill(m / "1000")
    commit(m / "1000")
    assert m.listing() == ["1000"] and trees.files(m / "1000") == made


@both_modes
@pytest.mark.parametrize("shell, metrics", [
    ("touch {}", {}), (": > {}", {}), ("echo '{{\"metrics\":{{\"loss\":1}}}}' > {}", {"loss": 1}), ("cp /dev/null {}", {}),
    ("printf '{{\"metrics\":' > {0}.x; printf '{{\"metrics\":{{\"loss\":2}}}}' | tee {0}", {"loss": 2}),
    ("bash -c 'echo \"{{}}\" > {}'", {}), ("dd if=/dev/null of={} status=none", {}),
])
def test_shells_complete_a_step(mount, step, ckptfs, store, shell, metrics):
    done = subprocess.run(["sh", "-c", shell.format(step + "/.finalize")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert listed(mount)
    assert not os.path.exists(step + "/.finalize")
    info = ckptfs.json("info", store, "1000")
    assert info["metrics"] == metrics
    assert mount.errors() == []


def test_after_the_commit_the_markers_handle_accepts_sync_and_attributes(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER + "; os.close(os.dup(fd))", step=step)
    assert listed(mount)
    a.run("os.fsync(fd); os.utime(fd); os.fchmod(fd, 0o600); os.write(fd, b'{}'); os.fsync(fd)")
    assert close_error(a) is None
    assert ".finalize" not in os.listdir(step)


def test_later_write_and_close_on_a_committed_handle_is_a_new_version_of_the_metadata(mount, step, agent, ckptfs, store):
    files = trees.files(step)
    a = agent()
    a.run(OPEN_MARKER + "; os.close(os.dup(fd))", step=step)
    assert ckptfs.json("info", store, "1000")["version"] == 1
    a.run("os.write(fd, b'{\"metrics\": {\"loss\": 3}}'); os.close(fd)")
    info = ckptfs.json("info", store, "1000")
    assert info["metrics"] == {"loss": 3}
    assert [v["version"] for v in info["versions"]] == [1, 2] and info["version"] == 2
    mount.remount()
    assert ckptfs.json("info", store, "1000")["metrics"] == {"loss": 3}
    assert trees.files(step) == files


def test_marker_of_a_committed_step_is_success_or_new_metadata(mount, step, commit, ckptfs, store):
    commit(step, b'{"metrics": {"loss": 3}}')
    mtime = os.stat(step).st_mtime_ns
    commit(step, b'{"metrics": {"loss": 3}}')
    assert ckptfs.json("info", store, "1000")["version"] == 1
    commit(step)
    assert ckptfs.json("info", store, "1000")["metrics"] == {"loss": 3}, "an empty marker takes nothing away"
    commit(step, b'{"metrics": {"loss": 4}}')
    info = ckptfs.json("info", store, "1000")
    assert (info["version"], info["metrics"]) == (2, {"loss": 4})
    with pytest.raises(OSError) as e:
        commit(step, b"{")
    assert errno_name(e.value) == "EINVAL"
    error_line(mount, "1000", "EINVAL")
    assert ckptfs.json("info", store, "1000")["metrics"] == {"loss": 4}
    assert os.stat(step).st_mtime_ns == mtime, "the directory keeps the time of its first version"
    assert mount.listing() == ["1000"]


def test_a_marker_deeper_in_the_tree_is_content(mount, step, commit):
    trees.write(step + "/params/.finalize", b"just a file")
    assert not listed(mount)
    commit(step)
    assert trees.files(step)["params/.finalize"] == b"just a file"


def test_the_marker_can_have_another_name(world, store, commit):
    m = Mount.new(world, store, options=["marker=DONE"])
    (m / "1000").mkdir()
    trees.write(m / "1000/.finalize", b"just a file")
    assert m.listing() == []
    trees.write(m / "1000/DONE", b"")
    assert m.listing() == ["1000"] and m.listing("1000") == [".finalize"]


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
    @pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
    @pytest.mark.parametrize("timer", [False, True])
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

    def test_what_changes_the_step_waits_for_the_commit_and_then_finds_it_committed(self, mount, step, agent):
        made = trees.files(step)
        writer, a = agent(), agent()
        writer.run("fd = os.open(step + '/late', os.O_CREAT | os.O_WRONLY)", step=step)
        a.run(OPEN_MARKER, step=step)
        a.start("os.close(fd)")
        assert a.still_busy(0.3)
        changes = {"create": "os.close(os.open(step + '/new', os.O_CREAT | os.O_WRONLY))", "open": "os.close(os.open(step + '/config.json', os.O_WRONLY))",
                   "unlink": "os.unlink(step + '/config.json')", "rename": "os.rename(step + '/params', step + '/p')", "mkdir": "os.mkdir(step + '/d')"}
        waiting = {what: agent() for what in changes}
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
        junk = disk.fill_up()
        with pytest.raises(OSError) as e:
            commit(mount / "1000")
        assert errno_name(e.value) == "ENOSPC"
        assert mount.listing() == []
        assert trees.files(mount / "1000") == made
        error_line(mount, "1000", "ENOSPC")
        with pytest.raises(OSError) as e:
            trees.write(mount / "1000/more", b"x" * (1 << 20))
        assert errno_name(e.value) == "ENOSPC"
        with pytest.raises(OSError) as e:
            (mount / "2000").mkdir()
        assert errno_name(e.value) == "ENOSPC"
        junk.unlink()
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


# --- Open writers, mappings, leftovers --------------------------------------------------------------------------------


@both_modes
def test_open_writer_is_ebusy_after_the_wait_with_its_file_and_pid(mount, step, agent):
    made = trees.files(step)
    writer, a = agent(), agent()
    writer.run("fd = os.open(step + '/params/busy.bin', os.O_CREAT | os.O_WRONLY); os.write(fd, b'half')", step=step)
    a.run(OPEN_MARKER, step=step)
    began = time.monotonic()
    assert close_error(a) == "EBUSY"
    assert 0.9 <= time.monotonic() - began < 5
    assert not listed(mount)
    error_line(mount, "1000", "EBUSY", "params/busy.bin", str(writer.pid))
    assert trees.files(step) == made | {"params/busy.bin": b"half"}
    writer.run("os.write(fd, b' whole'); os.close(fd)")
    a.run(OPEN_MARKER, step=step)
    assert close_error(a) is None
    assert_whole(mount, made | {"params/busy.bin": b"half whole"})


@both_modes
def test_writer_that_closes_in_time_is_waited_for(mount, step, agent):
    made = trees.files(step)
    writer, a = agent(), agent()
    writer.run("fd = os.open(step + '/busy.bin', os.O_CREAT | os.O_WRONLY); os.write(fd, b'half')", step=step)
    a.run(OPEN_MARKER, step=step)
    a.start("os.close(fd)")
    assert a.still_busy(0.5)
    writer.run("os.write(fd, b' whole'); os.close(fd)")
    a.result(timeout=10)
    assert_whole(mount, made | {"busy.bin": b"half whole"})


def test_readers_do_not_hold_up_a_commit(mount, step, agent):
    reader, a = agent(), agent()
    reader.run("fd = os.open(step + '/config.json', os.O_RDONLY); d = os.open(step, os.O_RDONLY)", step=step)
    a.run(OPEN_MARKER, step=step)
    began = time.monotonic()
    a.run("os.close(fd)")
    assert time.monotonic() - began < 0.8
    assert listed(mount)


def test_shared_mapping_left_open_at_commit_is_ebusy(mount, step, agent):
    made = trees.files(step)
    mapper, a = agent(), agent()
    mapper.run("""
fd = os.open(step + '/mapped', os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 8192)
m = mmap.mmap(fd, 8192)
os.close(fd)
m[:4] = b'mmap'
""", step=step)
    # mmap.mmap keeps a duplicate of the descriptor; this is about the mapping alone.
    mapper.run("""
for n in os.listdir('/proc/self/fd'):
    if os.path.islink('/proc/self/fd/' + n) and os.readlink('/proc/self/fd/' + n).endswith('/mapped'):
        os.close(int(n))
""")
    a.run(OPEN_MARKER, step=step)
    assert close_error(a) == "EBUSY"
    assert not listed(mount)
    error_line(mount, "1000", "EBUSY", "mapped")
    mapper.run("m[4:8] = b'more'")
    assert trees.files(step)["mapped"][:8] == b"mmapmore"
    mapper.kill()
    mapper.wait_gone(5)
    a.run(OPEN_MARKER, step=step)
    assert close_error(a) is None
    assert_whole(mount, made | {"mapped": b"mmapmore" + bytes(8184)})


@pytest.mark.parametrize("mode", ["daemon"], indirect=True)
def test_shared_mapping_through_the_daemon_never_changes_what_was_committed(mount, step, agent):
    """Here the kernel keeps the handle until the mapping ends, so the daemon may take it for a leftover or for a writer."""
    mapper, a = agent(), agent()
    mapper.run("""
fd = os.open(step + '/mapped', os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 8192)
m = mmap.mmap(fd, 8192)
m[:4] = b'mmap'
m.flush()
os.close(fd)
""", step=step)
    a.run(OPEN_MARKER, step=step)
    error = close_error(a)
    assert error in (None, "EBUSY")
    if error is None:
        committed = (mount / "1000/mapped").read_bytes()
        assert committed == b"mmap" + bytes(8188)
        mapper.run("m[:4] = b'evil'; m.flush()")
        assert (mount / "1000/mapped").read_bytes() == committed
        mapper.kill()
        mapper.wait_gone(5)
        mount.remount()
        assert (mount / "1000/mapped").read_bytes() == committed


LEFTOVER = """
fd = os.open(step + '/shard.bin', os.O_CREAT | os.O_RDWR)
os.write(fd, b'the bytes of the save')
r, w = os.pipe()
r2, w2 = os.pipe()
child = os.fork()
if child == 0:
    while True:
        code = os.read(r, 1)
        if code == b'w':
            os.pwrite(fd, b'EVIL', 0)
            os.pwrite(fd, b'EVIL', 4096)
        if code == b't':
            os.ftruncate(fd, 2)
        if code == b'r':
            os.write(w2, os.pread(fd, 21, 0))
        else:
            os.write(w2, b'.')
os.close(fd)
child
"""


@both_modes
def test_leftover_of_a_fork_is_committed_as_a_private_copy_and_cannot_change_it(mount, step, agent, world):
    made = trees.files(step) | {"shard.bin": b"the bytes of the save"}
    parent, a = agent(), agent()
    child = parent.run(LEFTOVER, step=step)
    try:
        reader = os.open(step + "/shard.bin", os.O_RDONLY)
        ino = os.fstat(reader).st_ino
        a.run(OPEN_MARKER, step=step)
        began = time.monotonic()
        assert close_error(a) is None
        assert time.monotonic() - began < 4
        assert listed(mount)
        for change in (b"w", b"t"):
            parent.run("os.write(w, change); os.read(r2, 1)", change=change)
            assert trees.files(step) == made, "a late write through the leftover shows in the committed step"
            assert os.stat(step + "/shard.bin").st_size == 21
        assert os.stat(step + "/shard.bin").st_ino == ino
        os.close(reader)
        assert trees.files(step) == made
    finally:
        os.kill(child, signal.SIGKILL)
        parent.run("os.waitpid(child, 0)")
    assert_whole(mount, made)


@both_modes
def test_reader_from_before_a_private_copy_was_made_and_one_from_after_both_read_on(mount, step, agent):
    """Content of one name changed backing under open files: the new open gets the committed bytes, the old ones no error."""
    parent, a = agent(), agent()
    old = os.open(step + "/config.json", os.O_RDONLY)
    child = parent.run(LEFTOVER, step=step)
    before = os.open(step + "/shard.bin", os.O_RDONLY)
    try:
        a.run(OPEN_MARKER, step=step)
        assert close_error(a) is None
        parent.run("os.write(w, b'w'); os.read(r2, 1)")
        after = os.open(step + "/shard.bin", os.O_RDONLY)
        assert os.pread(after, 100, 0) == b"the bytes of the save"
        assert os.pread(before, 21, 0) in (b"the bytes of the save", b"EVILbytes of the save"), "it has the file that the leftover has"
        parent.run("os.write(w, b'r')")
        assert parent.run("os.read(r2, 21)")[:4] == b"EVIL", "the leftover's own view is the file it has open"
        assert os.pread(old, 100, 0) == b'{"hidden": 64}\n'
        again = os.open(step + "/shard.bin", os.O_RDONLY)
        assert os.pread(again, 100, 0) == b"the bytes of the save"
        for fd in (old, before, after, again):
            os.close(fd)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.run("os.waitpid(child, 0)")


def test_leftover_that_still_writes_is_a_writer(mount, step, agent):
    parent, a = agent(), agent()
    child = parent.run("""
fd = os.open(step + '/busy.bin', os.O_CREAT | os.O_RDWR)
child = os.fork()
if child == 0:
    i = 0
    while True:
        i += 1
        os.write(fd, b'x')
        time.sleep(0.02)
os.close(fd)
child
""", step=step)
    try:
        a.run(OPEN_MARKER, step=step)
        assert close_error(a) == "EBUSY"
        error_line(mount, "busy.bin")
    finally:
        os.kill(child, signal.SIGKILL)
        parent.run("os.waitpid(child, 0)")
    a.run(OPEN_MARKER, step=step)
    assert close_error(a) is None
    size = os.stat(step + "/busy.bin").st_size
    assert size > 10 and (mount / "1000/busy.bin").read_bytes() == b"x" * size


def test_old_reader_keeps_the_old_bytes_and_a_new_open_gets_the_new(mount, commit):
    """A name that gets other content: by rename, in a staged step and in a plain folder."""
    for folder in ("1000", "plain"):
        (mount / folder).mkdir()
        path = mount / folder / "f"
        trees.write(path, b"old" * 50_000)
        reader = os.open(path, os.O_RDONLY)
        trees.write(mount / folder / "f.new", b"NEW" * 60_000)
        os.rename(mount / folder / "f.new", path)
        assert path.read_bytes() == b"NEW" * 60_000
        assert os.pread(reader, 1 << 20, 0) == b"old" * 50_000
        os.close(reader)
    commit(mount / "1000")
    assert (mount / "1000/f").read_bytes() == b"NEW" * 60_000


# --- Markers that say nonsense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    b"not json", b"{", b"[]", b"3", b'"text"', b"null", b'{"temporary": "yes"}', b'{"metrics": []}', b'{"world_size": "8"}', b'{"extras": 3}',
    b'{} trailing', b'{"metrics": {"loss": NaN}}', b'{"extras": {"a": "\xff\xfe"}}', b"\0\0\0\0", b'{"extras":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"extras": {"a": "' + b"x" * 70_000 + b'"}}'], ids=lambda t: t[:20].decode("latin-1"))
def test_marker_that_does_not_parse_is_einval_and_loses_nothing(mount, step, commit, ckptfs, store, text):
    made = trees.files(step)
    with pytest.raises(OSError) as e:
        commit(step, text)
    assert errno_name(e.value) in ("EINVAL", "EFBIG" if len(text) > 64 << 10 else "EINVAL")
    assert not listed(mount)
    error_line(mount, "1000", errno_name(e.value))
    assert trees.files(step) in (made, made | {".finalize": text}), "the staged files are as they were"
    commit(step, b'{"metrics": {"loss": 1}}')
    assert ckptfs.json("info", store, "1000")["metrics"] == {"loss": 1}
    assert_whole(mount, made)


# --- Names ------------------------------------------------------------------------------------------------------------


def test_second_mkdir_of_a_staged_name_is_eexist(mount, step, agent):
    assert agent().errno_of("os.mkdir(step)", step=step) == "EEXIST"
    assert agent().errno_of("os.mkdir(step)", step=step) == "EEXIST"
    assert subprocess.run(["mkdir", "-p", step], check=False).returncode == 0


@both_modes
@pytest.mark.parametrize("temp, final", [("1000.orbax-checkpoint-tmp", "1000"), ("1000.orbax-checkpoint-tmp-1234567", "1000"),
                                         ("5.partial_save", "5"), ("tmp-checkpoint-500", "checkpoint-500"), ("best.partial_save", "best")])
def test_rename_from_a_temp_name_commits(mount, stage, ckptfs, store, temp, final):
    made = stage(temp)
    assert mount.listing() == [] and not (mount / final).exists()
    with pytest.raises(FileNotFoundError):
        os.open(mount / final, os.O_RDONLY)
    os.rename(mount / temp, mount / final)
    assert mount.listing() == [final]
    with pytest.raises(FileNotFoundError):
        os.stat(mount / temp)
    assert ckptfs.json("info", store, final)["event"] == "rename"
    assert_whole(mount, made, final)


def test_rename_from_a_temp_name_commits_in_a_folder_too(mount):
    (mount / "run").mkdir()
    (mount / "run/7.orbax-checkpoint-tmp").mkdir()
    made = trees.fill(mount / "run/7.orbax-checkpoint-tmp")
    assert mount.listing("run") == []
    os.rename(mount / "run/7.orbax-checkpoint-tmp", mount / "run/7")
    for _ in range(2):
        assert mount.listing("run") == ["7"]
        assert trees.files(mount / "run/7") == made
        mount.remount()


@pytest.mark.parametrize("old, new", [("checkpoint-500", "checkpoint-500.bad"), ("1000", "1001"), ("1.orbax-checkpoint-tmp", "2.orbax-checkpoint-tmp"),
                                      ("1000", "1000.orbax-checkpoint-tmp")])
def test_any_other_rename_of_a_staged_step_leaves_it_staged(mount, stage, commit, old, new):
    made = stage(old)
    os.rename(mount / old, mount / new)
    assert mount.listing() == []
    assert not (mount / old).exists()
    assert trees.files(mount / new) == made
    (mount / old).mkdir()
    commit(mount / new)
    assert_whole(mount, made, new)


def test_rename_of_a_temp_name_inside_a_step_is_content(mount):
    root = mount / "1.orbax-checkpoint-tmp"
    (root / "state.orbax-checkpoint-tmp").mkdir(parents=True)
    trees.write(root / "state.orbax-checkpoint-tmp/d", b"data")
    os.rename(root / "state.orbax-checkpoint-tmp", root / "state")
    assert mount.listing() == []
    os.rename(root, mount / "1")
    assert trees.files(mount / "1") == {"state/d": b"data"}


def test_rename_of_a_staged_step_into_another_moves_its_tree_there(mount, agent):
    """What Orbax's partial saving does: saves in a temp name, each grafted into the step that is being put together."""
    final = mount / "5.partial_save"
    final.mkdir()
    made = {}
    for i in range(2):
        temp = mount / "5.partial_save.orbax-checkpoint-tmp"
        temp.mkdir()
        part = trees.fill(temp, seed=i)
        trees.write(temp / "commit_success.txt", b"")
        held = os.open(temp / "config.json", os.O_RDONLY)
        ino = os.stat(temp / "params").st_ino
        os.rename(temp, final / f"5.partial_save.pending_{i}")
        assert not temp.exists() and mount.listing() == [] and mount.listing("5.partial_save") == [f"5.partial_save.pending_{k}" for k in range(i + 1)]
        assert os.stat(final / f"5.partial_save.pending_{i}/params").st_ino == ino
        assert os.read(held, 100) == part["config.json"]
        os.close(held)
        made |= {f"state{i}/{p}": d for p, d in part.items()} | {f"state{i}/commit_success.txt": b""}
    assert not (mount / "5").exists()
    for i in range(2):
        os.rename(final / f"5.partial_save.pending_{i}", final / f"state{i}")
    os.rename(final, mount / "5")
    assert mount.listing() == ["5"]
    assert_whole(mount, made, "5")


def test_commit_under_the_name_of_a_committed_step_is_refused_and_loses_nothing(mount, stage, commit):
    first = stage("1000", seed="first")
    commit(mount / "1000")
    second = stage("1000.orbax-checkpoint-tmp", seed="second")
    with pytest.raises(OSError) as e:
        os.rename(mount / "1000.orbax-checkpoint-tmp", mount / "1000")
    assert errno_name(e.value) in ("ENOTEMPTY", "EEXIST")
    assert trees.files(mount / "1000") == first
    assert trees.files(mount / "1000.orbax-checkpoint-tmp") == second
    os.rename(mount / "1000.orbax-checkpoint-tmp", mount / "1001")
    assert mount.listing() == ["1000", "1001"]
    assert_whole(mount, second, "1001")


def test_commit_by_rename_with_an_open_writer_is_ebusy_soon(mount, stage, agent):
    made = stage("1000.orbax-checkpoint-tmp")
    temp = mount / "1000.orbax-checkpoint-tmp"
    writer = agent()
    writer.run("fd = os.open(p, os.O_CREAT | os.O_WRONLY); os.write(fd, b'h')", p=str(temp / "busy"))
    began = time.monotonic()
    with pytest.raises(OSError) as e:
        os.rename(temp, mount / "1000")
    assert errno_name(e.value) == "EBUSY"
    assert time.monotonic() - began < 2.0, "the folder is locked for everyone meanwhile"
    error_line(mount, "EBUSY", "busy", str(writer.pid))
    assert mount.listing() == [] and not (mount / "1000").exists()
    writer.run("os.close(fd)")
    os.rename(temp, mount / "1000")
    assert_whole(mount, made | {"busy": b"h"})


def test_removing_a_staged_step_frees_its_name_and_touches_no_other(mount, stage, commit):
    kept = stage("999")
    commit(mount / "999")
    stage("1000.orbax-checkpoint-tmp")
    subprocess.run(["rm", "-r", mount / "1000.orbax-checkpoint-tmp"], check=True)
    assert not (mount / "1000.orbax-checkpoint-tmp").exists()
    made = stage("1000.orbax-checkpoint-tmp", seed="again")
    os.rename(mount / "1000.orbax-checkpoint-tmp", mount / "1000")
    assert_whole(mount, made, "1000")
    assert_whole(mount, kept, "999")


# --- Watched ----------------------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.timeout(240)
def test_no_step_is_ever_listed_before_it_is_whole(world, mount, commit):
    (mount / "run").mkdir()
    rounds = 12 if not FULL else 200
    with watch(world, mount.path, mount / "run", ignored=["run"]) as w:
        def by_marker():
            for n in range(rounds):
                (mount / str(n)).mkdir()
                trees.fill(mount / str(n), seed=n, files=12)
                commit(mount / str(n))

        def by_rename():
            for n in range(rounds):
                temp = mount / f"run/{n}.orbax-checkpoint-tmp"
                temp.mkdir()
                trees.fill(temp, seed=n, files=12)
                os.rename(temp, mount / f"run/{n}")

        savers = [threading.Thread(target=f) for f in (by_marker, by_rename)]
        for s in savers:
            s.start()
        for s in savers:
            s.join()
    w.check(expect=2 * rounds)
    assert len(w.sights) > rounds
