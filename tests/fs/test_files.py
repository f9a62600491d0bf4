"""File steps: plain files of which nobody sees a part."""

import os
import pickle
import stat
import struct
import subprocess
import time
from pathlib import Path

import pytest

from support import trees
from support.checkpoint_files import FORMATS, hdf5, npy, pickled, safetensors, zip_file
from support.commits import error_line
from support.fixtures import SLOW, all_modes, both_modes, needs_root
from support.mounting import LoopDisk, Mount, errno_name, wait_until
from support.preload import preload
from support.syncs import BadSyncs

pytestmark = pytest.mark.timeout(60)

OPEN_NEW = "fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)"
OPEN = "fd = os.open(path, os.O_RDWR)"
READ = "open(path, 'rb').read()"
OLD, NEW = zip_file(1), zip_file(2)


@pytest.fixture
def path(mount):
    return str(mount / "model.pt")


@pytest.fixture
def old(path):
    trees.write(path, OLD)


def left(mount, name="model.pt"):
    """What the writer of a file step had written, as it is kept."""
    return (mount / ".ckptfs/staged" / name / name).read_bytes()


def nothing_left(mount):
    return os.listdir(mount / ".ckptfs/staged") == [] and os.listdir(mount.store / "sessions") == []


# --- What is seen when ------------------------------------------------------------------------------------------------


@both_modes
def test_new_one_is_reached_by_name_and_listed_at_its_close(mount, path):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o640)
    os.write(fd, b"half")
    assert mount.listing() == []
    with open(path, "rb") as f:
        assert f.read() == b"half"
    assert os.stat(path).st_size == 4
    os.write(fd, b" whole")
    os.close(fd)
    assert mount.listing() == ["model.pt"]
    assert os.stat(path).st_mode & 0o777 == 0o640
    assert nothing_left(mount)
    mount.remount()
    with open(path, "rb") as f:
        assert f.read() == b"half whole"


@all_modes
def test_readers_see_the_old_one_until_the_close_and_old_readers_after_it(mount, path, old, agent):
    if mount.mode == "uring" and SLOW > 1:
        pytest.skip("the thread sanitizer does not see what the kernel orders between its rings and its device")
    number = os.stat(path).st_ino
    reader, early, a = agent(), agent(), agent()
    early.run("fd = os.open(path, os.O_RDONLY)", path=path)
    a.run(OPEN_NEW + "; os.write(fd, new[:100])", path=path, new=NEW)
    for who in (reader, a, early):
        assert who.run(READ, path=path) == OLD
        assert who.run("os.stat(path).st_size", path=path) == len(OLD)
    assert mount.listing() == ["model.pt"]
    assert os.stat(path).st_ino == number
    a.run("os.write(fd, new[100:]); os.close(fd)")
    for who in (reader, a, early):
        assert who.run("os.stat(path).st_size", path=path) == len(NEW)
        assert who.run(READ, path=path) == NEW
    assert os.stat(path).st_ino != number
    assert early.run("os.pread(fd, 10000, 0)") == OLD
    assert nothing_left(mount)


@both_modes
@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_replaced_as_a_whole(mount, agent, name):
    a, path, make = agent(), str(mount / name), FORMATS[name]
    for seed in (1, 2, 3):
        a.run(OPEN_NEW + "; os.write(fd, data); os.close(fd)", path=path, data=make(seed))
        assert (mount / name).read_bytes() == make(seed)
    assert nothing_left(mount)


@both_modes
def test_every_open_for_writing_joins_what_is_being_written(mount, path, agent):
    writers = [agent() for _ in range(3)]
    writers[0].run(OPEN_NEW, path=path)
    for i, a in enumerate(writers[1:], 1):
        a.run(OPEN, path=path)
        a.run("os.pwrite(fd, bytes([i]) * 10, i * 10)", i=i)
    writers[0].run("os.pwrite(fd, bytes(10), 0); os.close(fd)")
    assert mount.listing() == []
    writers[1].run("os.close(fd)")
    assert mount.listing() == []
    writers[2].run("os.close(fd)")
    assert mount.listing() == ["model.pt"]
    assert (mount / "model.pt").read_bytes() == bytes(10) + b"\1" * 10 + b"\2" * 10


@both_modes
def test_writers_join_where_there_is_an_old_one_too(mount, path, old, agent):
    a, b = agent(), agent()
    a.run(OPEN_NEW, path=path)
    b.run(OPEN, path=path)
    assert b.run("os.fstat(fd).st_size") == 0
    a.run("os.pwrite(fd, new[:500], 0); os.close(fd)", new=NEW)
    assert b.run(READ, path=path) == OLD
    b.run("os.pwrite(fd, new[500:], 500); os.close(fd)", new=NEW)
    assert b.run(READ, path=path) == NEW


