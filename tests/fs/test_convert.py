"""A marker in a plain folder turns it into a step, with all that it is."""

import os
import threading
import time

import pytest

from support import trees
from support.fixtures import both_modes, needs_root
from support.mounting import LoopDisk, Mount, errno_name, wait_until
from support.syncs import BadSyncs

pytestmark = pytest.mark.timeout(60)

OPEN_MARKER = "fd = os.open(folder + '/.finalize', os.O_CREAT | os.O_WRONLY, 0o644)"


@pytest.fixture
def plain(mount):
    """Makes a plain folder with files: plain("run") returns {path: bytes}."""
    def make(name="run"):
        os.makedirs(mount / name)
        return trees.fill(mount / name, seed=name)
    return make


def steps(ckptfs, store):
    return [row["name"] for row in ckptfs.json("ls", store)]


def marker_error(folder, text=b""):
    try:
        trees.write(folder / ".finalize", text)
    except OSError as e:
        return errno_name(e)
    return None


@both_modes
def test_a_plain_folder_becomes_a_step_as_it_is(mount, plain, ckptfs, store):
    made = plain()
    folder = mount / "run"
    os.chmod(folder / "config.json", 0o600)
    os.setxattr(folder / "empty", "user.x", b"y")
    os.link(folder / "config.json", folder / "params/link")
    os.utime(folder / "config.json", ns=(5, 2_000_000_007))
    before = trees.describe(folder, inodes=True)
    assert ckptfs.json("ls", store) == []
    trees.write(folder / ".finalize", b'{"metrics":{"loss":0.5},"extras":{"a":1}}')
    made["params/link"] = made["config.json"]
    for _ in range(2):
        assert steps(ckptfs, store) == ["run"] and mount.listing() == ["run"]
        assert trees.describe(folder, inodes=True) == before and trees.files(folder) == made
        mount.kill9()
        mount.start()
    info = ckptfs.json("info", store, "run")
    assert info["version"] == 1 and info["metrics"] == {"loss": 0.5} and info["files"] == len(made) - 1  # two names of one
    assert ckptfs.json("verify", store)["bad"] == [] and ckptfs.json("sessions", store) == []
    assert not (store / "tree/run").exists()


@both_modes
def test_who_is_in_it_or_reads_it_goes_on(mount, plain, agent):
    made = plain()
    a = agent(cwd=str(mount / "run/params"))
    a.run("fd = os.open('layer_0/w0.bin', os.O_RDONLY); m = mmap.mmap(fd, 0, prot=mmap.PROT_READ); d = os.open('..', os.O_RDONLY)")
    trees.write(mount / "run/.finalize", b"")
    assert a.run("os.read(fd, 1 << 20)") == made["params/layer_0/w0.bin"] == a.run("m[:]")
    assert a.run("os.getcwd()") == str(mount / "run/params") and a.run("sorted(os.listdir())") == ["layer_0", "layer_1", "layer_2"]
    assert a.run("sorted(os.listdir(d))") == mount.listing("run")
    a.run("f = os.open('new', os.O_CREAT | os.O_WRONLY); os.write(f, b'new'); os.close(f)")
    assert (mount / "run/params/new").read_bytes() == b"new" and "run" in mount.listing()
    a.run("os.close(fd); os.close(d)")


def test_it_is_immutable_afterwards_and_can_be_added_to(mount, plain, ckptfs, store):
    made = plain()
    trees.write(mount / "run/.finalize", b"")
    trees.write(mount / "run/late", b"late")
    assert ckptfs.json("info", store, "run")["version"] == 2
    trees.write(mount / "run/config.json", b"changed")
    assert "run" not in mount.listing()
    trees.write(mount / "run/.finalize", b"")
    mount.remount()
    assert trees.files(mount / "run") == made | {"late": b"late", "config.json": b"changed"}


