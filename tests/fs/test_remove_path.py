"""`ckptfs rm STEP/PATH`: a version of the step without it; the version before is as it was."""

import errno
import os
import subprocess

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["mounted", "at rest"])
def where(request, mount):
    """The verb acts on a store that is mounted, or that is not."""
    class Where:
        def __enter__(self):
            if request.param == "at rest":
                mount.umount()

        def __exit__(self, *_):
            if request.param == "at rest":
                mount.start()
    return Where()


@pytest.fixture
def made(mount, stage, commit):
    files = stage("1000")
    commit(mount / "1000")
    return files


def without(made, *gone):
    return {p: d for p, d in made.items() if not any(p == g or p.startswith(g + "/") for g in gone)}


def check(mount, expected, ckptfs, store, version):
    for _ in range(2):
        assert trees.files(mount / "1000") == expected and "1000" in mount.listing()
        info = ckptfs.json("info", store, "1000")
        assert (info["version"], info["files"], info["bytes"]) == (version, len(expected), sum(map(len, expected.values())))
        assert ckptfs.json("verify", store)["bad"] == []
        mount.kill9()
        mount.start()


def test_a_file(mount, made, where, ckptfs, store):
    inodes = {p: os.stat(mount / "1000" / p).st_ino for p in made}
    with where:
        ckptfs("rm", store, "1000/config.json")
    assert not (mount / "1000/config.json").exists() and "config.json" not in mount.listing("1000")
    left = without(made, "config.json")
    assert {p: os.stat(mount / "1000" / p).st_ino for p in left} == {p: inodes[p] for p in left}
    check(mount, left, ckptfs, store, 2)


def test_a_folder_with_all_below(mount, made, where, ckptfs, store):
    links = os.stat(mount / "1000").st_nlink
    with where:
        ckptfs("rm", store, "1000/params/layer_1")
        ckptfs("rm", store, "1000/params")
    assert mount.listing("1000") == ["config.json", "empty", "first"] and os.stat(mount / "1000").st_nlink == links - 1
    check(mount, without(made, "params"), ckptfs, store, 3)


def test_a_link_and_not_what_it_shows(mount, made, where, ckptfs, store):
    with where:
        ckptfs("rm", store, "1000/first")
    assert not os.path.lexists(mount / "1000/first")
    check(mount, made, ckptfs, store, 2)


def test_several_of_one_step_and_of_others(mount, made, stage, commit, where, ckptfs, store):
    other = stage("2000")
    commit(mount / "2000")
    with where:
        ckptfs("rm", store, "1000/config.json", "2000/params", "1000/empty")
    assert trees.files(mount / "2000") == without(other, "params")
    check(mount, without(made, "config.json", "empty"), ckptfs, store, 3)


def test_the_last_file(mount, commit, where, ckptfs, store):
    os.mkdir(mount / "1000")
    trees.write(mount / "1000/only", b"x")
    commit(mount / "1000")
    with where:
        ckptfs("rm", store, "1000/only")
    check(mount, {}, ckptfs, store, 2)
    trees.write(mount / "1000/only", b"again")
    check(mount, {"only": b"again"}, ckptfs, store, 3)