def test_many_threads_open_it_for_writing_at_once(mount, path, old, agent):
    """Each is led to the new file by its own thread, whatever the others do at the same time."""
    a = agent()
    a.run("""
def work(i):
    for round in range(20):
        fd = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(fd, new[i * 100:(i + 1) * 100] if i < 15 else new[i * 100:], i * 100)
        except OSError as e:
            failed.append(e)
        os.close(fd)
failed = []
main = os.open(path, os.O_WRONLY | os.O_TRUNC)
threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
for t in threads: t.start()
for t in threads: t.join()
""", path=path, new=NEW)
    assert a.run("failed") == []
    assert a.run(READ, path=path) == OLD
    a.run("os.close(main)")
    assert a.run(READ, path=path) == NEW


@both_modes
def test_names_that_are_being_written_are_taken(mount, path, agent):
    a, b = agent(), agent()
    a.run(OPEN_NEW, path=path)
    for code in ("os.mkdir(path)", "os.symlink('x', path)", "os.link(other, path)", "os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)"):
        trees.write(mount / "other", b"")
        assert b.errno_of(code, path=path, other=str(mount / "other")) == "EEXIST", code
    a.run("os.close(fd)")
    assert mount.listing() == ["model.pt", "other"]


# --- Which close ------------------------------------------------------------------------------------------------------


@both_modes
def test_a_forks_close_and_exit_publish_nothing(mount, path, agent):
    a = agent()
    a.run(OPEN_NEW + """
os.write(fd, b'one')
pid = os.fork()
if not pid:
    os.close(fd)
    os._exit(0)
os.waitpid(pid, 0)
pid = os.fork()
if not pid: os._exit(0)
os.waitpid(pid, 0)""", path=path)
    assert mount.listing() == []
    a.run("os.write(fd, b' two'); os.close(fd)")
    assert (mount / "model.pt").read_bytes() == b"one two"


def test_a_forks_leftover_does_not_keep_it_back_and_the_next_save_is_as_good(mount, path, agent):
    a, b = agent(), agent()
    a.run(OPEN_NEW + """
os.write(fd, old)
child = os.fork()
if not child:
    time.sleep(30)
    os._exit(0)
os.close(fd)""", path=path, old=OLD)
    assert (mount / "model.pt").read_bytes() == OLD
    b.run(OPEN_NEW + "; os.write(fd, new[:9])", path=path, new=NEW)
    assert (mount / "model.pt").read_bytes() == OLD
    b.run("os.write(fd, new[9:]); os.close(fd)")
    assert (mount / "model.pt").read_bytes() == NEW
    a.run("os.kill(child, 9); os.waitpid(child, 0)")


def test_only_the_last_descriptor_of_a_process_counts(mount, path, agent):
    a = agent()
    a.run(OPEN_NEW + "; two = os.dup(fd); reader = os.open(path, os.O_RDONLY); os.write(fd, b'1'); os.close(fd)", path=path)
    assert mount.listing() == []
    a.run("os.write(two, b'2'); os.close(two)")
    assert mount.listing() == ["model.pt"]
    assert (mount / "model.pt").read_bytes() == b"12"


def test_a_shell_that_redirects_into_it_publishes_at_its_end(mount, path, old):
    subprocess.run(["sh", "-c", f"(head -c 100; sleep 0.3; cmp -s {path} old || echo early >&2; cat) < new > {path}"], check=True, cwd=_with(mount, old=OLD, new=NEW))
    assert (mount / "model.pt").read_bytes() == NEW
    done = subprocess.run(["sh", "-c", f"cat new > {path}; cat {path}"], check=True, capture_output=True, cwd=_with(mount, new=OLD))
    assert done.stdout == OLD


def _with(mount, **files):
    for name, data in files.items():
        (mount.store.parent / name).write_bytes(data)
    return mount.store.parent


def test_one_that_its_process_never_closes_is_published_at_its_exit(mount, path, agent):
    a = agent()
    a.run(OPEN_NEW + "; os.write(fd, b'whole')", path=path)
    assert a.exit(3) == 3
    wait_until(lambda: mount.listing() == ["model.pt"], 5)


