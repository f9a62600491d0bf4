"""diff: the files of two steps that differ."""

import json
import os

import pytest

from support import trees

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def pair(mount, commit):
    """Steps 1 and 2: of each kind of difference one, and what is the same."""
    for name in ("1", "2"):
        top = mount / name
        (top / "same").mkdir(parents=True)
        trees.write(top / "same/big", trees.content(0, 3 << 20))
        trees.write(top / "same/empty", b"")
        os.symlink("big", top / "same/link")
        (top / "hollow").mkdir()
        trees.write(top / "size", b"x" * (100 + int(name)))
        trees.write(top / "bytes", trees.content(0, 2 << 20) + name.encode())
        trees.write(top / "mode", b"m", mode=0o600 if name == "1" else 0o644)
        os.symlink(f"to{name}", top / "target")
    trees.write(mount / "1/gone", b"")
    (mount / "1/gone folder/below").mkdir(parents=True)
    trees.write(mount / "1/gone folder/below/f", b"f")
    trees.write(mount / "1/was a file", b"")
    (mount / "1/was a folder").mkdir()
    trees.write(mount / "1/was a folder/f", b"f")
    (mount / "2/new hollow").mkdir()
    (mount / "2/was a file").mkdir()
    trees.write(mount / "2/was a file/f", b"f")
    trees.write(mount / "2/was a folder", b"")
    for name in ("1", "2"):
        commit(mount / name)


ADDED = ["new hollow", "was a file/f"]
REMOVED = ["gone", "gone folder/below/f", "was a folder/f"]
CHANGED = ["bytes", "size", "target", "was a file", "was a folder"]


def answer(ckptfs, *words):
    done = ckptfs("diff", *words, "--json", check=False)
    assert done.stderr == ""
    return json.loads(done.stdout), done.returncode


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
def test_diff_names_what_was_added_removed_and_changed(mount, pair, store, ckptfs, mounted):
    if not mounted:
        mount.umount()
    assert answer(ckptfs, store, "1", "2") == ({"added": ADDED, "removed": REMOVED, "changed": CHANGED, "same": 4}, 1)
    assert answer(ckptfs, store, "2", "1") == ({"added": REMOVED, "removed": ADDED, "changed": CHANGED, "same": 4}, 1)
    done = ckptfs("diff", store, "1", "latest", check=False)
    want = sorted([(p, "+") for p in ADDED] + [(p, "-") for p in REMOVED] + [(p, "~") for p in CHANGED])
    assert done.stdout.splitlines() == [f"{mark} {path}" for path, mark in want] and done.returncode == 1


def test_steps_with_the_same_content_do_not_differ(mount, pair, store, ckptfs, commit, scratch):
    ckptfs("get", store, "1", scratch / "copy")
    os.utime(scratch / "copy/mode", (1, 1))
    ckptfs("save", store, scratch / "copy", "3")
    for words in (["1", "3"], ["1", "1"], ["latest", "3"]):
        got, status = answer(ckptfs, store, *words)
        assert status == 0 and got["added"] == got["removed"] == got["changed"] == [] and got["same"] == 11, words
        assert ckptfs("diff", store, *words).stdout == ""


def test_deleted_steps_can_be_compared(mount, pair, store, ckptfs):
    ckptfs("rm", store, "1")
    assert answer(ckptfs, store, "trash/1", "2")[0]["changed"] == CHANGED
    assert answer(ckptfs, mount.path, "trash/1", "trash/1")[1] == 0
    assert ckptfs("diff", mount / "2", "2").returncode == 0


def test_a_file_that_cannot_be_read_is_a_failure(mount, pair, store, ckptfs):
    mount.umount()
    [lost] = [p for p in (store / "sessions").glob("*/bytes") if p.read_bytes().endswith(b"2")]
    lost.unlink()
    done = ckptfs("diff", store, "1", "2", check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[0] == "ckptfs: 2/bytes: cannot be read: Input/output error" and len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("words, status", [(["1"], 2), (["1", "2", "3"], 2), (["--arrays", "1", "2"], 2), (["1", "9"], 1), (["1/size", "2"], 2), (["1", "trash/2"], 1)])
def test_wrong_use_is_refused(mount, pair, store, ckptfs, words, status):
    done = ckptfs("diff", store, *words, check=False)
    assert done.returncode == status and done.stdout == "" and len(done.stderr.splitlines()) == 2, done.stderr
