"""Amends: what is added to a committed step is a version of it, at its close and not before."""

import os
import subprocess
import threading
import time

import pytest

from support import trees
from support.mounting import Mount, errno_name, wait_until
from support.fixtures import FULL, SLOW
from support.preload import preload
from support.syncs import BadSyncs

pytestmark = pytest.mark.timeout(60)

WRITE = "fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o640); os.write(fd, data)"
# Closes fd, which counts, as the process has no other descriptor of it, and gets one back.
CLOSE_AND_KEEP = "s = socket.socketpair(); socket.send_fds(s[0], [b'x'], [fd]); os.close(fd); other = socket.recv_fds(s[1], 1, 1)[1][0]"


@pytest.fixture(params=["passthrough", "daemon"])
def mode(request):
    return request.param


@pytest.fixture(params=["this mount's", "a former mount's"])
def made(request, mount, stage, commit):
    """The step 1000, committed by this mount or one before: {path: bytes}."""
    files = stage("1000")
    commit(mount / "1000")
    if request.param != "this mount's":
        mount.remount()
    return files


@pytest.fixture
def whole(mount, made, ckptfs, store):
    """Checks that the step has what it had, and this besides; so it is after a kill -9, too; and verify agrees."""
    def check(added=(), gone=()):
        expected = {k: v for k, v in made.items() if k not in gone} | dict(added)
        assert trees.files(mount / "1000") == expected
        mount.kill9()
        mount.start()
        assert "1000" in mount.listing()
        assert trees.files(mount / "1000") == expected
        assert ckptfs.json("verify", store)["bad"] == []
    return check


def raws(store, data):
    """The raw files with these bytes, whatever they are called."""
    return [p for p in (store / "sessions").rglob("*") if p.is_file() and p.read_bytes() == data]


def version(ckptfs, store, name="1000"):
    return ckptfs.json("info", store, name)["version"]


# --- Files ----------------------------------------------------------------------------------------------------------------


def test_a_file_appears_at_its_close_and_is_durable_then(mount, made, whole, agent, ckptfs, store):
    a, path = agent(), mount / "1000/tokenizer.json"
    before = mount.listing("1000")
    a.run(WRITE, path=str(path), data=b"half")
    assert mount.listing("1000") == before, "not before its close"
    assert path.read_bytes() == b"half", "who knows the name has it"
    assert version(ckptfs, store) == 1
    a.run("os.write(fd, b' and half'); os.close(fd)")
    assert mount.listing("1000") == sorted([*before, "tokenizer.json"])
    assert os.stat(path).st_mode & 0o777 == 0o640
    info = ckptfs.json("info", store, "1000")
    assert info["version"] == 2 and [v["event"] for v in info["versions"]] == ["marker", "amend"]
    whole({"tokenizer.json": b"half and half"})


def test_what_was_there_keeps_its_inodes_and_readers(mount, made, whole):
    inodes = {path: os.stat(mount / "1000" / path).st_ino for path in made}
    held = {path: open(mount / "1000" / path, "rb") for path in made}
    folder = os.open(mount / "1000", os.O_RDONLY | os.O_DIRECTORY)
    for i in range(3):
        trees.write(mount / f"1000/params/new{i}", b"new")
    for path, f in held.items():
        assert f.read() == made[path] and os.stat(mount / "1000" / path).st_ino == inodes[path]
        f.close()
    assert "params" in os.listdir(folder)
    os.close(folder)
    new = os.stat(mount / "1000/params/new0").st_ino
    whole({f"params/new{i}": b"new" for i in range(3)})
    assert {path: os.stat(mount / "1000" / path).st_ino for path in made} == inodes
    assert os.stat(mount / "1000/params/new0").st_ino == new


def test_folders_links_and_nodes_are_there_at_once(mount, made, whole, ckptfs, store):
    top = mount / "1000"
    os.makedirs(top / "a/b/c")
    os.symlink("a/b", top / "link")
    os.mknod(top / "node", 0o600)
    trees.write(top / "a/b/c/f", b"deep")
    trees.write(top / "link/g", b"through the link")
    assert version(ckptfs, store) == 8
    assert os.readlink(top / "link") == "a/b" and mount.listing("1000/a/b") == ["c", "g"]
    for again in (lambda: os.mkdir(top / "a"), lambda: os.symlink("x", top / "link"), lambda: os.mknod(top / "node", 0o600),
                  lambda: os.open(top / "a/b/g", os.O_CREAT | os.O_EXCL)):
        with pytest.raises(FileExistsError):
            again()
    whole({"a/b/c/f": b"deep", "a/b/g": b"through the link", "node": b""})
    assert os.stat(top).st_nlink == 2 + sum(os.path.isdir(top / n) and not os.path.islink(top / n) for n in os.listdir(top))