@both_modes
def test_an_incomplete_one_never_replaces_a_whole_one(mount, agent):
    for name, make in FORMATS.items():
        path, a = str(mount / name), agent()
        trees.write(path, make(1))
        for cut in (12, 40, len(make(2)) // 2, len(make(2)) - 1):
            a.run(OPEN_NEW + "; os.write(fd, data)", path=path, data=make(2)[:cut])
            assert a.errno_of("os.close(fd)") == "EINVAL", (name, cut)
            error_line(mount, name, "EINVAL")
            wait_until(lambda name=name: name in os.listdir(mount / ".ckptfs/staged"), 5)
            assert left(mount, name) == make(2)[:cut]
            mount.world.program("abort", "--yes", mount.store, name)
            assert (mount / name).read_bytes() == make(1)
        a.run(OPEN_NEW + "; os.write(fd, data); os.close(fd)", path=path, data=make(3))
        assert (mount / name).read_bytes() == make(3)
    assert nothing_left(mount)


RAW = struct.pack("<4H", 640, 7, 7, 7)  # begins as a pickle does
UNUSUAL = {
    "two.npy": npy(1) + npy(2), "tail.npy": npy(1) + b"tail", "raw.npy": b"\1\2\3\4" * 100, "tokens.bin": RAW, "raw.ckpt": RAW, "old.pt": pickle.dumps({"a": 1}, 0),
    "pickles.pt": pickled(1) + pickled(2), "pickle-and-array.ckpt": pickled(1) + bytes(40), "comment.npz": zip_file(1)[:-2] + b"\5\0hello", "tail.npz": zip_file(1) + b"tail",
    "text.bin": b"hello\n", "text.safetensors": b"hello\n", "packed.ckpt": b"\x28\xb5\x2f\xfd" + bytes(100), "map.msgpack": b"\x81\xa1a\1", "tail.safetensors": safetensors(1) + b"tail",
    "emptied.ckpt": b"", "emptied.safetensors": b"", "emptied.npy": b"", "model.pkl": pickled(1), "a.zip": zip_file(1),
}


@both_modes
def test_a_file_of_an_unusual_form_replaces_another_as_any(mount, agent):
    a = agent()
    for name, data in UNUSUAL.items():
        path = str(mount / name)
        trees.write(path, next((make(1) for whole, make in FORMATS.items() if whole.endswith(name[name.index("."):])), OLD))
        for new in (data, data):
            a.run(OPEN_NEW + "; os.write(fd, new); os.close(fd)", path=path, new=new)
            assert (mount / name).read_bytes() == new, name
    assert nothing_left(mount) and mount.errors() == []


@both_modes
@pytest.mark.parametrize("name", ["model.pth.tar", "model.pkl", "model.ubj", "model.eqx", "model.gguf", "model.onnx", "model.zip", "checkpoint_12"])
def test_names_of_file_steps(mount, agent, name):
    a = agent()
    trees.write(mount / name, OLD)
    a.run(OPEN_NEW + "; os.write(fd, new[:50])", path=str(mount / name), new=NEW)
    assert (mount / name).read_bytes() == OLD
    a.run("os.write(fd, new[50:]); os.close(fd)")
    assert (mount / name).read_bytes() == NEW and nothing_left(mount)


# --- What is written for long ------------------------------------------------------------------------------------------


@both_modes
def test_one_that_several_processes_have_mapped_is_live(mount, agent):
    """As numpy.memmap does it: it closes its file, and the mapping keeps another descriptor."""
    path, maker, workers, reader = str(mount / "tokens.bin"), agent(), [agent(), agent()], agent()
    trees.write(path, b"old" * 4096)
    maker.run("fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC); os.ftruncate(fd, 8192); m = mmap.mmap(fd, 8192); os.close(fd)", path=path)
    assert reader.run(READ, path=path) == b"old" * 4096, "its maker alone may still be saving"
    for i, worker in enumerate(workers):
        worker.run("fd = os.open(path, os.O_RDWR); m = mmap.mmap(fd, 8192); os.close(fd); m[i * 4096:(i + 1) * 4096] = bytes([i + 1]) * 4096; m.flush()", path=path, i=i)
    assert reader.run(READ, path=path) == maker.run("m[:]") == b"\1" * 4096 + b"\2" * 4096
    maker.run("m[0] = 7; m.flush()")
    assert reader.run(READ, path=path)[0] == 7
    maker.kill()
    assert reader.run(READ, path=path)[0] == 7 and nothing_left(mount)


@both_modes
def test_hdf5_is_live_once_its_superblock_says_swmr(mount, agent):
    path, a = str(mount / "log.h5"), agent()
    block = bytearray(hdf5(1))
    trees.write(path, block)
    block[8], block[9], block[11] = 3, 8, 1
    a.run(OPEN_NEW + "; os.write(fd, data)", path=path, data=bytes(block))
    time.sleep(1)
    assert (mount / "log.h5").read_bytes() == hdf5(1)
    a.run("os.pwrite(fd, bytes([5]), 11)")
    wait_until(lambda: (mount / "log.h5").read_bytes() == bytes(block[:11]) + b"\5" + bytes(block[12:]), 5)
    a.run("os.lseek(fd, 0, 2); os.write(fd, b'more')")
    assert (mount / "log.h5").read_bytes().endswith(b"more")
    a.kill()
    assert (mount / "log.h5").read_bytes().endswith(b"more") and nothing_left(mount)


@both_modes
def test_one_that_is_synced_again_a_minute_later_and_has_changed_is_live(world, store, scratch, mode, agent):
    (scratch / "later").write_text("0")
    m = Mount.new(world, store, mode=mode, prefix=preload(world, "later", LATER=scratch / "later"))
    path, still, a, b = str(m / "trace.bin"), str(m / "still.bin"), agent(), agent()
    for p, who in ((path, a), (still, b)):
        trees.write(p, OLD)
        who.run(OPEN_NEW + "; os.write(fd, b'one'); os.fsync(fd); os.write(fd, b'two'); os.fsync(fd)", path=p)
        assert Path(p).read_bytes() == OLD
    b.run("os.fsync(fd)")
    (scratch / "later").write_text("61")
    a.run("os.write(fd, b'three'); os.fsync(fd)")
    assert (m / "trace.bin").read_bytes() == b"onetwothree"
    a.run("os.write(fd, b'four')")
    assert (m / "trace.bin").read_bytes() == b"onetwothreefour", "it is live from then on"
    a.kill()
    a.wait_gone(5)
    assert (m / "trace.bin").read_bytes() == b"onetwothreefour"
    assert (m / "still.bin").read_bytes() == OLD


def test_an_array_file_whose_header_is_written_first_and_then_mapped(mount, agent):
    """As numpy.lib.format.open_memmap does it, over an older file."""
    path, data, a = str(mount / "a.npy"), npy(2), agent()
    trees.write(path, npy(1))
    a.run(OPEN_NEW + "; os.write(fd, head); os.close(fd)", path=path, head=data[:-4000])
    assert (mount / "a.npy").read_bytes() == npy(1)
    a.run(OPEN + "; os.pwrite(fd, b'\\0', size - 1); m = mmap.mmap(fd, size); m[:] = data; m.close(); os.close(fd)", path=path, data=data, size=len(data))
    assert (mount / "a.npy").read_bytes() == data
    assert nothing_left(mount)


def test_an_array_file_of_which_nothing_but_the_header_came_is_named_after_a_minute(world, store, scratch, agent, ckptfs):
    (scratch / "later").write_text("0")
    m = Mount.new(world, store, prefix=preload(world, "later", LATER=scratch / "later"))
    path, data, a = str(m / "a.npy"), npy(2), agent()
    trees.write(path, npy(1))
    for round_ in (1, 2):
        a.run(OPEN_NEW + "; os.write(fd, head); os.close(fd)", path=path, head=data[:-4000])
        assert (m / "a.npy").read_bytes() == npy(1) and len(m.errors()) == round_ - 1
        time.sleep(0.5)  # the minute begins with the release, which the kernel sends behind the close
        (scratch / "later").write_text(str(100 * round_))
        wait_until(lambda: len(m.errors()) == round_, what="a line in errors")
        assert "a.npy" in m.errors()[-1] and "not whole" in m.errors()[-1]
        if round_ == 1:  # its writer lives: it may still come
            a.run(OPEN + "; os.pwrite(fd, data, 0); os.close(fd)", path=path, data=data)
            assert (m / "a.npy").read_bytes() == data and nothing_left(m)
            trees.write(path, npy(1))
    a.kill()
    a.wait_gone(5)
    wait_until(lambda: [row["name"] for row in ckptfs.json("sessions", store)] == ["a.npy"], what="the left-over session")
    assert (m / "a.npy").read_bytes() == npy(1) and len(m.errors()) == 2
    trees.write(path, data)
    assert (m / "a.npy").read_bytes() == data


# --- Writers that die -------------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("name", [*FORMATS, "model.msgpack", "checkpoint_7"])
def test_a_killed_writer_publishes_nothing(mount, agent, name):
    make = FORMATS.get(name, zip_file)
    path = str(mount / name)
    a = agent()
    a.run(OPEN_NEW + "; os.write(fd, data)", path=path, data=make(1))
    a.kill()
    a.wait_gone(5)
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == [name], 5)
    assert mount.listing() == []
    assert (mount / name).read_bytes() == make(1), "its exact name leads to what is left"
    error_line(mount, name, "killed")
    trees.write(path, make(2))
    assert mount.listing() == [name] and nothing_left(mount)
    b = agent()
    b.run(OPEN_NEW + "; os.write(fd, data)", path=path, data=make(3))
    b.kill()
    b.wait_gone(5)
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == [name], 5)
    assert (mount / name).read_bytes() == make(2), "its exact name leads to what is listed"
    assert left(mount, name) == make(3)
    for session in mount.world.program.json("sessions", mount.store):
        mount.world.program("abort", "--yes", mount.store, session["id"])
    wait_until(lambda: nothing_left(mount), 5)
    mount.remount()
    assert (mount / name).read_bytes() == make(2)