@pytest.mark.parametrize("kill", [False, True])
def test_an_open_writer_keeps_it_a_folder_and_a_second_attempt_works(mount, plain, agent, ckptfs, store, kill):
    made = plain()
    mount.remount(options=["open_writers=300ms"])
    before = trees.describe(mount / "run", inodes=True)
    a = agent()
    a.run("fd = os.open(path, os.O_RDWR | os.O_APPEND); os.write(fd, b'one ')", path=str(mount / "run/config.json"))
    assert marker_error(mount / "run") == "EBUSY"
    assert any("run" in line and "config.json" in line for line in mount.errors()), mount.errors()
    assert steps(ckptfs, store) == [] and (store / "tree/run").is_dir()
    assert os.listdir(store / "sessions") == []
    a.run("os.write(fd, b'two'); n = os.open(new, os.O_CREAT | os.O_WRONLY); os.write(n, b'new'); os.close(n)", new=str(mount / "run/new"))
    os.mkdir(mount / "run/d")
    os.rename(mount / "run/empty", mount / "run/d/empty")
    made |= {"config.json": made["config.json"] + b"one two", "new": b"new", "d/empty": b""}
    del made["empty"]
    assert trees.files(mount / "run") == made
    assert {p: e["ino"] for p, e in trees.describe(mount / "run", inodes=True).items() if p in before} == {p: e["ino"] for p, e in before.items() if p != "empty"}
    if kill:
        mount.kill9()
        a.errno_of("os.close(fd)")  # it writes on without the daemon
        mount.start()
        assert trees.files(mount / "run") == made and steps(ckptfs, store) == []
    else:
        a.run("os.close(fd)")
    assert marker_error(mount / "run") is None
    mount.remount()
    assert steps(ckptfs, store) == ["run"] and trees.files(mount / "run") == made
    assert ckptfs.json("verify", store)["bad"] == []


def test_a_folder_that_holds_steps_stays_one(mount, plain, stage, commit, ckptfs, store):
    made = plain()
    os.mkdir(mount / "run/nested")
    inner = stage("run/nested/step_1")
    commit(mount / "run/nested/step_1")
    for folder in ("run", "run/nested"):
        assert marker_error(mount / folder) == "ENOTEMPTY"
        assert "holds steps" in mount.errors()[-1]
    assert steps(ckptfs, store) == ["run/nested/step_1"]
    assert trees.files(mount / "run") == made | {f"nested/step_1/{p}": d for p, d in inner.items()}
    mount.remount()
    assert trees.files(mount / "run/nested/step_1") == inner


@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_a_folder_of_which_a_file_has_a_name_outside_stays_one(mount, plain, ckptfs, store, kind):
    plain()
    folder, outside = mount / "run", mount / "outside"
    if kind == "file":
        trees.write(outside, b"one")
    else:
        os.symlink("target", outside)
    for name in ("inside", "again"):
        os.link(outside, folder / name, follow_symlinks=False)
    before = trees.describe(folder, inodes=True)
    assert marker_error(folder) == "EMLINK" and trees.describe(folder, inodes=True) == before
    assert "EMLINK" in mount.errors()[-1] and "hard link outside" in mount.errors()[-1]
    assert steps(ckptfs, store) == [] and ckptfs.json("sessions", store) == []
    outside.unlink()
    assert marker_error(folder) is None and steps(ckptfs, store) == ["run"], "links within it are no hindrance"
    assert {os.lstat(folder / name).st_nlink for name in ("inside", "again")} == {2}


def test_links_of_committed_files_in_a_folder_are_no_names_outside(mount, plain, stage, commit, ckptfs, store):
    stage("1000")
    commit(mount / "1000")
    plain()
    os.link(mount / "1000/config.json", mount / "run/linked.json")
    assert marker_error(mount / "run") is None and steps(ckptfs, store) == ["1000", "run"]


def test_a_folder_with_an_unfinished_step_stays_one(mount, plain, stage):
    plain()
    os.mkdir(mount / "run/nested")
    inner = stage("run/nested/step_1")
    assert marker_error(mount / "run") == "ENOTEMPTY"
    assert trees.files(mount / "run/nested/step_1") == inner
    trees.write(mount / "run/nested/step_1/.finalize", b"")
    assert mount.listing("run/nested") == ["step_1"]


def test_a_folder_whose_steps_are_gone_for_good_can_become_one(mount, plain, stage, commit, ckptfs, store):
    plain()
    stage("run/step_1")
    commit(mount / "run/step_1")
    ckptfs("rm", "--now", "--yes", store, "run/step_1")
    wait_until(lambda: ckptfs.json("ls", store, "--trash") == [], what="the end of the step")
    assert marker_error(mount / "run") is None
    assert steps(ckptfs, store) == ["run"]


