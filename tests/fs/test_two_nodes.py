"""Two mounts of one store, whose remote is a directory: what one changes of a step while the other is changing it, too.

A change here is no version yet, or its file is open, when the change of the other node comes. Nothing of it may be lost, in whatever
order the two come. test_remote_edits.c has each order by itself.
"""

import json
import os
import signal
import stat
import time

import pytest

from support import trees
from support.mounting import Mount, wait_until
from support.preload import preload

pytestmark = pytest.mark.timeout(90)

SEEN = 12  # seconds until another node shows what was pushed, on a busy machine: it looks every two


class Node(Mount):
    def wait(self, *step):
        self.world.program("wait", self.path, *step, "--remote", "--timeout", "40s", timeout=50)

    def read(self, path):
        try:
            return (self / "1000" / path).read_bytes()
        except FileNotFoundError:
            return None


def make_work_dir(ckptfs, path, remote):
    """A node's part of a store. A mount of a URL makes it, where the URL is no directory."""
    ckptfs("init", path)
    here = json.loads((path / "store.json").read_text())
    there = json.loads((remote / "store.json").read_text())
    here |= {key: there[key] for key in ("id", "created_ns")} | {"remote": {"url": f"file://{remote}", "options": []}}
    (path / "store.json").write_text(json.dumps(here))
    return path


def make_nodes(world, scratch, ckptfs, prefix=()):
    """Two nodes with step 1000, which they show since longer ago than what is written is still part of the save. prefix: of the second."""
    ckptfs("init", scratch / "remote")
    first, second = (Node.new(world, make_work_dir(ckptfs, scratch / f"work-{name}", scratch / "remote"), scratch / f"mnt-{name}",
                              options=["commit_quiet=1s"], prefix=prefix if name == "b" else ()) for name in "ab")
    (first / "1000").mkdir()
    trees.write(first / "1000/model.bin", trees.content("model", 300_000))
    for name in ("config.json", "other.json"):
        trees.write(first / "1000" / name, b"of the save")
    trees.write(first / "1000/.finalize", b"")
    first.wait("1000")
    wait_until(lambda: "1000" in second.listing(), SEEN, "the step on the other node")
    time.sleep(2)
    return first, second


@pytest.fixture
def nodes(world, scratch, ckptfs):
    return make_nodes(world, scratch, ckptfs)


def meet(first, second, expected):
    """Both nodes show these texts, and the same tree."""
    def shown(n):
        return {path: n.read(path) for path in expected}
    for n in (first, second):
        wait_until(lambda n=n: shown(n) == expected, SEEN + 20, f"{expected} at {n.path}, which has {shown(n)}")
    # Attributes become a version later than the texts may.
    wait_until(lambda: trees.describe(first / "1000") == trees.describe(second / "1000"), SEEN + 20, "the same tree")
    time.sleep(3)  # and it stays
    assert shown(first) == shown(second) == expected
    assert first.listing() == second.listing() == ["1000"]
    assert trees.describe(first / "1000") == trees.describe(second / "1000")


def old_texts(ckptfs, node, path):
    versions = ckptfs.json("info", node.store, "1000")["versions"]
    return {ckptfs("cat", node.store, f"1000@{v['version']}", path).stdout.encode() for v in versions if v["state"] == "old"}


def test_edits_of_two_files_are_both_there(nodes):
    first, second = nodes
    trees.write(first / "1000/config.json", b"of the first")
    trees.write(second / "1000/other.json", b"of the second")
    meet(first, second, {"config.json": b"of the first", "other.json": b"of the second"})
    assert first.errors() == second.errors() == []


def test_a_file_that_stays_open_is_published_with_what_is_written_later(nodes, ckptfs):
    first, second = nodes
    with open(second / "1000/config.json", "r+b", buffering=0) as f:
        f.write(b"of the second")
        trees.write(first / "1000/config.json", b"of the first")
        trees.write(first / "1000/other.json", b"of the first")
        first.wait("1000")
        time.sleep(5)  # it has come
        f.write(b", and more of it")
    meet(first, second, {"config.json": b"of the second, and more of it", "other.json": b"of the first"})
    assert b"of the first" in old_texts(ckptfs, second, "config.json")
    assert second.errors() == []