@needs_root
class TestOtherPidNamespace:
    """Whether a writer there was killed cannot be seen: the format decides, for new files too."""
    @pytest.fixture
    def mount(self, world, store, mode):
        return Mount.new(world, store, mode=mode, prefix=["unshare", "--pid", "--fork", "--kill-child=KILL"])

    @both_modes
    def test_what_is_whole_is_published_and_what_is_not_is_kept(self, mount, path, agent):
        a = agent()
        for data in (OLD, NEW):
            a.run(OPEN_NEW + "; os.write(fd, new[:700])", path=path, new=data)
            a.run("child = os.fork()\nif not child: os._exit(0)\nos.waitpid(child, 0)")
            time.sleep(0.1)
            a.run("os.write(fd, new[700:]); os.close(fd)")
            assert (mount / "model.pt").read_bytes() == data
        assert mount.errors() == []
        a.run(OPEN_NEW + "; os.write(fd, new[:700])", path=path, new=OLD)
        b = agent()
        b.run(OPEN_NEW + "; os.write(fd, new[:700])", path=path[:-3] + "2.npz", new=OLD)
        a.kill()
        b.kill()
        wait_until(lambda: len(os.listdir(mount / ".ckptfs/staged")) == 2, 5)
        assert (mount / "model.pt").read_bytes() == NEW
        assert mount.listing() == ["model.pt"]
        assert len([line for line in mount.errors() if "not whole" in line]) == 2


