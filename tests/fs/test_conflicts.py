"""The folder `.ckptfs/conflicts` of a mount: the conflict copies in steps, which two nodes that share a store have made."""

import errno
import mmap
import os
import stat
import subprocess
import time

import pytest

from support import trees
from support.mounting import wait_until
from test_two_nodes import SEEN, apart, nodes  # noqa: F401 (fixtures)

pytestmark = pytest.mark.timeout(150)


HOST = os.uname().nodename


def add_differently(n, step):
    """What one of the two nodes adds: every name but `alone` is another thing at the other one, so one of the two is a copy."""
    first = n.path.name == "mnt-a"
    (step / "d/e").mkdir(parents=True)
    trees.write(step / "d/e/new.bin", trees.content(n.path.name, 300_000))
    os.symlink(f"of-{n.path.name}", step / "link")
    for name, is_file in (("one", first), ("other", not first)):
        if is_file:
            trees.write(step / name, b"a file")
        else:
            (step / name / "in").mkdir(parents=True)
            trees.write(step / name / "in/it", b"in a folder")
    trees.write(step / f"of-{n.path.name}", b"alone")


def tree_of(top):
    """Paths to types and contents, as find and cat see them."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, top)
            if os.path.islink(path):
                found[key] = os.readlink(path)
            elif os.path.isdir(path):
                found[key] = None
            else:
                with open(path, "rb") as f:
                    found[key] = f.read()
    return found


def refused(act, *args):
    try:
        act(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


@pytest.fixture
def copies(nodes, apart):
    """Both nodes have the same conflict copies in runs/a/2000, and none in 1000."""
    first, second = nodes
    (first / "runs/a/2000").mkdir(parents=True)
    trees.write(first / "runs/a/2000/config.json", b"of the save")
    trees.write(first / "runs/a/2000/.finalize", b"")
    first.wait("runs/a/2000")
    wait_until(lambda: (second / "runs/a/2000/config.json").exists(), SEEN, "the second step on the other node")
    time.sleep(2)
    with apart:
        for n in nodes:
            add_differently(n, n / "runs/a/2000")
    for n in nodes:
        wait_until(lambda n=n: (n / f"runs/a/2000/d/e/new.bin.conflict-{HOST}").exists() and (n / "runs/a/2000/of-mnt-a").exists()
                   and (n / "runs/a/2000/of-mnt-b").exists(), SEEN * 6, "the copies on both")
    return nodes


def test_the_conflict_copies_of_a_step_are_in_the_control_directory(copies, scratch):
    first, second = copies
    assert os.listdir(first / ".ckptfs/conflicts") == ["runs"]
    assert os.listdir(first / ".ckptfs/conflicts/runs") == ["a"]
    seen = [tree_of(n / ".ckptfs/conflicts") for n in copies]
    assert seen[0] == seen[1]
    loser = "mnt-b" if (first / "runs/a/2000/link").readlink().name == "of-mnt-a" else "mnt-a"
    file, folder = ("one", "other") if loser == "mnt-a" else ("other", "one")
    top = "runs/a/2000"
    assert seen[0] == {
        "runs": None, "runs/a": None, top: None, f"{top}/d": None, f"{top}/d/e": None,
        f"{top}/d/e/new.bin.conflict-{HOST}": trees.content(loser, 300_000),
        f"{top}/link.conflict-{HOST}": f"of-{loser}",
        f"{top}/{file}.conflict-{HOST}": b"a file",
        f"{top}/{folder}.conflict-{HOST}": None, f"{top}/{folder}.conflict-{HOST}/in": None,
        f"{top}/{folder}.conflict-{HOST}/in/it": b"in a folder",
    }
    for n in copies:
        # Nothing is there by its name that no listing there has.
        for path in ("1000", f"{top}/config.json", f"{top}/d/e/new.bin", f"{top}/of-mnt-a", f"{top}/{file}"):
            assert refused(os.lstat, n / ".ckptfs/conflicts" / path) == "ENOENT"
        subprocess.run(["cp", "-r", n / ".ckptfs/conflicts", scratch / f"copied-{n.path.name}"], check=True)
        assert tree_of(scratch / f"copied-{n.path.name}") == seen[0]
        assert not any(".conflict-" in name for name in os.listdir(n / top))
        with open(n / ".ckptfs/conflicts" / top / f"d/e/new.bin.conflict-{HOST}", "rb") as f, \
                mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            assert mapped[:] == trees.content(loser, 300_000)


def test_nothing_is_written_below_the_folder_of_conflict_copies(copies):
    first, _ = copies
    there = first / ".ckptfs/conflicts/runs/a/2000"
    copy = there / f"d/e/new.bin.conflict-{HOST}"
    text = copy.read_bytes()
    assert stat.S_IMODE(os.stat(there).st_mode) == 0o555 and not stat.S_IMODE(os.stat(copy).st_mode) & 0o222
    for act, *args in ((os.open, copy, os.O_WRONLY), (os.open, copy, os.O_RDWR), (os.open, copy, os.O_RDONLY | os.O_TRUNC),
                       (os.truncate, copy, 0), (os.chmod, copy, 0o644), (os.utime, copy), (os.unlink, copy),
                       (os.rename, copy, there / "moved"), (os.rename, copy, first / "runs/a/2000/moved"),
                       (os.link, copy, there / "linked"), (os.link, copy, first / "linked"), (os.setxattr, copy, "user.x", b"1"),
                       (os.open, there / "made", os.O_CREAT | os.O_WRONLY), (os.mkdir, there / "made"),
                       (os.symlink, "x", there / "made"), (os.rmdir, there / "d"), (os.rename, there / "d", there / "moved")):
        assert refused(act, *args) in ("EROFS", "EPERM", "EACCES"), (act, args)
    assert copy.read_bytes() == text == (first / f"runs/a/2000/d/e/new.bin.conflict-{HOST}").read_bytes()


def test_the_folder_of_conflict_copies_follows_the_step(copies):
    first, second = copies
    step, there = first / "runs/a/2000", first / ".ckptfs/conflicts/runs/a/2000"
    copy = there / f"d/e/new.bin.conflict-{HOST}"
    text = copy.read_bytes()
    with open(step / "config.json", "r+b", buffering=0) as f:  # it is being changed
        f.write(b"again")
        assert copy.read_bytes() == text
        assert (first / ".ckptfs/conflicts/runs").is_dir() and os.listdir(there.parent) == ["2000"]
        assert sorted(os.listdir(there)) == sorted(name for name in os.listdir(second / ".ckptfs/conflicts/runs/a/2000"))
    os.rename(first / "runs/a/2000", first / "runs/a/3000")
    wait_until(lambda: os.listdir(there.parent) == ["3000"], SEEN, "the new name of the step")
    assert refused(os.lstat, copy) == "ENOENT"
    step, there = first / "runs/a/3000", first / ".ckptfs/conflicts/runs/a/3000"
    copy = there / f"d/e/new.bin.conflict-{HOST}"
    with open(copy, "rb", buffering=0) as f:
        assert f.read(7) == text[:7]
        trees.write(step / f"d/e/new.bin.conflict-{HOST}", b"another text")
        wait_until(lambda: copy.read_bytes() == b"another text", SEEN, "the text that the copy has now")
        assert f.read(7) == text[7:14] and os.fstat(f.fileno()).st_size == 300_000
        os.lseek(f.fileno(), 0, os.SEEK_SET)
        assert f.read() == text
    text = b"another text"
    with open(copy, "rb") as f:
        os.rename(step / f"d/e/new.bin.conflict-{HOST}", step / "d/e/mine.bin")  # an ordinary file
        wait_until(lambda: not copy.exists() and not (there / "d").exists(), SEEN, "one copy less")
        assert f.read() == text == (step / "d/e/mine.bin").read_bytes()
    for name in os.listdir(there):
        subprocess.run(["rm", "-r", step / name], check=True)
    wait_until(lambda: os.listdir(first / ".ckptfs/conflicts") == [], SEEN, "none left")
    wait_until(lambda: os.listdir(second / ".ckptfs/conflicts") == [], SEEN * 2, "none left on the other node")