def test_a_file_that_is_open_and_not_written_yet_can_be_written(nodes):
    first, second = nodes
    with open(second / "1000/config.json", "r+b", buffering=0) as f, open(second / "1000/model.bin", "rb") as model:
        trees.write(first / "1000/other.json", b"of the first")
        wait_until(lambda: second.read("other.json") == b"of the first", SEEN, "the edit here")
        f.write(b"of the second")
        assert model.read() == trees.content("model", 300_000)
    meet(first, second, {"config.json": b"of the second", "other.json": b"of the first"})
    assert second.errors() == []


def test_a_new_file_that_is_open(nodes):
    first, second = nodes
    with open(second / "1000/new.json", "wb", buffering=0) as f:
        f.write(b"new")
        trees.write(first / "1000/other.json", b"of the first")
        wait_until(lambda: second.read("other.json") == b"of the first", SEEN, "the edit here")
        f.write(b" of the second")
    assert second.read("new.json") == b"new of the second"
    meet(first, second, {"new.json": b"new of the second", "other.json": b"of the first", "config.json": b"of the save"})
    assert second.errors() == []


@pytest.mark.parametrize("rest", [0, 0.5, 1, 2])
def test_a_removal(nodes, rest):
    first, second = nodes
    trees.write(first / "1000/other.json", b"of the first")
    time.sleep(rest)
    os.unlink(second / "1000/config.json")
    meet(first, second, {"config.json": None, "other.json": b"of the first"})
    assert first.errors() == second.errors() == []


@pytest.mark.parametrize("rest", [0, 0.5, 1, 2])
def test_a_mode(nodes, rest):
    first, second = nodes
    trees.write(first / "1000/other.json", b"of the first")
    time.sleep(rest)
    os.chmod(second / "1000/config.json", 0o604)
    wait_until(lambda: stat.S_IMODE(os.stat(first / "1000/config.json").st_mode) == 0o604, SEEN + 20, "the mode on the other node")
    meet(first, second, {"config.json": b"of the save", "other.json": b"of the first"})
    assert stat.S_IMODE(os.stat(second / "1000/config.json").st_mode) == 0o604


@pytest.mark.parametrize("rest", [0, 0.5, 1, 2])
def test_a_rename_in_the_step(nodes, rest):
    first, second = nodes
    trees.write(first / "1000/other.json", b"of the first")
    time.sleep(rest)
    os.rename(second / "1000/config.json", second / "1000/renamed.json")
    meet(first, second, {"config.json": None, "renamed.json": b"of the save", "other.json": b"of the first"})


def change_mode(ckptfs, node):
    def version():
        return ckptfs.json("info", node.store, "1000")["version"]
    before = version()
    os.chmod(node / "1000/config.json", 0o604)
    wait_until(lambda: version() > before, SEEN, "a version with the mode")


def remove(_, node):
    os.unlink(node / "1000/config.json")


def rename(_, node):
    os.rename(node / "1000/config.json", node / "1000/renamed.json")


def add(_, node):
    trees.write(node / "1000/added.json", b"of the second")


@pytest.mark.parametrize("change, expected", [
    (change_mode, {"config.json": b"of the save"}),
    (remove, {"config.json": None}),
    (rename, {"config.json": None, "renamed.json": b"of the save"}),
    (add, {"config.json": b"of the save", "added.json": b"of the second"}),
])
def test_a_change_between_the_arrival_of_an_edit_and_its_showing(world, scratch, ckptfs, change, expected):
    sign, has_read = scratch / "late", scratch / "late.read"
    first, second = make_nodes(world, scratch, ckptfs, preload(world, "late_news", LATE_NEWS=sign, LATE_NEWS_REMOTE=scratch / "remote"))
    assert second.read("other.json") == b"of the save"  # and the kernel keeps it
    sign.touch()
    trees.write(first / "1000/other.json", b"of the first")
    first.wait("1000")
    wait_until(has_read.exists, SEEN, "the edit in the second node's log")
    change(ckptfs, second)
    sign.unlink()
    meet(first, second, expected | {"other.json": b"of the first"})
    assert first.errors() == second.errors() == []


