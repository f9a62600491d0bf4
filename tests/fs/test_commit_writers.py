"""Who may still write when a step is completed: open files, mappings, what a fork left over."""

import errno
import os
import signal
import time

import pytest

from support import trees
from support.commits import OPEN_MARKER, assert_whole, close_error, error_line, listed
from support.fixtures import FULL, both_modes

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def options():
    """Waits for open writers are short here, but where a test is about them."""
    return ["open_writers=1s"]


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


@both_modes
@pytest.mark.parametrize("options", [["open_writers=30s"]], ids=["waits long"])
def test_writer_that_is_killed_while_it_is_waited_for_fails_the_commit(mount, step, agent):
    """As DeepSpeed's rank 1, when rank 0 has written `latest`."""
    made = trees.files(step)
    writer, a = agent(), agent()
    writer.run("fd = os.open(step + '/params/busy.bin', os.O_CREAT | os.O_WRONLY); os.write(fd, b'half')", step=step)
    a.run(OPEN_MARKER, step=step)
    a.start("os.close(fd)")
    assert a.still_busy(0.5)
    writer.kill()
    with pytest.raises(OSError) as why:
        a.result(timeout=10)
    assert why.value.errno == errno.EIO
    assert not listed(mount)
    error_line(mount, "1000", "EIO", "params/busy.bin", f"{writer.pid} was killed")
    assert trees.files(step) == made | {"params/busy.bin": b"half"}, "nothing is lost"
    a.run(OPEN_MARKER, step=step)
    assert close_error(a) is None, "who says so again may have it"
    assert_whole(mount, made | {"params/busy.bin": b"half"})


@both_modes
@pytest.mark.parametrize("options", [["open_writers=30s"]], ids=["waits long"])
def test_forks_that_are_killed_while_their_file_is_waited_for_are_no_writers(mount, step, agent):
    made = trees.files(step)
    writer, a = agent(), agent()
    writer.run("fd = os.open(step + '/busy.bin', os.O_CREAT | os.O_WRONLY); os.write(fd, b'half')\n"
               "child = os.fork()\nif not child: signal.pause()", step=step)
    a.run(OPEN_MARKER, step=step)
    a.start("os.close(fd)")
    assert a.still_busy(0.5)
    writer.run("os.kill(child, 9); os.waitpid(child, 0); os.write(fd, b' whole'); os.close(fd)")
    a.result(timeout=10)
    assert_whole(mount, made | {"busy.bin": b"half whole"})


@both_modes
def test_commit_that_waited_for_a_writer_is_not_refused_for_its_last_traces(mount, stage, agent):
    """Many rounds: the writer's descriptor may outlive its handle by some microseconds, in the daemon and in the kernel."""
    writer, a = agent(), agent()
    for n in range(60 if not FULL else 1000):
        stage(str(n), files=1)
        writer.run("fd = os.open(step + '/busy', os.O_CREAT | os.O_WRONLY); os.write(fd, bytes(20_000))", step=str(mount / str(n)))
        a.run(OPEN_MARKER, step=str(mount / str(n)))
        a.start("os.close(fd)")
        a.still_busy(0.03)
        writer.run("os.close(fd)")
        a.result()
    assert mount.errors() == []


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


@pytest.mark.parametrize("mode", ["daemon"], indirect=True)
def test_what_was_stored_in_a_mapping_before_the_marker_is_in_the_step_or_the_commit_fails(mount, step, agent):
    """np.memmap closes its descriptor first; what it stores then is in the kernel's pages only, until they are written back."""
    mapper, a = agent(), agent()
    mapper.run("""
fd = os.open(step + '/mapped', os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 8192)
m = mmap.mmap(fd, 8192)
os.close(fd)
m[:4] = b'mmap'
""", step=step)
    a.run(OPEN_MARKER, step=step)
    assert close_error(a) == "EBUSY"
    assert not listed(mount)
    mapper.run("m.close()")
    made = trees.files(step)
    assert made["mapped"] == b"mmap" + bytes(8188)
    a.run(OPEN_MARKER, step=step)
    assert close_error(a) is None
    assert_whole(mount, made)


LEFTOVER = """
fd = os.open(step + '/shard.bin', os.O_CREAT | os.O_RDWR)
os.write(fd, b'the bytes of the save')
r, w = os.pipe()
r2, w2 = os.pipe()
child = os.fork()
if child == 0:
    while True:
        code = os.read(r, 1)
        try:
            if code == b'w':
                os.pwrite(fd, b'EVIL', 0)
                os.pwrite(fd, b'EVIL', 4096)
            if code == b't':
                os.ftruncate(fd, 2)
        except OSError:
            pass  # to refuse it is as good
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
        a.run(OPEN_MARKER, step=step)
        began = time.monotonic()
        assert close_error(a) is None
        assert time.monotonic() - began < 4
        assert listed(mount)
        for change in (b"w", b"t"):
            parent.run("os.write(w, change); os.read(r2, 1)", change=change)
            assert trees.files(step) == made, "a late write through the leftover shows in the committed step"
            assert os.stat(step + "/shard.bin").st_size == 21
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


@both_modes
def test_leftover_goes_on_in_its_file_when_the_commit_fails(mount, store, step, agent):
    made = trees.files(step)
    parent, a = agent(), agent()
    child = parent.run(LEFTOVER, step=step)
    (store / "log/0000000000000001").write_bytes(b"no entry")  # found only by the last call of a commit
    try:
        inode = os.stat(step + "/shard.bin").st_ino
        a.run(OPEN_MARKER, step=step)
        assert close_error(a) == "EBADMSG"
        assert os.stat(step + "/shard.bin").st_ino == inode
        assert trees.files(step) == made | {"shard.bin": b"the bytes of the save"}
        assert os.listdir(store / "trash") == []
        parent.run("os.write(w, b'w'); os.read(r2, 1)")
        late = b"EVILbytes of the save" + bytes(4096 - 21) + b"EVIL"
        assert trees.files(step)["shard.bin"] == late, "it writes in the file that the step has"
    finally:
        os.kill(child, signal.SIGKILL)
        parent.run("os.waitpid(child, 0)")
    (store / "log/0000000000000001").unlink()
    a.run(OPEN_MARKER, step=step)
    assert close_error(a) is None
    assert_whole(mount, made | {"shard.bin": late})