def test_a_nested_folder_and_then_no_other_around_it(mount, plain, ckptfs, store):
    os.mkdir(mount / "a")
    made = plain("a/b/c")
    trees.write(mount / "a/f", b"x")
    assert marker_error(mount / "a/b/c") is None
    assert steps(ckptfs, store) == ["a/b/c"] and mount.listing("a/b") == ["c"]
    assert marker_error(mount / "a/b") == "ENOTEMPTY" and marker_error(mount / "a") == "ENOTEMPTY"
    os.rename(mount / "a", mount / "z")
    mount.remount()
    assert trees.files(mount / "z/b/c") == made and steps(ckptfs, store) == ["z/b/c"] and (mount / "z/f").read_bytes() == b"x"
    assert ckptfs.json("verify", store)["bad"] == []


def test_the_root_is_no_step(mount, plain, ckptfs, store):
    plain()
    trees.write(mount / ".finalize", b"")  # a file like any
    assert mount.listing() == [".finalize", "run"] and steps(ckptfs, store) == []


def test_an_empty_folder_and_metadata_that_is_none(mount, ckptfs, store):
    os.mkdir(mount / "run")
    assert marker_error(mount / "run", b"{oops") == "EINVAL"
    assert steps(ckptfs, store) == [] and mount.listing("run") == []
    trees.write(mount / "run/f", b"x")
    assert marker_error(mount / "run", b"{}") is None
    assert steps(ckptfs, store) == ["run"]
    os.mkdir(mount / "bare")
    assert marker_error(mount / "bare") is None
    mount.remount()
    assert mount.listing("bare") == [] and steps(ckptfs, store) == ["bare", "run"]


def test_a_mount_for_reading_turns_nothing(world, mount, plain, store):
    made = plain()
    reader = Mount.new(world, store, options=["ro"])
    assert marker_error(reader / "run") == "EROFS"
    assert trees.files(mount / "run") == made


def test_a_folder_renamed_while_its_marker_is_open(mount, plain, agent, ckptfs, store):
    made = plain()
    a = agent()
    a.run(OPEN_MARKER, folder=str(mount / "run"))
    os.rename(mount / "run", mount / "other")
    a.run("os.close(fd)")
    assert steps(ckptfs, store) == ["other"] and trees.files(mount / "other") == made


def test_a_folder_removed_while_its_marker_is_open(mount, agent, ckptfs, store):
    a = agent()
    os.mkdir(mount / "run")
    a.run(OPEN_MARKER, folder=str(mount / "run"))
    os.rmdir(mount / "run")
    assert a.errno_of("os.close(fd)") in ("ENOENT", "ESTALE")
    assert steps(ckptfs, store) == [] and mount.listing() == []


def test_a_killed_marker_turns_nothing(mount, plain, agent, ckptfs, store):
    made = plain()
    a = agent()
    a.run(OPEN_MARKER + "; os.write(fd, b'{}')", folder=str(mount / "run"))
    a.kill()
    a.wait_gone(5)
    wait_until(lambda: any("killed" in line for line in mount.errors()), 5, "a line in errors")
    assert steps(ckptfs, store) == [] and trees.files(mount / "run") == made
    assert marker_error(mount / "run") is None and steps(ckptfs, store) == ["run"]


def test_two_markers_of_one_handle(mount, plain, agent, ckptfs, store):
    plain()
    a = agent()
    a.run(OPEN_MARKER + "; other = os.dup(fd); os.close(fd)", folder=str(mount / "run"))
    assert steps(ckptfs, store) == [], "the marker is empty, and can still be written"
    a.run("os.write(other, b'{\"metrics\":{\"x\":1}}'); third = os.dup(other); os.close(other)")
    assert steps(ckptfs, store) == ["run"]
    assert ckptfs.json("info", store, "run")["metrics"] == {"x": 1}
    a.run("os.ftruncate(third, 0); os.pwrite(third, b'{\"metrics\":{\"x\":2}}', 0); os.close(third)")
    assert ckptfs.json("info", store, "run")["metrics"] == {"x": 2}, "what is written after the commit replaces it"


def test_many_markers_at_once_make_one_step(mount, plain, ckptfs, store):
    for round_ in range(5):
        made = plain(f"run{round_}")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(marker_error(mount / f"run{round_}"))) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert None in answers, answers
        assert set(answers) <= {None, "ENOENT", "ESTALE", "EBUSY", "EEXIST"}, answers
        assert trees.files(mount / f"run{round_}") == made
    assert steps(ckptfs, store) == [f"run{i}" for i in range(5)]
    mount.remount()
    assert steps(ckptfs, store) == [f"run{i}" for i in range(5)]
    assert ckptfs.json("verify", store)["bad"] == []