def test_an_edit_of_a_step_that_is_deleted_is_kept(nodes):
    first, second = nodes
    with open(second / "1000/config.json", "r+b", buffering=0) as f:
        f.write(b"of the second")
        for name in ("model.bin", "config.json", "other.json"):
            os.unlink(first / "1000" / name)
        os.rmdir(first / "1000")
        wait_until(lambda: "1000" not in first.listing(), 10, "the deletion there")
        first.wait()
        time.sleep(5)
    wait_until(second.errors, SEEN, "a line in errors")
    assert "another node has deleted it" in second.errors()[0]
    assert second.listing() == []
    assert (second / ".ckptfs/staged/1000/config.json").read_bytes() == b"of the second"


@pytest.fixture
def apart(scratch):
    """Neither node reads or writes the remote's log: it has a file in the place of a folder."""
    log, aside = scratch / "remote/log", scratch / "remote/log.aside"

    class Apart:
        def __enter__(self):
            log.rename(aside)
            log.write_bytes(b"")

        def __exit__(self, *_):
            log.unlink()
            aside.rename(log)

    return Apart()


def test_what_both_add_under_one_name_is_a_hidden_copy(nodes, apart, ckptfs, scratch):
    first, second = nodes
    with apart:
        for n in nodes:
            (n / "1000/d").mkdir()
            trees.write(n / "1000/d/new.json", b"of " + n.path.name.encode())
            trees.write(n / f"1000/of-{n.path.name}", b"alone")
    wait_until(lambda: (first / "1000/of-mnt-b").exists() and (second / "1000/of-mnt-a").exists(), SEEN * 3, "both additions on both")
    wait_until(lambda: first.read("d/new.json") == second.read("d/new.json"), SEEN, "the same text")
    text = first.read("d/new.json")
    copy = f"d/new.json.conflict-{os.uname().nodename}"
    other = {b"of mnt-a": b"of mnt-b", b"of mnt-b": b"of mnt-a"}[text]
    wait_until(lambda: first.read(copy) == second.read(copy) == other, SEEN, "the copy on both")
    for n in nodes:
        assert os.listdir(n / "1000/d") == ["new.json"]
        listed = {row["path"] for row in ckptfs.json("ls", n.store, "1000")}
        assert "d/new.json" in listed and copy not in listed
        assert copy in {row["path"] for row in ckptfs.json("ls", n.store, "1000", "--all")}
        ckptfs("get", n.store, "1000", scratch / f"got-{n.path.name}")
        assert sorted(os.listdir(scratch / f"got-{n.path.name}/d")) == ["new.json"]
    # Another name makes an ordinary file of it, and a folder with nothing else goes.
    (second / "1000" / copy).rename(second / "1000/d/mine.json")
    wait_until(lambda: sorted(os.listdir(first / "1000/d")) == ["mine.json", "new.json"], SEEN * 2, "the copy under its new name")
    assert first.read(copy) is None and first.read("d/mine.json") == other
    assert len(first.errors()) + len(second.errors()) >= 1


def save_alone(node, name):
    (node / name).mkdir()
    trees.write(node / name / "model.bin", b"whole")
    trees.write(node / name / ".finalize", b"")


def save(node, name):
    save_alone(node, name)
    node.wait(name)


