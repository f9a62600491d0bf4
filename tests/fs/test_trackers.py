"""Trackers: small plain files that are rewritten have the old or the new content for any reader. And what is none: logs."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from support import trees
from support.commits import error_line
from support.fixtures import SLOW, all_modes, both_modes
from support.mounting import Mount, wait_until
from support.syncs import BadSyncs

pytestmark = pytest.mark.timeout(60)

REWRITE = "fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)"
READ = "open(path, 'rb').read()"


@pytest.fixture
def path(mount):
    name = str(mount / "latest_checkpointed_iteration.txt")
    trees.write(name, b"1000")
    return name


def content(path):
    with open(path, "rb") as f:
        return f.read()


@all_modes
def test_readers_see_the_old_one_until_the_close(mount, path, agent):
    if mount.mode == "uring" and SLOW > 1:
        pytest.skip("the thread sanitizer does not see what the kernel orders between its rings and its device")
    a, early = agent(), agent()
    early.run("fd = os.open(path, os.O_RDONLY)", path=path)
    for new in (b"2000", b"", b"30000"):
        before = content(path)
        a.run(REWRITE + "; os.write(fd, new)", path=path, new=new)
        assert content(path) == before
        assert os.stat(path).st_size == len(before)
        assert mount.listing() == ["latest_checkpointed_iteration.txt"]
        a.run("os.close(fd)")
        assert content(path) == new
        assert os.stat(path).st_size == len(new)
    assert early.run("os.pread(fd, 100, 0)") == b"1000"
    early.run("os.close(fd)")
    assert os.listdir(mount.store / "sessions") == []
    mount.remount()
    assert content(path) == b"30000"


@both_modes
def test_shells_rewrite_it_as_anywhere(mount, path):
    shell = f"echo 1 > {path}; cat {path}; echo 2 > {path}; cat {path}; : > {path}; wc -c < {path}; echo 3 >> {path}; echo 4 >> {path}; cat {path}"
    assert subprocess.run(["sh", "-c", shell], check=True, capture_output=True).stdout == b"1\n2\n0\n3\n4\n"
    trees.write(mount / "big", bytes(200_000))
    subprocess.run(["sh", "-c", f"cat {mount}/big > {path}".replace(str(mount), str(mount.path))], check=True)
    assert content(path) == bytes(200_000)


@both_modes
def test_an_fsync_publishes_it(mount, path, agent):
    a = agent()
    a.run(REWRITE + "; os.write(fd, b'2000')", path=path)
    assert content(path) == b"1000"
    a.run("os.fsync(fd)")
    assert content(path) == b"2000"
    a.run("os.write(fd, b' more')")
    assert content(path) == b"2000 more", "it is live from then on"
    a.run("os.close(fd)")


@both_modes
def test_one_that_passes_64_kib_is_a_log(mount, path, agent):
    a = agent()
    a.run(REWRITE + "; os.write(fd, bytes(65536))", path=path)
    time.sleep(1)
    assert content(path) == b"1000"
    a.run("os.write(fd, b'x')")
    wait_until(lambda: content(path) == bytes(65536) + b"x", 3, "the log")
    a.run("os.write(fd, b'y')")
    assert content(path).endswith(b"xy")
    b = agent()
    b.run("two = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(two, b'z')", path=path)
    assert content(path).endswith(b"xyz")
    a.run("os.close(fd)")


@both_modes
def test_one_that_stays_open_is_a_log_5_s_after_its_first_write(mount, path, agent):
    a = agent()
    a.run(REWRITE, path=path)
    time.sleep(1)
    began = time.monotonic()
    a.run("os.write(fd, b'first line')")
    wait_until(lambda: content(path) != b"1000", 8, "the log")
    assert 4 < time.monotonic() - began < 7
    assert content(path) == b"first line"
    a.run("os.write(fd, b', second')")
    assert content(path) == b"first line, second"
    a.run("os.close(fd)")
    assert content(path) == b"first line, second"


@both_modes
def test_one_that_is_written_again_later_is_a_log(mount, agent):
    path, a = str(mount / "progress"), agent()
    trees.write(path, b"1000")
    a.run(REWRITE + "; os.write(fd, b'first line')", path=path)
    time.sleep(0.5)
    assert content(path) == b"1000"
    time.sleep(1)
    a.run("os.write(fd, b', second')")
    wait_until(lambda: content(path) == b"first line, second", 3, "the log")
    a.run("os.write(fd, b', third')")
    assert content(path) == b"first line, second, third"
    a.run("os.close(fd)")


@both_modes
@pytest.mark.parametrize("name", ["train.log", "slurm-17.out", "job.err", "loss.csv", "metrics.jsonl", "events.out.tfevents.17.host"])
def test_a_log_by_its_name_is_live_from_its_open(mount, agent, name):
    a = agent()
    trees.write(mount / name, b"of the run before")
    a.run(REWRITE, path=str(mount / name))
    assert content(mount / name) == b""
    a.run("os.write(fd, b'x')")
    assert content(mount / name) == b"x"
    a.kill()


def test_one_that_is_cut_off_to_be_appended_to_is_a_log(mount, agent):
    path, a = str(mount / "notes"), agent()
    trees.write(path, b"of the run before")
    a.run("fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_APPEND); os.write(fd, b'x')", path=path)
    assert content(path) == b"x"


@both_modes
@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("how", ["true; cat >{}", "exec >{}; echo begun; cat", "cat 2>{}"], ids=["child", "own", "stderr"])
def test_the_output_of_a_program_is_live(mount, shell, how):
    path = str(mount / "train.txt")
    trees.write(path, b"of the run before")
    with subprocess.Popen([shell, "-c", how.format(path)], stdin=subprocess.PIPE):  # until its input ends
        wait_until(lambda: content(path) in (b"", b"begun\n"), 4, "it is as on the plain filesystem from the start")


def test_the_output_of_a_program_that_python_runs_is_live(mount, world):
    path = str(mount / "train.txt")
    trees.write(path, b"of the run before")
    with open(path, "wb") as out:
        run = subprocess.Popen(["sh", "-c", "echo begun; exec sleep 60"], stdout=out)
        world.callback(run.kill)
        wait_until(lambda: content(path) == b"begun\n", 4, "what the child writes is seen, though its parent has the file open")
    run.kill()
    run.wait()
    assert content(path) == b"begun\n"


@both_modes
def test_a_shells_rewrite_of_a_known_tracker_is_never_seen_in_part(mount, path, agent):
    reader = agent()
    reader.start("""