def test_one_killed_writer_of_several_keeps_all_of_it_back(mount, path, old, agent):
    a, b = agent(), agent()
    a.run(OPEN_NEW + "; os.write(fd, new)", path=path, new=NEW)
    b.run(OPEN, path=path)
    b.kill()
    b.wait_gone(5)
    time.sleep(0.2)
    assert a.errno_of("os.close(fd)") == "EIO", "it is not there, and who closes it is told so"
    error_line(mount, "model.pt", "killed")
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == ["model.pt"], 5)
    assert (mount / "model.pt").read_bytes() == OLD


# --- Other acts on the name -------------------------------------------------------------------------------------------


@both_modes
def test_removing_the_name_lets_the_writers_write_into_nothing(mount, path, old, agent):
    a, b = agent(), agent()
    a.run(OPEN_NEW + "; os.write(fd, b'x')", path=path)
    b.run(OPEN_NEW + "; os.write(fd, b'x')", path=str(mount / "new.pt"))
    os.unlink(path)
    os.unlink(mount / "new.pt")
    for name in ("model.pt", "new.pt"):
        assert not os.path.exists(mount / name)
    trees.write(path, NEW)
    a.run("os.write(fd, b'y'); os.close(fd)")
    b.run("os.write(fd, b'y'); os.close(fd)")
    assert (mount / "model.pt").read_bytes() == NEW
    assert mount.listing() == ["model.pt"]
    wait_until(lambda: nothing_left(mount), 5)


@both_modes
def test_a_rename_takes_what_is_being_written_along(mount, path, old, agent):
    a, b = agent(), agent()
    a.run(OPEN_NEW + "; os.write(fd, new[:7])", path=path, new=NEW)
    b.run(OPEN_NEW + "; os.write(fd, b'b')", path=str(mount / "b.pt"))
    (mount / "sub").mkdir()
    os.rename(path, mount / "sub/moved.pt")
    os.rename(mount / "b.pt", mount / "c.pt")
    assert not os.path.exists(path) and not os.path.exists(mount / "b.pt")
    assert (mount / "sub/moved.pt").read_bytes() == OLD
    assert (mount / "c.pt").read_bytes() == b"b"
    assert mount.listing() == ["sub"]
    a.run("os.write(fd, new[7:]); os.close(fd)", new=NEW)
    b.run("os.close(fd)")
    assert mount.listing() == ["c.pt", "sub"]
    assert (mount / "sub/moved.pt").read_bytes() == NEW
    assert mount.listing("sub") == ["moved.pt"]