@pytest.mark.parametrize("line, text", [
    ("echo x > f", b"x\n"), ("exec 3> f; echo a >&3; echo b >&3; exec 3>&-", b"a\nb\n"), ("touch f", b""), (": > f", b""),
    ("(echo a; echo b) > f", b"a\nb\n"), ("echo x | tee f > /dev/null", b"x\n"), ("cp config.json f", b'{"hidden": 64}\n'),
    ("dd if=/dev/zero of=f bs=4096 count=3 conv=fsync 2>/dev/null", bytes(12288)), ("cp config.json t && ln t f 2>/dev/null || cp config.json f; rm -f t", None),
    ("exec 3> f; echo a >&3; exec 4>&3; exec 3>&-; exec 4>&-", b"a\n")])
def test_shells_add_files(mount, made, line, text):
    subprocess.run(["sh", "-c", line], cwd=mount / "1000", check=True, timeout=20)
    assert "f" in mount.listing("1000")
    if text is not None:
        assert (mount / "1000/f").read_bytes() == text
        assert sorted(set(mount.listing("1000")) - {"f"}) == sorted({p.split("/")[0] for p in made} | {"first"})


@pytest.mark.parametrize("call", ["os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))", "open(path, 'w').close()"])
def test_an_empty_file_is_there_after_its_close(mount, made, whole, agent, call):
    agent().run(call, path=str(mount / "1000/empty2"))
    assert "empty2" in mount.listing("1000")
    whole({"empty2": b""})


def test_an_append_to_what_was_added_is_a_change(mount, made, whole):
    """It reopens the step, as every change of a committed file does, unless the kernel still has to let go of the writer before."""
    trees.write(mount / "1000/log", b"one\n")
    time.sleep(0.3)
    with open(mount / "1000/log", "ab") as f:
        f.write(b"two\n")
    assert "1000" not in mount.listing()
    assert (mount / "1000/log").read_bytes() == b"one\ntwo\n"
    trees.write(mount / "1000/.finalize", b"")
    whole({"log": b"one\ntwo\n"})


def test_the_last_of_several_closes_counts(mount, made, whole, agent):
    a, b, path = agent(), agent(), mount / "1000/f"
    a.run(WRITE, path=str(path), data=b"one ")
    b.run("fd = os.open(path, os.O_WRONLY | os.O_APPEND)", path=str(path))
    a.run("again = os.open(path, os.O_WRONLY | os.O_APPEND); os.close(fd)")
    assert "f" not in mount.listing("1000")
    a.run("os.write(again, b'two '); os.close(again)")
    time.sleep(0.2)
    assert "f" not in mount.listing("1000")
    b.run("os.write(fd, b'three'); os.close(fd)")
    assert "f" in mount.listing("1000")
    whole({"f": b"one two three"})


def test_two_descriptors_of_one_process(mount, made, whole, agent, ckptfs, store):
    """The kernel's release of the first may come after the close of the second, which counts all the same."""
    a = agent()
    for i in range(20):
        a.run(WRITE, path=str(mount / f"1000/f{i}"), data=b"one ")
        a.run("other = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(other, b'two'); os.close(fd); os.close(other)")
        assert version(ckptfs, store) == i + 2
    whole({f"f{i}": b"one two" for i in range(20)})


def test_a_forked_childs_exit_adds_nothing(mount, made, whole, agent):
    a = agent()
    a.run(WRITE, path=str(mount / "1000/f"), data=b"one ")
    a.run("child = os.fork()\nif not child: os._exit(0)\nos.waitpid(child, 0)")
    time.sleep(0.1)
    assert "f" not in mount.listing("1000")
    a.run("os.write(fd, b'two'); os.close(fd)")
    assert "f" in mount.listing("1000")
    whole({"f": b"one two"})


def test_a_forked_child_that_keeps_the_file_open_keeps_nothing_back(mount, made, whole, agent):
    a = agent()
    a.run(WRITE, path=str(mount / "1000/f"), data=b"one")
    a.run("""child = os.fork()
if not child:
    time.sleep(600)
    os._exit(0)
os.close(fd)""")
    assert "f" in mount.listing("1000")
    a.run("os.kill(child, 9); os.waitpid(child, 0)")
    whole({"f": b"one"})