@pytest.fixture
def cut_off(nodes, ckptfs):
    """Nodes of which the second has been killed in the middle of a save, and is there again."""
    _, second = nodes
    (second / "2000").mkdir()
    trees.write(second / "2000/cut.bin", b"cut off")
    second.kill9()
    second.start()
    assert (second / "2000/cut.bin").read_bytes() == b"cut off"
    assert [s["state"] for s in ckptfs.json("sessions", second.path)] == ["interrupted"]
    return nodes


def test_a_save_that_was_cut_off_does_not_hide_the_step_of_another_node(cut_off, ckptfs):
    first, second = cut_off
    save(first, "2000")
    wait_until(lambda: "2000" in second.listing(), SEEN, "the step of the other node")
    wait_until(lambda: os.path.exists(second / "2000/model.bin"), SEEN, "its file")
    assert (second / "2000/model.bin").read_bytes() == b"whole"
    assert not (second / "2000/cut.bin").exists()
    assert (second / ".ckptfs/staged/2000/cut.bin").read_bytes() == b"cut off"
    assert [s["state"] for s in ckptfs.json("sessions", second.path)] == ["left"]
    wait_until(lambda: any("another node has saved a step of this name" in line for line in second.errors()), SEEN, "a line of it")


def test_a_save_that_was_cut_off_and_goes_on_keeps_its_name_until_it_is_complete(cut_off, ckptfs):
    first, second = cut_off
    trees.write(second / "2000/more.bin", b"more")
    save(first, "2000")
    ckptfs("remote", "sync", second.path)
    assert "2000" not in second.listing()
    trees.write(second / "2000/last.bin", b"last")
    trees.write(second / "2000/.finalize", b"")
    wait_until(lambda: len([name for name in second.listing() if name.startswith("2000")]) == 2, SEEN, "both steps")
    [other] = [name for name in second.listing() if name.startswith("2000.conflict-")]
    assert sorted(os.listdir(second / other)) == ["cut.bin", "last.bin", "more.bin"]
    assert sorted(os.listdir(second / "2000")) == ["model.bin"]


def test_a_wait_for_the_remote_ends_soon_after_it_is_there_again(nodes, apart, ckptfs):
    """Each failure makes the next attempt later, up to a minute. Who waits does not wait for that."""
    first, _ = nodes
    with apart:
        save_alone(first, "2000")
        for _ in range(8):  # each makes one attempt
            assert ckptfs("remote", "sync", "--timeout", "1s", first.path, check=False).returncode
    ckptfs("wait", first.path, "2000", "--remote", "--timeout", "15s")


def test_a_file_whose_name_a_step_and_a_file_of_two_others_have(world, scratch, ckptfs, nodes, apart):
    """The step has the name, and the third content is on all nodes under another one: it does not wait for the step to go."""
    first, second = nodes
    third = Node.new(world, make_work_dir(ckptfs, scratch / "work-c", scratch / "remote"), scratch / "mnt-c")
    copy = f"best.conflict-{os.uname().nodename}"
    with apart:
        (first / "best").mkdir()
        trees.write(first / "best/model.bin", trees.content("best", 1000))
        trees.write(first / "best/.finalize", b"")
        for n in (second, third):
            trees.write(n / "best", b"of " + n.path.name.encode())
            os.kill(n.pid, signal.SIGSTOP)
    first.wait("best")  # the step is the first in the log, then the file of the second node
    os.kill(second.pid, signal.SIGCONT)
    second.wait()
    os.kill(third.pid, signal.SIGCONT)
    third.wait()
    for n in (first, second, third):
        wait_until(lambda n=n: n.listing() == ["1000", "best", copy], SEEN * 2, f"the copy at {n.path}")
        assert (n / copy).read_bytes() == b"of mnt-c"
        assert (n / "best/model.bin").read_bytes() == trees.content("best", 1000)
    assert "best" in third.errors()[0] and copy in third.errors()[0]
    # It is no longer hidden.
    (first / "best").rename(first / "better")
    for n in (first, second, third):
        wait_until(lambda n=n: (n / "best").is_file() and (n / "best").read_bytes() == b"of mnt-b", SEEN * 2, f"the file at {n.path}")