@both_modes
def test_another_file_that_takes_the_name_wins_over_what_is_being_written(mount, path, old, agent):
    a = agent()
    a.run(OPEN_NEW + "; os.write(fd, b'never')", path=path)
    trees.write(mount / "tmp", NEW)
    os.rename(mount / "tmp", path)
    assert (mount / "model.pt").read_bytes() == NEW
    a.run("os.close(fd)")
    assert (mount / "model.pt").read_bytes() == NEW
    wait_until(lambda: nothing_left(mount), 5)


def test_a_folder_with_a_file_in_the_making_is_not_empty(mount, agent):
    (mount / "sub").mkdir()
    (mount / "other").mkdir()
    a = agent()
    a.run(OPEN_NEW, path=str(mount / "sub/model.pt"))
    for act in (lambda: os.rmdir(mount / "sub"), lambda: os.rename(mount / "other", mount / "sub")):
        with pytest.raises(OSError) as e:
            act()
        assert errno_name(e.value) == "ENOTEMPTY"
    os.rename(mount / "sub", mount / "renamed")
    a.run("os.write(fd, b'x'); os.close(fd)")
    assert mount.listing("renamed") == ["model.pt"]


class TestFolders:
    @pytest.fixture
    def options(self):
        return ["open_writers=1s"]

    def test_a_folder_that_becomes_a_step_waits_for_files_in_the_making(self, mount, agent, commit):
        (mount / "saved/deep").mkdir(parents=True)
        a, b = agent(), agent()
        a.run(OPEN_NEW + "; os.write(fd, b'half')", path=str(mount / "saved/deep/model.pt"))
        b.start("fd = os.open(folder + '/.finalize', os.O_CREAT | os.O_WRONLY); os.close(fd)", folder=str(mount / "saved"))
        with pytest.raises(OSError) as e:
            b.result(5)
        assert errno_name(e.value) == "EBUSY"
        error_line(mount, "saved", "still being written")
        b.start("fd = os.open(folder + '/.finalize', os.O_CREAT | os.O_WRONLY); os.close(fd)")
        assert b.still_busy(0.3)
        a.run("os.write(fd, b' whole'); os.close(fd)")
        b.result(5)
        mount.remount()
        assert trees.files(mount / "saved") == {"deep/model.pt": b"half whole"}
        assert mount.world.program.json("ls", mount.store)[0]["name"] == "saved"


def test_it_cannot_be_linked_or_exchanged_before_its_end(mount, path, agent):
    a = agent()
    a.run(OPEN_NEW, path=path)
    trees.write(mount / "x", b"")
    assert a.errno_of("os.link(path, path + '2')") == "EBUSY"
    done = subprocess.run(["python3", "-c", "import ctypes, os, sys; libc = ctypes.CDLL(None, use_errno=True)\n"
                           "libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2); print(ctypes.get_errno())",
                           path, str(mount / "x")], capture_output=True, text=True, check=True)
    assert int(done.stdout) in (2, 16)
    a.run("os.close(fd)")
    assert mount.listing() == ["model.pt", "x"]


# --- What the new file is like ----------------------------------------------------------------------------------------


@needs_root
@both_modes
def test_a_replaced_one_keeps_owner_mode_and_attributes(mount, path, old, agent):
    os.chown(path, 1234, 2345)
    os.chmod(path, 0o664)
    os.setxattr(path, "user.note", b"kept")
    before = os.stat(path).st_mtime_ns
    a = agent()
    a.run(OPEN_NEW + "; os.write(fd, new); os.close(fd)", path=path, new=NEW)
    st = os.stat(path)
    assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode), st.st_nlink) == (1234, 2345, 0o664, 1)
    assert os.getxattr(path, "user.note") == b"kept"
    assert st.st_mtime_ns > before


@needs_root
class TestUsers:
    @pytest.fixture
    def options(self):
        return ["allow_other"]

    @both_modes
    def test_others_may_write_it_only_where_the_old_one_lets_them(self, mount, path, old, agent):
        os.chmod(mount.path, 0o777)
        a = agent(uid=1234)
        assert a.errno_of(OPEN_NEW, path=path) == "EACCES"
        assert a.errno_of("os.open(path, os.O_WRONLY)", path=path) == "EACCES"
        new = str(mount / "theirs.pt")
        a.run(OPEN_NEW + "; os.write(fd, b'x'); os.close(fd)", path=new)
        assert os.stat(new).st_uid == 1234
        os.chmod(path, 0o666)
        a.run(OPEN_NEW + "; os.write(fd, new); os.close(fd)", path=path, new=NEW)
        assert os.stat(path).st_uid == 0
        assert (mount / "model.pt").read_bytes() == NEW
        b = agent(uid=1234)
        b.run(OPEN_NEW + "; os.write(fd, b'x')", path=new)
        b.kill()
        b.wait_gone(5)
        wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == ["theirs.pt"], 5)
        assert a.run(READ, path=str(mount / ".ckptfs/staged/theirs.pt/theirs.pt")) == b"x"