def test_a_killed_writers_file_is_not_added(mount, made, whole, agent):
    a, path = agent(), mount / "1000/f"
    a.run(WRITE, path=str(path), data=b"half")
    a.kill()
    a.wait_gone(5)
    wait_until(lambda: not path.exists(), 5, "the end of the file")
    wait_until(lambda: any("killed" in line and "1000" in line for line in mount.errors()), 5, "a line in errors")
    trees.write(mount / "1000/g", b"other")
    trees.write(path, b"again")
    whole({"f": b"again", "g": b"other"})


def test_a_process_that_exits_by_itself_has_closed(mount, made, whole, agent):
    a = agent()
    a.run(WRITE, path=str(mount / "1000/f"), data=b"whole")
    a.exit()
    wait_until(lambda: "f" in mount.listing("1000"), 5, "the file")
    whole({"f": b"whole"})


# --- Names of open files --------------------------------------------------------------------------------------------------


def test_a_write_right_after_the_close_is_a_change_of_the_step(mount, made, commit, ckptfs, store):
    """The kernel may not have sent the release of the first open yet, which must not make it one that goes on."""
    for n in range(30):
        path = mount / f"1000/{n}"
        for data in (b"first", b"second"):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(fd, data)
            os.close(fd)
        assert mount.listing() == [], "it is reopened"
        commit(mount / "1000")
        assert mount.listing() == ["1000"] and path.read_bytes() == b"second"
    assert version(ckptfs, store) == 61


def test_a_rename_before_the_close_to_a_free_name(mount, made, whole, agent, ckptfs, store):
    a, top = agent(), mount / "1000"
    a.run(WRITE, path=str(top / ".tmpA1b2"), data=b"arrays")
    a.run("os.rename(a, b)", a=str(top / ".tmpA1b2"), b=str(top / "params/model.safetensors"))
    assert not (top / ".tmpA1b2").exists() and (top / "params/model.safetensors").read_bytes() == b"arrays"
    assert "model.safetensors" not in mount.listing("1000/params")
    a.run("os.close(fd)")
    assert version(ckptfs, store) == 2 and "model.safetensors" in mount.listing("1000/params")
    whole({"params/model.safetensors": b"arrays"})


def test_a_rename_before_the_close_over_an_existing_name_reopens(mount, made, whole, agent):
    a, top = agent(), mount / "1000"
    a.run(WRITE, path=str(top / ".tmpA1b2"), data=b"new")
    a.run("os.rename(a, b)", a=str(top / ".tmpA1b2"), b=str(top / "config.json"))
    a.run("os.write(fd, b' and more'); os.close(fd)")
    assert "1000" not in mount.listing() and (top / "config.json").read_bytes() == b"new and more"
    trees.write(top / ".finalize", b"")
    whole({"config.json": b"new and more"})


def test_an_unlink_before_the_close(mount, made, whole, agent, ckptfs, store):
    a, path = agent(), mount / "1000/f"
    a.run(WRITE, path=str(path), data=b"nothing")
    a.run("os.unlink(path); os.write(fd, b'!'); os.close(fd)")
    assert not path.exists() and version(ckptfs, store) == 1 and "1000" in mount.listing()
    trees.write(path, b"something")
    whole({"f": b"something"})


# --- Calls before the close -----------------------------------------------------------------------------------------------


def test_what_is_done_to_an_open_file_is_part_of_it(mount, made, agent, ckptfs, store):
    a, path = agent(), mount / "1000/f"
    a.run(WRITE, path=str(path), data=b"0123456789")
    a.run("os.ftruncate(fd, 5); os.posix_fallocate(fd, 0, 8); os.fchmod(fd, 0o604); os.utime(fd, ns=(1, 2_000_000_003)); "
          "os.setxattr(fd, 'user.x', b'y'); os.fsync(fd)")
    assert os.stat(path).st_size == 8 and version(ckptfs, store) == 1
    a.run("os.close(fd)")
    assert version(ckptfs, store) == 2 and "1000" in mount.listing()
    for _ in range(2):
        st = os.stat(path)
        assert (st.st_size, st.st_mode & 0o777, st.st_mtime_ns) == (8, 0o604, 2_000_000_003)
        assert os.getxattr(path, "user.x") == b"y" and path.read_bytes() == b"01234\0\0\0"
        mount.kill9()
        mount.start()


def test_calls_by_path_before_the_close(mount, made, agent, ckptfs, store):
    a, path = agent(), mount / "1000/f"
    a.run(WRITE, path=str(path), data=b"0123456789")
    os.truncate(path, 4)
    os.chmod(path, 0o604)
    os.setxattr(path, "user.x", b"y")
    a.run("os.close(fd)")
    assert version(ckptfs, store) == 2 and "1000" in mount.listing()
    assert (path.read_bytes(), os.stat(path).st_mode & 0o777, os.getxattr(path, "user.x")) == (b"0123", 0o604, b"y")