seen, until = set(), time.monotonic() + 2
while time.monotonic() < until:
    with open(path, 'rb') as f: seen.add(f.read())
seen""", path=path)
    subprocess.run(["bash", "-c", f"for i in $(seq 50); do echo 2000 > {path}; done"], check=True)
    assert reader.result(30) <= {b"1000", b"2000\n"}
    assert content(path) == b"2000\n"


@both_modes
def test_what_somebody_is_writing_live_is_truncated_for_him_too(mount, agent):
    """A logger that appends must not go on into a file that has no name any more."""
    log, a = str(mount / "train.log"), agent()
    a.run("fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644); os.write(fd, b'one')", path=log)
    subprocess.run(["sh", "-c", f"echo cut > {log}"], check=True)
    a.run("os.write(fd, b'two')")
    assert content(log) == b"cut\ntwo"


def test_a_lock_file_that_is_truncated_locks(mount, path, agent):
    """As the Python package filelock does it."""
    a, b = agent(), agent()
    code = "fd = os.open(path, os.O_RDWR | os.O_TRUNC); fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    for _ in range(3):
        a.run(code, path=path)
        assert b.errno_of(code, path=path) == "EAGAIN"
        b.run("os.close(fd)")
        a.run("os.close(fd)")
        a, b = b, a


def test_hard_links_stay_one_file(mount, path, agent):
    os.link(path, mount / "two")
    trees.write(path, b"2000")
    assert content(mount / "two") == b"2000"
    assert os.stat(path).st_nlink == 2


@both_modes
def test_a_tracker_that_is_rewritten_right_after_its_close(mount):
    """close(2) returns before the release comes, and on a busy machine that is a while."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        for i in range(1500):
            path = f"{mount.path}/latest{i}.txt"
            trees.write(path, b"1000")
            fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
            os.write(fd, b"20")
            assert content(path) == b"1000", i
            os.close(fd)
            assert content(path) == b"20", i
            os.unlink(path)
    finally:
        for b in busy:
            b.kill()
            b.wait()