def test_markers_of_two_clients(mount, plain, agent, ckptfs, store):
    made = plain()
    a, b = agent(), agent()
    for who in (a, b):
        who.run(OPEN_MARKER, folder=str(mount / "run"))
    a.run("os.close(fd)")
    assert steps(ckptfs, store) == ["run"]
    assert b.errno_of("os.close(fd)") in (None, "ENOENT", "ESTALE")
    assert trees.files(mount / "run") == made
    assert marker_error(mount / "run") is None  # of a committed step: nothing is to do
    assert ckptfs.json("info", store, "run")["version"] == 1


def test_a_deleted_steps_name(mount, plain, ckptfs, store):
    first = plain()
    trees.write(mount / "run/.finalize", b"")
    ckptfs("rm", store, "run")
    os.mkdir(mount / "run")
    trees.write(mount / "run/f", b"second")
    trees.write(mount / "run/.finalize", b"")
    assert trees.files(mount / "run") == {"f": b"second"} and trees.files(mount / ".ckptfs/trash/run") == first
    mount.remount()
    assert trees.files(mount / "run") == {"f": b"second"}
    assert ckptfs.json("info", store, "run")["version"] == 3


def test_a_daemon_killed_in_the_middle(world, store, agent, ckptfs):
    """Its fsync hangs: the folder is not yet a step, and is there again at the next start."""
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix)
    os.mkdir(m / "run")
    made = trees.fill(m / "run")
    a = agent()
    a.run(OPEN_MARKER, folder=str(m / "run"))
    syncs.hang()
    a.start("os.close(fd)")
    assert a.still_busy(0.7)
    m._process.kill()
    syncs.go_on()
    m.kill9()
    with pytest.raises(OSError):
        a.result()
    m.start()
    assert m.listing() == ["run"]
    assert trees.files(m / "run") == made
    if steps(ckptfs, store) == []:
        assert marker_error(m / "run") is None
    assert steps(ckptfs, store) == ["run"] and ckptfs.json("sessions", store) == []
    assert trees.files(m / "run") == made and ckptfs.json("verify", store)["bad"] == []


def test_a_disk_that_loses_what_was_written(world, store, ckptfs):
    syncs = BadSyncs(world)
    m = Mount.new(world, store, prefix=syncs.prefix)
    os.mkdir(m / "run")
    made = trees.fill(m / "run")
    syncs.die()
    assert marker_error(m / "run") == "EIO"
    syncs.live()
    assert marker_error(m / "run") in (None, "EIO")
    m.kill9()
    m.start()
    assert trees.files(m / "run") == made
    if steps(ckptfs, store) == []:
        assert marker_error(m / "run") is None
    assert steps(ckptfs, store) == ["run"] and trees.files(m / "run") == made


@needs_root
def test_a_full_disk(world, ckptfs):
    disk = LoopDisk(world)
    m = Mount.new(world, disk.path / "store")
    os.mkdir(m / "run")
    made = trees.fill(m / "run")
    for i in range(400):  # its manifest is an object of its own, of many blocks
        made["params/" + f"{i:03}" * 20] = b""
        trees.write(m / "run/params" / (f"{i:03}" * 20), b"")
    disk.fill_up()
    assert marker_error(m / "run") == "ENOSPC"
    assert trees.files(m / "run") == made and steps(ckptfs, m.store) == []
    m.kill9()
    disk.make_room()
    m.start()
    assert trees.files(m / "run") == made and steps(ckptfs, m.store) == []
    assert marker_error(m / "run") is None
    assert steps(ckptfs, m.store) == ["run"] and trees.files(m / "run") == made
    assert ckptfs.json("verify", m.store)["bad"] == []


def test_a_folder_in_use_by_a_busy_client(mount, plain, agent):
    """Files come and go in it all the time: it becomes a step, or is a folder, at any moment, and nothing is lost."""
    plain()
    a = agent()
    a.start("""made = []
for i in range(2000):
    try:
        fd = os.open(f'{folder}/n{i}', os.O_CREAT | os.O_WRONLY)
        os.write(fd, b'x'); os.close(fd)
        made.append(i)
    except OSError as e:
        if e.errno not in (errno.ENOENT, errno.ESTALE, errno.EBUSY):
            raise
    if len(made) == 300:
        break
made""", folder=str(mount / "run"))
    time.sleep(0.05)
    while (error := marker_error(mount / "run")) is not None:
        assert error == "EBUSY"
    made = a.result()
    assert len(made) == 300
    mount.remount()
    assert {f"n{i}" for i in made} <= set(mount.listing("run")) and (mount / "run/config.json").exists()