def test_a_mapping_stores_before_the_close(mount, made, whole, agent):
    a = agent()
    a.run("""fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
os.ftruncate(fd, 8192)
m = mmap.mmap(fd, 8192)
m[0:3] = b'map'
m[8000:8003] = b'ped'
m.flush()
m.close()
os.close(fd)""", path=str(mount / "1000/f"))
    assert "f" in mount.listing("1000")
    data = bytearray(8192)
    data[0:3], data[8000:8003] = b"map", b"ped"
    whole({"f": bytes(data)})


def test_what_is_written_after_a_close_goes_into_a_copy(mount, made, whole, agent, ckptfs, store):
    a, path = agent(), mount / "1000/f"
    a.run(WRITE, path=str(path), data=b"first")
    a.run(CLOSE_AND_KEEP)
    assert version(ckptfs, store) == 2 and path.read_bytes() == b"first"
    inode = os.stat(path).st_ino
    a.run("os.write(other, b' second'); os.close(other)")
    assert version(ckptfs, store) == 3 and path.read_bytes() == b"first second"
    assert os.stat(path).st_ino == inode and "1000" in mount.listing()
    assert raws(store, b"first"), "the version before is as it was"
    whole({"f": b"first second"})
    assert os.stat(path).st_ino == inode


@pytest.mark.parametrize("change", ["os.write(other, b' second')", "os.ftruncate(other, 2)", "os.posix_fallocate(other, 0, 100)",
                                    "os.copy_file_range(source, other, 5, 0, 0)", "os.fchmod(other, 0o600)"])
def test_what_is_written_after_a_close_and_a_reopening_leaves_the_version_before(mount, made, agent, store, change):
    a, top = agent(), mount / "1000"
    a.run(WRITE, path=str(top / "f"), data=b"first")
    a.run(CLOSE_AND_KEEP + "; source = os.open(from_, os.O_RDONLY)", from_=str(top / "config.json"))
    trees.write(top / "empty", b"reopens")
    a.errno_of(change)
    assert raws(store, b"first")
    a.run("os.close(other); os.close(source)")
    assert 0o640 in {os.stat(p).st_mode & 0o777 for p in raws(store, b"first")}
    expected = trees.files(top)
    trees.write(top / ".finalize", b"")
    mount.remount()
    assert trees.files(top) == expected


def test_what_is_written_after_a_close_and_a_deletion_leaves_the_step(mount, made, agent, ckptfs, store):
    a, top = agent(), mount / "1000"
    a.run(WRITE, path=str(top / "f"), data=b"first")
    a.run(CLOSE_AND_KEEP)
    ckptfs("rm", store, "1000")
    for change in ("os.write(other, b' second')", "os.ftruncate(other, 2)", "os.fchmod(other, 0)"):
        a.errno_of(change)
    a.errno_of("os.close(other)")
    ckptfs("undelete", store, "1000")
    mount.remount()
    assert trees.files(top) == made | {"f": b"first"} and ckptfs.json("verify", store)["bad"] == []


def test_a_removed_pending_file_is_its_writers(mount, made, agent, ckptfs, store):
    a = agent()
    a.run(WRITE, path=str(mount / "1000/f"), data=b"one")
    a.run("os.unlink(path); r = os.open(f'/proc/self/fd/{fd}', os.O_RDONLY); other = os.dup(fd); os.close(fd); os.write(other, b' two')")
    assert a.run("os.pread(r, 100, 0)") == b"one two" and a.run("os.fstat(other).st_size") == 7
    a.run("os.close(other); os.close(r)")
    assert version(ckptfs, store) == 1 and trees.files(mount / "1000") == made


def test_a_writer_after_all_others_reopens(mount, made, whole, agent):
    a, top = agent(), mount / "1000"
    trees.write(top / "f", b"first")
    a.run("fd = os.open(path, os.O_RDONLY)", path=str(top / "f"))
    time.sleep(0.3)
    trees.write(top / "f", b"second")
    assert "1000" not in mount.listing() and (top / "f").read_bytes() == b"second"
    assert a.run("os.read(fd, 100)") == b"first"
    a.run("os.close(fd)")
    trees.write(top / ".finalize", b"")
    whole({"f": b"second"})


def test_a_truncation_after_a_close_goes_into_a_copy(mount, made, whole, agent, store):
    a, path = agent(), mount / "1000/f"
    a.run(WRITE, path=str(path), data=b"first")
    a.run(CLOSE_AND_KEEP + "; os.ftruncate(other, 2); os.close(other)")
    assert raws(store, b"first")
    whole({"f": b"fi"})