@both_modes
def test_a_killed_writer_leaves_the_old_one(mount, path, agent):
    a = agent()
    a.run(REWRITE + "; os.write(fd, b'20')", path=path)
    a.kill()
    a.wait_gone(5)
    name = "latest_checkpointed_iteration.txt"
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == [name], 30, "the left-over file")
    assert content(path) == b"1000"
    assert content(mount / ".ckptfs/staged" / name / name) == b"20"
    error_line(mount, name, "killed")


@both_modes
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_the_last_words_of_a_killed_writer_are_shown(mount, agent, sig):
    path, a = str(mount / "progress.txt"), agent()
    trees.write(path, b"of the run before")
    a.run(REWRITE + "; os.write(fd, b'out of memory')", path=path)
    a.kill(sig)
    a.wait_gone(5)
    wait_until(lambda: content(path) == b"out of memory", 5)
    assert mount.errors() == [] and os.listdir(mount / ".ckptfs/staged") == []
    mount.remount()
    assert content(path) == b"out of memory"


@pytest.mark.parametrize("name", ["latest", "my_latest.txt", "checkpoint", "trainer_state.json", "latest_checkpointed_iteration.txt"])
def test_known_trackers_of_a_killed_writer_keep_the_old_content(mount, agent, name):
    a = agent()
    trees.write(mount / name, b"1000")
    a.run(REWRITE + "; os.write(fd, b'20')", path=str(mount / name))
    a.kill()
    a.wait_gone(5)
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == [name], 30, "the left-over file")
    assert content(mount / name) == b"1000"


def test_a_writer_that_is_killed_before_it_wrote_leaves_the_old_content_and_nothing_else(mount, agent):
    for name in ("progress.txt", "latest"):
        a = agent()
        trees.write(mount / name, b"old")
        a.run(REWRITE, path=str(mount / name))
        a.kill()
        a.wait_gone(5)
        wait_until(lambda: os.listdir(mount.store / "sessions") == [], 5)
        assert content(mount / name) == b"old"


HELD = """
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(0)"""