def test_without_reflinks_an_open_that_keeps_the_content_changes_it_in_place(mount, path, old, agent):
    a = agent()
    a.run(OPEN + "; os.pwrite(fd, b'!', 0)", path=path)
    assert (mount / "model.pt").read_bytes() == b"!" + OLD[1:]
    a.run("os.close(fd)")


@needs_root
@both_modes
def test_with_reflinks_an_open_that_keeps_the_content_changes_a_copy(world, mode, agent):
    disk = LoopDisk(world, 400, ["mkfs.xfs", "-q"])
    m = Mount.new(world, disk.path / "store", mode=mode)
    path, a = str(m / "model.pt"), agent()
    trees.write(path, OLD)
    a.run(OPEN + "; os.pwrite(fd, new[:9], 0)", path=path, new=NEW)
    assert (m / "model.pt").read_bytes() == OLD
    a.run("os.pwrite(fd, new[9:], 9); os.close(fd)")
    assert (m / "model.pt").read_bytes() == NEW
    m.umount()


@needs_root
def test_touch_and_append_work_on_what_is_not_whole_too(world, agent):
    disk = LoopDisk(world, 400, ["mkfs.xfs", "-q"])
    m = Mount.new(world, disk.path / "store")
    for name in ("a.npz", "a.bin", "a.h5"):
        path, a = str(m / name), agent()
        trees.write(path, b"no such format")
        a.run("os.close(os.open(path, os.O_WRONLY)); fd = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(fd, b'!'); os.close(fd)", path=path)
        assert (m / name).read_bytes() == b"no such format!"
    m.umount()


@both_modes
def test_one_that_is_shared_with_a_step_is_replaced_and_the_step_is_not_changed(mount, stage, commit, agent):
    made = stage("1000")
    trees.write(mount / "1000/model.pt", OLD)
    trees.write(mount / "1000/tracker", b"1")
    commit(mount / "1000")
    (mount / "best").mkdir()
    a = agent()
    for name, new in (("model.pt", NEW), ("tracker", b"2")):
        path = mount / "best" / name
        os.link(mount / "1000" / name, path)
        before = path.read_bytes()
        a.run(OPEN_NEW + "; os.write(fd, new)", path=str(path), new=new)
        assert path.read_bytes() == before
        a.run("os.close(fd)")
        assert path.read_bytes() == new
        assert os.stat(path).st_nlink == 1
    assert trees.files(mount / "1000") == made | {"model.pt": OLD, "tracker": b"1"}


def test_a_name_that_is_no_text_is_written_in_place(mount, agent):
    """Not one that a client could make: it was put into the store otherwise."""
    name = os.fsdecode(b"m\xff.pt")
    (mount.store / "tree" / name).write_bytes(OLD)
    a = agent()
    a.run(OPEN_NEW + "; os.write(fd, new); os.close(fd)", path=os.fsencode(mount / name), new=NEW)
    assert (mount / name).read_bytes() == NEW


def test_a_descriptors_name_leads_to_the_old_file_which_is_then_changed_in_place(mount, path, old, agent):
    """/proc/self/fd is no name that the kernel could look up again."""
    a = agent()
    a.run("fd = os.open(path, os.O_RDONLY); two = os.open(f'/proc/self/fd/{fd}', os.O_WRONLY | os.O_TRUNC); os.write(two, b'direct'); os.close(two)", path=path)
    assert (mount / "model.pt").read_bytes() == b"direct"
    wait_until(lambda: nothing_left(mount), 5)


# --- Disks that fail --------------------------------------------------------------------------------------------------


def test_a_lost_write_is_said_by_close_and_the_old_one_stays(world, store, agent):
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix)
    path, a = str(m / "model.pt"), agent()
    trees.write(path, OLD)
    a.run(OPEN_NEW + "; os.write(fd, new)", path=path, new=NEW)
    syncs.fail_next()
    assert a.errno_of("os.close(fd)") == "EIO"
    error_line(m, "model.pt", "EIO")
    assert (m / "model.pt").read_bytes() == OLD
    wait_until(lambda: os.listdir(m / ".ckptfs/staged") == ["model.pt"], 5)
    a.run(OPEN_NEW + "; os.write(fd, new); os.close(fd)")
    assert (m / "model.pt").read_bytes() == NEW