def test_a_truncation_of_a_file_made_for_reading_too_goes_into_a_copy(mount, made, whole, agent):
    a, path = agent(), mount / "1000/late"
    a.run("fd = os.open(path, os.O_CREAT | os.O_RDWR); os.write(fd, b'the whole'); " + CLOSE_AND_KEEP, path=str(path))
    assert path.read_bytes() == b"the whole"
    a.run("os.ftruncate(other, 3); os.close(other)")
    whole({"late": b"the"})


def test_a_truncation_while_the_file_is_published_finds_the_file(world, store, ckptfs, agent, commit, scratch):
    slow = scratch / "slow"
    m = Mount.new(world, store, prefix=preload(world, "slow_unlocks", SLOW_UNLOCKS=slow))
    (m / "1000").mkdir()
    made = trees.fill(m / "1000")
    commit(m / "1000")
    a = agent()
    a.run(WRITE + "; " + CLOSE_AND_KEEP + "; fd = other", path=str(m / "1000/late"), data=b"first")
    slow.touch()
    for i in range(20):
        a.run("os.pwrite(fd, b'the whole', 0); socket.send_fds(s[0], [b'x'], [fd])\n"
              "closer = threading.Thread(target=os.close, args=(fd,)); closer.start(); time.sleep(wait)\n"
              "other = socket.recv_fds(s[1], 1, 1)[1][0]; os.ftruncate(other, 3); closer.join(); fd = other", wait=i / 2000)
    slow.unlink()
    assert ckptfs.json("verify", store)["bad"] == []
    a.run("os.close(fd)")
    assert trees.files(m / "1000") == made | {"late": b"the"}


def test_a_writer_killed_after_its_close_leaves_what_it_closed(mount, made, whole, agent, ckptfs, store):
    a, path = agent(), mount / "1000/f"
    a.run(WRITE, path=str(path), data=b"first")
    a.run(CLOSE_AND_KEEP + "; os.write(other, b' half')")
    inode = os.stat(path).st_ino
    with open(path, "rb") as reader:
        assert reader.read() == b"first half"
        a.kill()
        a.wait_gone(5)
        wait_until(lambda: path.read_bytes() == b"first", 5, "the version of before")
        assert os.stat(path).st_ino == inode and os.stat(path).st_size == 5
        wait_until(lambda: any("killed" in line for line in mount.errors()), 5, "a line in errors")
    assert not raws(store, b"first half")
    whole({"f": b"first"})


def test_two_clients_add_two_files_at_once(mount, made, whole, agent, ckptfs, store):
    a, b = agent(), agent()
    for who, name in ((a, "fa"), (b, "fb")):
        who.run(WRITE, path=str(mount / "1000" / name), data=name.encode())
    a.start("os.close(fd)")
    b.start("os.close(fd)")
    a.result(), b.result()
    assert version(ckptfs, store) == 3
    whole({"fa": b"fa", "fb": b"fb"})


# --- The step meanwhile ---------------------------------------------------------------------------------------------------


def test_a_step_deleted_while_a_file_is_pending(mount, made, agent, ckptfs, store):
    a = agent()
    a.run(WRITE, path=str(mount / "1000/f"), data=b"late")
    ckptfs("rm", store, "1000")
    assert a.errno_of("os.close(fd)") is not None
    assert not (mount / "1000").exists()
    ckptfs("undelete", store, "1000")
    assert trees.files(mount / "1000") == made
    trees.write(mount / "1000/f", b"again")
    mount.remount()
    assert trees.files(mount / "1000") == made | {"f": b"again"}
    assert ckptfs.json("verify", store)["bad"] == []


def test_a_step_renamed_while_a_file_is_pending(mount, made, agent, ckptfs, store):
    a = agent()
    a.run(WRITE, path=str(mount / "1000/f"), data=b"late")
    os.rename(mount / "1000", mount / "5000")
    a.run("os.write(fd, b'r'); os.close(fd)")
    for _ in range(2):
        assert trees.files(mount / "5000") == made | {"f": b"later"}
        mount.kill9()
        mount.start()
    assert version(ckptfs, store, "5000") == 2  # a new name is no version


