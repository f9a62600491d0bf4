"""Which close of the marker completes a step, and what the marker may say: each rule against the real kernel."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from support import trees
from support.commits import OPEN_MARKER, assert_whole, close_error, error_line, listed
from support.fixtures import both_modes, needs_root
from support.mounting import Mount, errno_name, wait_until
from support.preload import preload

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def options():
    """Waits for open writers are short here, but where a test is about them."""
    return ["open_writers=1s"]


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


def test_first_close_of_a_written_duplicate_commits_and_the_second_says_the_same(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER + "; os.write(fd, b'{}')", step=step)
    a.run("other = os.dup(fd); os.close(other)")
    assert listed(mount)
    assert close_error(a) is None


@both_modes
def test_an_empty_marker_is_not_complete_while_its_process_can_still_write_it(mount, step, agent, ckptfs, store):
    a = agent()
    a.run(OPEN_MARKER + "; other = os.dup(fd); os.close(fd)", step=step)
    assert not listed(mount) and mount.errors() == []
    a.run("read = os.open('/proc/self/fd/%d' % other, os.O_RDONLY)")
    a.run("os.write(other, b'{\"metrics\": {\"loss\": 1}}'); os.close(other)")
    assert listed(mount)
    info = ckptfs.json("info", store, "1000")
    assert (info["metrics"], info["version"]) == ({"loss": 1}, 1)


def test_an_empty_marker_is_complete_when_only_a_reader_of_it_is_left(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER + "; read = os.open(step + '/.finalize', os.O_RDONLY); os.close(fd)", step=step)
    assert listed(mount)


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
    ("bash -c '{{ echo \"{{\\\"metrics\\\":\"; printf \"%s\" \"{{\\\"loss\\\":3}}}}\"; }} > {}'", {"loss": 3}),
    ("exec 5> {0}; echo '{{\"metrics\":{{\"loss\":4}}}}' >&5; exec 5>&-", {"loss": 4}),
    ("python3 -c 'open(\"{}\", \"w\").write(\"{{\\\"metrics\\\":{{\\\"loss\\\":5}}}}\")'", {"loss": 5}),
    ("bash -c ': > {0}'", {}), ("zsh -c \"echo '{{}}' > {}\"", {}),
])
def test_shells_complete_a_step(mount, step, ckptfs, store, shell, metrics):
    if shell.startswith("zsh") and not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    done = subprocess.run(["sh", "-c", shell.format(step + "/.finalize")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert listed(mount)
    assert not os.path.exists(step + "/.finalize")
    info = ckptfs.json("info", store, "1000")
    assert (info["metrics"], info["version"]) == (metrics, 1), "each completes it once"
    assert mount.errors() == []


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_that_writes_wrong_json_completes_nothing(mount, step, shell):
    made = trees.files(step)
    subprocess.run([shell, "-c", f"echo '{{\"metrics\":{{\"loss\":1.5' > {step}/.finalize"], check=False)
    assert not listed(mount) and trees.files(step) == made
    error_line(mount, "1000", "EINVAL")
    assert len(mount.errors()) == 1


def test_after_the_commit_the_markers_handle_accepts_sync_and_attributes(mount, step, agent):
    a = agent()
    a.run(OPEN_MARKER + "; os.write(fd, b' '); os.close(os.dup(fd))", step=step)
    assert listed(mount)
    a.run("os.fsync(fd); os.utime(fd); os.fchmod(fd, 0o600); os.write(fd, b'{}'); os.fsync(fd)")
    assert close_error(a) is None
    assert ".finalize" not in os.listdir(step)


def test_later_write_and_close_on_a_committed_handle_is_a_new_version_of_the_metadata(mount, step, agent, ckptfs, store):
    files = trees.files(step)
    a = agent()
    a.run(OPEN_MARKER + "; os.write(fd, b' '); os.close(os.dup(fd))", step=step)
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
    m.remount(options=[])
    assert m.listing("1000") == [".finalize"]
    assert (m / "1000/.finalize").read_bytes() == b"just a file", "what is listed can be read, whatever the marker is now"
    assert m.listing() == ["1000"]


@both_modes
def test_who_only_reads_an_open_marker_completes_nothing(mount, step, agent):
    made = trees.files(step)
    writer, reader = agent(), agent()
    writer.run(OPEN_MARKER, step=step)
    reader.run("with open(step + '/.finalize') as f: f.read()", step=step)
    assert not listed(mount), "its close is not the writer's"
    reader.run("fd = os.open(step + '/.finalize', os.O_RDONLY)")
    writer.kill()
    writer.wait_gone(5)
    reader.run("os.close(fd)")
    time.sleep(0.3)  # RELEASE comes after the close, by itself
    assert not listed(mount), "who had it open for writing was killed"
    trees.write(step + "/.finalize", b"")
    assert_whole(mount, made)


# --- Markers that say nonsense ----------------------------------------------------------------------------------------


def test_marker_that_is_made_too_large_by_truncate_is_refused_as_one_that_is_written(mount, step):
    fd = os.open(f"{step}/.finalize", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"{}")
    for act in (lambda: os.ftruncate(fd, 70_000), lambda: os.close(fd)):
        with pytest.raises(OSError) as e:
            act()
        assert errno_name(e.value) == "EFBIG"
    assert not listed(mount)


@pytest.mark.parametrize("text", [
    b"not json", b"{", b"[]", b"3", b'"text"', b"null", b'{"temporary": "yes"}', b'{"metrics": []}', b'{"world_size": "8"}', b'{"extras": 3}',
    b'{} trailing', b'{"metrics": {"loss": "NaN"}}', b'{"extras": {"a": "\xff\xfe"}}', b"\0\0\0\0", b'{"extras":' + b"[" * 5000 + b"]" * 5000 + b"}",
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


# --- Filesystems that do not keep the type of an entry in its directory -----------------------------------------------


def test_files_are_listed_where_directories_do_not_tell_types(world, store, commit):
    m = Mount.new(world, store, prefix=preload(world, "no_types"))
    (m / "1000").mkdir()
    made = trees.fill(m / "1000")
    os.symlink("config.json", m / "1000/link")
    (m / "plain").mkdir()
    (m / "plain/log").write_text("x")
    assert trees.files(m / "1000") == made and os.path.islink(m / "1000/link")
    assert "link" in os.listdir(m / "1000")
    assert m.listing() == ["plain"] and m.listing("plain") == ["log"]
    commit(m / "1000")
    assert m.listing() == ["1000", "plain"]
    m.remount()
    assert trees.files(m / "1000") == made
    assert m.listing() == ["1000", "plain"] and m.listing("plain") == ["log"]