def test_a_lost_write_that_an_fsync_has_told_of_already_is_not_published_either(world, store, agent):
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix)
    for name in ("model.pt", "fresh.pt", "tracker"):
        path, a = str(m / name), agent()
        if name != "fresh.pt":
            trees.write(path, OLD)
        a.run(OPEN_NEW + "; os.write(fd, new)", path=path, new=NEW)
        syncs.fail_next()
        assert a.errno_of("os.fsync(fd)") == "EIO"
        assert a.errno_of("os.close(fd)") == "EIO"
        wait_until(lambda name=name: name in os.listdir(m / ".ckptfs/staged"), 5)
        assert len([line for line in m.errors() if f"\t{name}\tEIO" in line]) == 1
    assert m.listing() == ["model.pt", "tracker"]
    assert (m / "model.pt").read_bytes() == (m / "tracker").read_bytes() == OLD


def test_a_close_waits_for_the_disk_and_nobody_else_does(world, store, agent):
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix)
    path, a, b = str(m / "model.pt"), agent(), agent()
    trees.write(path, OLD)
    a.run(OPEN_NEW + "; os.write(fd, new)", path=path, new=NEW)
    syncs.hang()
    a.start("os.close(fd)")
    assert a.still_busy(0.3)
    assert (m / "model.pt").read_bytes() == OLD
    b.start(OPEN_NEW, path=path)
    assert b.still_busy(0.3), "what is being published must not be changed"
    trees.write(m / "log", b"x")
    assert m.listing() == ["log", "model.pt"]
    syncs.go_on()
    a.result(5)
    b.result(5)
    assert (m / "model.pt").read_bytes() == NEW
    b.run("os.write(fd, old); os.close(fd)", old=OLD)
    assert (m / "model.pt").read_bytes() == OLD


@needs_root
@both_modes
def test_a_full_disk_is_told_and_the_old_one_stays(world, mode, agent):
    disk = LoopDisk(world)
    m = Mount.new(world, disk.path / "store", mode=mode)
    path, a = str(m / "model.pt"), agent()
    trees.write(path, OLD)
    disk.fill_up()
    try:
        a.run("fd = -1; " + OPEN_NEW + "; os.write(fd, bytes(1 << 20)); os.close(fd)", path=path)
        raise AssertionError("there was room")
    except OSError as e:
        assert errno_name(e) == "ENOSPC"
    a.errno_of("os.close(fd)")
    assert (m / "model.pt").read_bytes() == OLD
    disk.make_room()
    a.run(OPEN_NEW + "; os.write(fd, new); os.close(fd)", path=path, new=NEW)
    assert (m / "model.pt").read_bytes() == NEW
    m.umount()


# --- Holes and times --------------------------------------------------------------------------------------------------


@both_modes
def test_holes_are_told_of_in_a_plain_file_and_in_a_step(mount, stage, commit, scratch, ckptfs, store):
    stage("1000")
    for folder in (mount.path, mount / "1000"):
        with open(folder / "state.bin", "wb") as f:
            f.write(b"head")
            f.seek(32 << 20)
            f.write(b"middle")
            f.truncate(64 << 20)
    commit(mount / "1000")
    for again in range(3):
        for folder in (mount.path, mount / "1000"):
            path = folder / "state.bin"
            assert path.stat().st_size == 64 << 20 and path.stat().st_blocks * 512 < 1 << 20
            with open(path, "rb") as f:
                assert os.lseek(f.fileno(), 1 << 20, os.SEEK_DATA) == 32 << 20
                assert (33 << 20) > os.lseek(f.fileno(), 32 << 20, os.SEEK_HOLE) > 32 << 20
            subprocess.run(["cp", "--sparse=auto", path, scratch / "copy"], check=True)
            assert (scratch / "copy").stat().st_blocks * 512 < 1 << 20 and (scratch / "copy").read_bytes() == path.read_bytes()
            tar = subprocess.run(["tar", "-cSf", "-", "-C", path.parent, path.name], check=True, capture_output=True).stdout
            assert len(tar) < 1 << 20
        if again == 0:
            ckptfs("seal", store)
        mount.remount()


@both_modes
def test_odd_times_survive_a_commit_and_a_restart(mount, stage, commit):
    stage("1000")
    times = {"zero": 0, "before": -(10**18) + 7, "next century": 4 * 10**18 + 1}
    for folder in (mount.path, mount / "1000"):
        for name, ns in times.items():
            trees.write(folder / name, b"x")
            os.utime(folder / name, ns=(1, ns))
    commit(mount / "1000")
    for _ in range(2):
        for folder in (mount.path, mount / "1000"):
            assert {name: (folder / name).stat().st_mtime_ns for name in times} == times
        mount.remount()