def test_a_step_reopened_while_a_file_is_pending(mount, made, whole, agent):
    a, top = agent(), mount / "1000"
    a.run(WRITE, path=str(top / "f"), data=b"one ")
    trees.write(top / "config.json", b"other")
    assert "1000" not in mount.listing()
    a.run("os.write(fd, b'two'); os.close(fd)")
    assert (top / "f").read_bytes() == b"one two" and "f" in mount.listing("1000")
    trees.write(top / ".finalize", b"")
    whole({"f": b"one two", "config.json": b"other"})


def test_new_metadata_while_a_file_is_pending(mount, made, whole, agent, ckptfs, store):
    a = agent()
    a.run(WRITE, path=str(mount / "1000/f"), data=b"late")
    trees.write(mount / "1000/.finalize", b'{"metrics":{"loss":0.5}}')
    assert version(ckptfs, store) == 2
    a.run("os.close(fd)")
    info = ckptfs.json("info", store, "1000")
    assert info["version"] == 3 and info["metrics"] == {"loss": 0.5}
    whole({"f": b"late"})


def test_a_pending_file_is_gone_with_its_daemon(mount, made, whole, agent, ckptfs, store):
    a = agent()
    a.run(WRITE, path=str(mount / "1000/f"), data=b"late")
    mount.kill9()
    a.errno_of("os.close(fd)")
    mount.start()
    assert "f" not in mount.listing("1000") and not (mount / "1000/f").exists()
    assert ckptfs.json("verify", store)["bad"] == []
    trees.write(mount / "1000/f", b"another")
    whole({"f": b"another"})
    assert os.listdir(store / "trash") == []


def test_undelete_after_amends(mount, made, ckptfs, store):
    trees.write(mount / "1000/f", b"more")
    os.mkdir(mount / "1000/d")
    ckptfs("rm", store, "1000")
    assert trees.files(mount / ".ckptfs/trash/1000") == made | {"f": b"more"}
    ckptfs("undelete", store, "1000")
    mount.remount()
    assert trees.files(mount / "1000") == made | {"f": b"more"} and (mount / "1000/d").is_dir()
    trees.write(mount / "1000/d/g", b"and more")
    assert version(ckptfs, store) == 6
    ckptfs("rm", "--now", "--yes", store, "1000")
    wait_until(lambda: os.listdir(store / "sessions") == [] and os.listdir(store / "trash") == [] and os.listdir(store / "m") == [], what="the end of the files")


# --- Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["amend=deny"], indirect=True)
def test_amends_can_be_denied(mount, stage, commit):
    made = stage("1000")
    commit(mount / "1000")
    mount.remount()
    top = mount / "1000"
    for change in (lambda: trees.write(top / "f", b"x"), lambda: os.mkdir(top / "d"), lambda: os.symlink("x", top / "l"), lambda: os.mknod(top / "n"),
                   lambda: os.rename(top / "config.json", top / "c"), lambda: trees.write(top / "config.json", b"")):
        with pytest.raises(OSError) as e:
            change()
        assert errno_name(e.value) == "EROFS"
    assert trees.files(top) == made and "1000" in mount.listing()


def test_a_mount_for_reading_sees_the_versions(world, mount, made, store):
    reader = Mount.new(world, store, options=["ro"])
    assert trees.files(reader / "1000") == made
    trees.write(mount / "1000/f", b"more")
    wait_until(lambda: "f" in reader.listing("1000"), 10, "the new version")
    assert (reader / "1000/f").read_bytes() == b"more"
    with pytest.raises(OSError) as e:
        trees.write(reader / "1000/g", b"x")
    assert errno_name(e.value) == "EROFS"


# --- Many -----------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(240)
def test_many_files_one_after_the_other(mount, made, ckptfs, store):
    began = time.monotonic()
    for i in range(500):
        trees.write(mount / f"1000/part-{i:04}", b"%d" % i)
    each_ms = (time.monotonic() - began) / 500 * 1e3
    print(f"\n{each_ms:.2f} ms for each file added")
    assert each_ms < 200 * SLOW
    assert [n for n in mount.listing("1000") if n.startswith("part-")] == [f"part-{i:04}" for i in range(500)]
    assert version(ckptfs, store) == 501
    began = time.monotonic()
    mount.remount()
    print(f"{time.monotonic() - began:.2f} s for a remount with 501 versions")
    assert trees.files(mount / "1000") == made | {f"part-{i:04}": b"%d" % i for i in range(500)}
    assert ckptfs.json("verify", store)["bad"] == []


@pytest.fixture
def big(mount, commit):
    """A step of 3,000 files: its manifest is an object of its own."""
    for d in range(30):
        os.makedirs(mount / f"1000/params/d{d:02}")
        for i in range(100):
            (mount / f"1000/params/d{d:02}/{i:03}.bin").touch()
    commit(mount / "1000")