@pytest.mark.parametrize("word", ["1000/nothing", "1000/params/nothing", "1000/config.json/x", "1000/first/w0.bin", "1000/../1000/empty", "1000/."])
def test_what_is_not_there_is_refused(mount, made, where, ckptfs, store, word):
    with where:
        done = ckptfs("rm", store, word, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode in (1, 2) and done.stderr.startswith("ckptfs: ")
    check(mount, made, ckptfs, store, 1)


def test_a_name_can_be_given_again(mount, made, where, ckptfs, store):
    before = os.stat(mount / "1000/config.json").st_ino
    with where:
        ckptfs("rm", store, "1000/config.json", "1000/params")
    trees.write(mount / "1000/config.json", b"new")
    os.mkdir(mount / "1000/params")
    trees.write(mount / "1000/params/f", b"new too")
    assert os.stat(mount / "1000/config.json").st_ino != before
    check(mount, without(made, "params") | {"config.json": b"new", "params/f": b"new too"}, ckptfs, store, 6)


@both_modes
def test_who_has_it_open_reads_it_to_its_end(mount, stage, commit, agent, ckptfs, store):
    made = stage("1000", size=300_000)
    commit(mount / "1000")
    mount.remount()
    path, a = "params/layer_0/w0.bin", agent()
    a.run("fd = os.open(path, os.O_RDONLY); m = mmap.mmap(fd, 0, prot=mmap.PROT_READ); d = os.open(folder, os.O_RDONLY)", path=str(mount / "1000" / path),
          folder=str(mount / "1000/params/layer_0"))
    ckptfs("rm", store, "1000/params/layer_0")
    assert a.run("os.fstat(fd).st_size") == len(made[path])
    assert a.run("os.read(fd, 1 << 20)") == made[path] and a.run("m[:]") == made[path]
    assert mount.listing("1000/params") == ["layer_1", "layer_2"]
    for call in ("os.open(path, os.O_RDONLY)", "os.stat(path)", "os.stat(folder)"):
        assert a.errno_of(call) == "ENOENT"
    a.run("os.close(fd)")
    assert trees.files(mount / "1000") == without(made, "params/layer_0")


@both_modes
def test_kernel_caches_hold_it_no_longer(mount, made, ckptfs, store):
    for path in [*made, "first"]:
        os.lstat(mount / "1000" / path)
        mount.listing("1000"), mount.listing("1000/params")
        ckptfs("rm", store, f"1000/{path}")
        assert not os.path.lexists(mount / "1000" / path)
        with pytest.raises(OSError) as e:
            open(mount / "1000" / path, "rb")
        assert e.value.errno == errno.ENOENT
        folder, _, name = path.rpartition("/")
        assert name not in mount.listing(f"1000/{folder}")


def test_names_in_the_folder_and_its_inode_while_somebody_is_in_it(mount, made, agent, ckptfs, store):
    a = agent(cwd=str(mount / "1000/params"))
    assert "layer_0" in a.run("os.listdir()")
    ckptfs("rm", store, "1000/params/layer_0")
    assert "layer_0" not in a.run("os.listdir()")
    ckptfs("rm", store, "1000/params")
    assert a.errno_of("os.listdir()") in ("ENOENT", "ESTALE", None)
    assert a.errno_of("os.open('x', os.O_CREAT | os.O_WRONLY)") in ("ENOENT", "ESTALE")
    assert trees.files(mount / "1000") == without(made, "params")


def test_hard_links_are_counted(mount, commit, ckptfs, store):
    os.mkdir(mount / "1000")
    trees.write(mount / "1000/a", b"x")
    os.link(mount / "1000/a", mount / "1000/b")
    os.link(mount / "1000/a", mount / "1000/c")
    commit(mount / "1000")
    ckptfs("rm", store, "1000/a")
    mount.remount()
    assert trees.files(mount / "1000") == {"b": b"x", "c": b"x"}
    assert os.stat(mount / "1000/b").st_ino == os.stat(mount / "1000/c").st_ino and os.stat(mount / "1000/b").st_nlink == 2
    ckptfs("rm", store, "1000/b")
    mount.remount()
    assert os.stat(mount / "1000/c").st_nlink == 1 and (mount / "1000/c").read_bytes() == b"x"
    assert ckptfs.json("verify", store)["bad"] == []


@pytest.mark.parametrize("gone", ["b", "sub", "a"])
def test_a_file_that_has_another_name_can_be_written_by_that(mount, commit, ckptfs, store, gone):
    (mount / "1000/sub/deep").mkdir(parents=True)
    names = ["a", "b", "sub/deep/c"]
    (mount / "1000" / names[0]).write_bytes(b"old")
    for name in names[1:]:
        os.link(mount / "1000/a", mount / "1000" / name)
    commit(mount / "1000")
    ckptfs("rm", store, f"1000/{gone}")
    left = [name for name in names if not f"{name}/".startswith(f"{gone}/")]
    for name in left:
        (mount / "1000" / name).write_bytes(b"newer")
        assert {(mount / "1000" / n).read_bytes() for n in left} == {b"newer"}
    assert not (mount / "1000" / gone).exists()


def test_a_step_of_which_something_is_open_for_changes_keeps_it(mount, made, agent, ckptfs, store):
    a = agent()
    a.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY)", path=str(mount / "1000/pending"))
    ckptfs("rm", store, "1000/config.json")
    assert ckptfs("rm", store, "1000/pending", check=False).returncode == 1
    a.run("os.write(fd, b'x'); os.close(fd)")
    check(mount, without(made, "config.json") | {"pending": b"x"}, ckptfs, store, 3)


def test_undelete_gives_what_was_left(mount, made, where, ckptfs, store):
    with where:
        ckptfs("rm", store, "1000/params")
        ckptfs("rm", store, "1000")
        ckptfs("undelete", store, "1000")
    assert trees.files(mount / "1000") == without(made, "params")
    ckptfs("rm", "--now", "--yes", store, "1000")
    wait_until(lambda: os.listdir(store / "sessions") == [] and os.listdir(store / "trash") == [], what="the end of the files")