def is_over(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_what_a_child_of_a_killed_writer_holds_is_nobody_elses(mount, path, agent):
    a = agent()
    a.run(REWRITE + "; os.write(fd, b'20')" + HELD, path=path)
    child = a.run("child")
    a.kill()
    a.wait_gone(5)
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged"), 5)
    trees.write(path, b"3000")
    assert content(path) == b"3000"
    os.kill(child, 9)
    wait_until(lambda: is_over(child), 5, "it has closed the file")


def test_a_dead_daemon_leaves_the_old_one(mount, path, agent):
    a = agent()
    a.run(REWRITE + "; os.write(fd, b'20')", path=path)
    mount.kill9()
    mount.start()
    assert content(path) == b"1000"


@both_modes
def test_threads_that_rewrite_it_all_at_once_end_with_one_of_theirs(mount, path, agent):
    a, b = agent(), agent()
    code = """
failed = []
def work(i):
    for n in range(30):
        try:
            fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
            os.pwrite(fd, str(1000 + i).encode() * 3, 0)
            os.close(fd)
        except OSError as e:
            failed.append(repr(e))
threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
for t in threads: t.start()
for t in threads: t.join()
"""
    reader = agent()
    reader.start("""
seen, until = set(), time.monotonic() + seconds
while time.monotonic() < until:
    with open(path, 'rb') as f: seen.add(f.read())
seen""", path=path, seconds=3)
    a.start(code, path=path)
    b.start(code, path=path)
    a.result(40)
    b.result(40)
    assert a.run("failed") == [] and b.run("failed") == []
    allowed = {b"1000"} | {str(1000 + i).encode() * 3 for i in range(6)}
    assert reader.result(30) <= allowed
    assert content(path) in allowed


# --- The disk ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def syncs(world):
    return BadSyncs(world)


@pytest.fixture
def counting(world, store, syncs):
    m = Mount.new(world, store, prefix=syncs.prefix)
    trees.write(m / "tracker", b"old")
    trees.write(m / "model.pt", b"old")
    return m


def test_a_rewrite_costs_one_sync_and_one_with_an_fsync_two(counting, syncs, agent):
    a = agent()
    syncs.count()
    a.run(REWRITE + "; os.write(fd, b'new'); os.close(fd)", path=str(counting / "tracker"))
    assert syncs.counted() == "d"
    syncs.count()
    a.run(REWRITE + "; os.write(fd, b'new'); os.fsync(fd); os.close(fd)")
    assert syncs.counted() == "ff", "the file and its name"
    syncs.count()
    a.run(REWRITE + "; os.write(fd, b'new'); os.close(fd)", path=str(counting / "a_new_file"))
    a.run("fd = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(fd, b'new'); os.close(fd)")
    assert syncs.counted() == "", "plain files are as on the plain filesystem"


def test_a_rename_over_a_small_file_writes_the_source_out_and_a_file_step_its_name_too(counting, syncs):
    def renamed(name, to):
        trees.write(counting / name, b"new")
        syncs.count()
        os.rename(counting / name, counting / to)
        assert (counting / to).read_bytes() == b"new"
        return syncs.counted()

    assert renamed("tmp", "tracker") == "d"
    assert renamed("tmp", "model.pt") == "df"
    assert renamed("tmp", "fresh.safetensors") == "df"
    assert renamed("tmp", "plain") == ""
    trees.write(counting / "log", bytes(65537))
    assert renamed("tmp", "log") == ""


def test_a_rename_whose_source_cannot_be_written_out_changes_nothing(counting, syncs):
    trees.write(counting / "tmp", b"new")
    syncs.fail_next()
    with pytest.raises(OSError):
        os.rename(counting / "tmp", counting / "tracker")
    assert content(counting / "tracker") == b"old"
    assert content(counting / "tmp") == b"new"


def test_a_lost_write_is_said_by_close_and_the_old_one_stays(counting, syncs, agent):
    a = agent()
    a.run(REWRITE + "; os.write(fd, b'new')", path=str(counting / "tracker"))
    syncs.fail_next()
    assert a.errno_of("os.close(fd)") == "EIO"
    assert content(counting / "tracker") == b"old"
    error_line(counting, "tracker", "EIO")
    a.run(REWRITE + "; os.write(fd, b'new'); os.close(fd)")
    assert content(counting / "tracker") == b"new"


def test_what_was_lost_is_not_lost_for_who_writes_it_anew_though_a_child_has_it_open(counting, syncs, agent):
    a = agent()
    a.run(REWRITE + "; os.write(fd, b'new')" + HELD, path=str(counting / "tracker"))
    syncs.fail_next()
    assert a.errno_of("os.close(fd)") == "EIO"
    trees.write(counting / "tracker", b"newer")
    assert content(counting / "tracker") == b"newer"
    a.run("os.kill(child, 9); os.waitpid(child, 0)")


def test_an_fsync_publishes_nothing_that_was_lost_while_it_waited(counting, syncs, agent):
    a, path = agent(), counting / "tracker"
    a.run(REWRITE + "; os.write(fd, b'new')", path=str(path))
    syncs.count()
    syncs.hang("d")
    wait_until(lambda: syncs.counted() == "d", 15, "it is open for so long that it counts as a log, and is written out")
    a.start("os.fsync(fd)")
    wait_until(lambda: syncs.counted() == "df", 5, "what the client waits for")
    assert a.still_busy(0.5), "it waits for who publishes it"
    syncs.fail_next()
    syncs.go_on()
    with pytest.raises(OSError) as e:
        a.result(10)
    assert e.value.errno == errno.EIO and content(path) == b"old"
    assert a.errno_of("os.fsync(fd)") == "EIO", "it is lost for good"
    assert a.errno_of("os.close(fd)") == "EIO" and content(path) == b"old"
    error_line(counting, "tracker", "EIO")