def test_a_step_with_a_manifest_of_its_own(mount, big, ckptfs, store):
    assert len(os.listdir(store / "m")) == 1
    began = time.monotonic()
    for i in range(10):
        trees.write(mount / f"1000/params/d07/x{i}", b"%d" % i)
    print(f"\n{(time.monotonic() - began) / 10 * 1e3:.1f} ms for each file added to 3,000")
    assert version(ckptfs, store) == 11
    ckptfs("rm", store, "1000/params/d08")
    for _ in range(2):
        made = trees.files(mount / "1000")
        assert len(made) == 2910 and made["params/d07/x9"] == b"9"
        mount.kill9()
        mount.start()
    assert ckptfs.json("verify", store)["bad"] == []
    ckptfs("rm", "--now", "--yes", store, "1000")
    wait_until(lambda: os.listdir(store / "m") == [], 20, "the end of the manifests")


def test_a_thousand_versions_cost_a_mount_little(mount, made, ckptfs, store):
    versions = 1000 if FULL else 300
    for i in range(versions):
        trees.write(mount / "1000/.finalize", b'{"metrics":{"i":%d}}' % i)
    mount.umount()
    began = time.monotonic()
    mount.start()
    with_index = time.monotonic() - began
    mount.umount()
    for path in (store / "index").iterdir():
        path.unlink()
    began = time.monotonic()
    mount.start()
    print(f"\na mount with {versions + 1} versions: {with_index:.2f} s, without an index {time.monotonic() - began:.2f} s")
    assert with_index < 3 * SLOW and time.monotonic() - began < 5 * SLOW
    assert version(ckptfs, store) == versions + 1 and trees.files(mount / "1000") == made


# --- What else clients do -------------------------------------------------------------------------------------------------


def test_a_file_made_by_who_only_reads_it(mount, made, whole, agent):
    """As locks are made."""
    a, path = agent(), mount / "1000/lock"
    a.run("fd = os.open(path, os.O_CREAT | os.O_RDONLY, 0o600); fcntl.flock(fd, fcntl.LOCK_EX)", path=str(path))
    a.run("os.close(fd)")
    wait_until(lambda: "lock" in mount.listing("1000"), 5, "the file")
    whole({"lock": b""})


def test_a_reader_of_a_pending_file_keeps_nothing_back(mount, made, whole, agent):
    a, b, path = agent(), agent(), mount / "1000/f"
    a.run(WRITE, path=str(path), data=b"one")
    b.run("fd = os.open(path, os.O_RDONLY)", path=str(path))
    a.run("os.write(fd, b' two'); os.close(fd)")
    assert "f" in mount.listing("1000") and b.run("os.read(fd, 100)") == b"one two"
    assert path.read_bytes() == b"one two"
    b.run("os.close(fd)")
    whole({"f": b"one two"})


def test_a_hard_link_to_a_pending_file(mount, made, whole, agent):
    """It reopens the step, of which both names are then part."""
    a, top = agent(), mount / "1000"
    a.run(WRITE, path=str(top / "f"), data=b"one")
    os.link(top / "f", top / "g")
    a.run("os.write(fd, b' two'); os.close(fd)")
    assert (top / "g").read_bytes() == b"one two"
    trees.write(top / ".finalize", b"")
    whole({"f": b"one two", "g": b"one two"})


def test_a_pending_file_does_not_leave_the_step(mount, made, agent, ckptfs, store):
    a, top = agent(), mount / "1000"
    a.run(WRITE, path=str(top / "f"), data=b"one")
    os.mkdir(mount / "plain")
    with pytest.raises(OSError) as e:
        os.rename(top / "f", mount / "plain/f")
    assert errno_name(e.value) == "EXDEV"
    a.run("os.write(fd, b' two'); os.close(fd)")
    mount.remount()
    assert trees.files(top) == made | {"f": b"one two"} and mount.listing("plain") == []
    assert ckptfs.json("verify", store)["bad"] == []


def test_a_step_removed_by_its_names_while_a_file_is_pending(mount, made, agent, ckptfs, store):
    a = agent()
    a.run(WRITE, path=str(mount / "1000/f"), data=b"late")
    subprocess.run(["rm", "-r", str(mount / "1000")], check=False, capture_output=True, timeout=20)
    a.errno_of("os.close(fd)")
    gone = "1000" not in mount.listing()
    mount.remount()
    assert ("1000" not in mount.listing()) == gone
    assert ckptfs.json("verify", store)["bad"] == []
    if gone:
        ckptfs("undelete", store, "1000")
        assert trees.files(mount / "1000") in (made, made | {"f": b"late"})


def test_many_clients_make_the_same_names(mount, made, whole, agent, ckptfs, store):
    clients = [agent() for _ in range(4)]
    for a in clients:
        a.start("""won = []
for i in range(20):
    try:
        os.mkdir(f'{top}/d{i}')
        won.append(i)
    except FileExistsError:
        pass
    try:
        fd = os.open(f'{top}/d{i}/f', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(fd, b'x')
        os.close(fd)
        won.append(100 + i)
    except FileExistsError:
        pass
won""", top=str(mount / "1000"))
    won = sorted(i for a in clients for i in a.result())
    assert won == [*range(20), *range(100, 120)]
    assert version(ckptfs, store) == 41
    whole({f"d{i}/f": b"x" for i in range(20)})


@pytest.mark.parametrize("harm", ["fail_next", "die"])
def test_a_close_whose_data_is_lost_says_so(world, store, agent, ckptfs, harm, mode):
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix, mode=mode)
    os.mkdir(m / "1000")
    made = trees.fill(m / "1000")
    trees.write(m / "1000/.finalize", b"")
    a, path = agent(), m / "1000/f"
    a.run(WRITE, path=str(path), data=b"lost")
    getattr(syncs, harm)()
    assert a.errno_of("os.close(fd)") == "EIO"
    if harm == "die":
        with pytest.raises(OSError):
            os.mkdir(m / "1000/d")
        syncs.live()
    wait_until(lambda: not path.exists(), 5, "the end of the file")
    assert trees.files(m / "1000") == made and "1000" in m.listing()
    assert any("could not be added" in line for line in m.errors())
    trees.write(path, b"again")
    os.mkdir(m / "1000/d")
    for _ in range(2):
        assert trees.files(m / "1000") == made | {"f": b"again"} and (m / "1000/d").is_dir()
        m.kill9()
        m.start()
    assert ckptfs.json("verify", store)["bad"] == []


@pytest.mark.parametrize("change", ["write", "truncate"])
def test_a_change_right_after_an_empty_file_was_made(mount, made, commit, ckptfs, store, change):
    """The kernel sends the release of an added file when it likes: what comes at the same time is not lost."""
    for n in range(40):
        path = mount / f"1000/{n}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        if change == "write":
            fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
            os.write(fd, b"data")
            os.close(fd)
        else:
            os.truncate(path, 4)
    commit(mount / "1000")
    for _ in range(2):
        for n in range(40):
            assert (mount / f"1000/{n}").read_bytes() == {"write": b"data", "truncate": bytes(4)}[change]
        mount.remount()
    assert ckptfs.json("verify", store)["bad"] == []


def test_a_pending_file_is_renamed_while_its_step_is_reopened(mount, stage, commit, agent, ckptfs, store):
    stage("2000", files=200)
    commit(mount / "2000")
    a = agent()
    for n in range(15):
        path, to = mount / f"2000/p{n}", mount / f"2000/q{n}"
        a.run(WRITE, path=str(path), data=b"late")
        changer = threading.Thread(target=trees.write, args=(mount / "2000/config.json", b"%d" % n))
        changer.start()
        time.sleep(0.001 * (n % 5))
        a.run("os.rename(path, to)", path=str(path), to=str(to))
        a.run("os.close(fd)")
        changer.join()
        assert to.read_bytes() == b"late" and not path.exists()
        commit(mount / "2000")
        assert to.read_bytes() == b"late" and (mount / "2000/config.json").read_bytes() == b"%d" % n
    mount.remount()
    assert {f"q{n}" for n in range(15)} <= set(mount.listing("2000"))
    assert ckptfs.json("verify", store)["bad"] == []


def test_a_pending_file_is_removed_while_its_step_is_reopened(mount, stage, commit, agent, ckptfs, store):
    stage("2000", files=200)
    commit(mount / "2000")
    a = agent()
    for n in range(15):
        path = mount / f"2000/p{n}"
        a.run(WRITE, path=str(path), data=b"late")
        changer = threading.Thread(target=trees.write, args=(mount / "2000/config.json", b"%d" % n))
        changer.start()
        time.sleep(0.001 * (n % 5))
        a.run("os.unlink(path)", path=str(path))
        a.run("os.close(fd)")
        changer.join()
        assert not path.exists()
        commit(mount / "2000")
        assert not path.exists() and (mount / "2000/config.json").read_bytes() == b"%d" % n
    mount.remount()
    assert not {f"p{n}" for n in range(15)} & set(mount.listing("2000"))
    assert ckptfs.json("verify", store)["bad"] == []
