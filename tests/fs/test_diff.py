"""diff: the files of two steps that differ, and the arrays in them."""

import json
import os

import numpy
import pytest
from safetensors.numpy import save_file

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


@pytest.mark.parametrize("words, status", [(["1"], 2), (["1", "2", "3"], 2), (["1", "9"], 1), (["1/size", "2"], 2), (["1", "trash/2"], 1)])
def test_wrong_use_is_refused(mount, pair, store, ckptfs, words, status):
    done = ckptfs("diff", store, *words, check=False)
    assert done.returncode == status and done.stdout == "" and len(done.stderr.splitlines()) == 2, done.stderr


ESCAPE = "\x1b[31m\u0085\u00e9"
LARGE = numpy.random.default_rng(1).random((600, 600))


@pytest.fixture
def models(mount, commit, scratch):
    """Steps 1 and 2: files of arrays, that differ in each way in which they can."""
    other = LARGE.copy()
    other[-1, -1] += 1
    tensors = {
        "1": {"same": LARGE, "moved": LARGE + 1, "bytes": LARGE, "dtype": numpy.zeros(8, "f4"), "shape": numpy.zeros((2, 4)), "gone": numpy.ones(3, "i8"), "empty": numpy.zeros((0, 3)), ESCAPE: numpy.zeros(3, "i1")},
        "2": {"a": LARGE, "same": LARGE, "moved": LARGE + 1, "bytes": other, "dtype": numpy.zeros(8, "i4"), "shape": numpy.zeros((4, 2)), "new": numpy.ones((2, 5), "f2"), "empty": numpy.zeros((0, 3)), ESCAPE: numpy.ones(3, "i1")}}
    for name in ("1", "2"):
        top = mount / name
        top.mkdir()
        save_file(tensors[name], top / "a.safetensors")
        save_file({"w": LARGE}, top / "header.safetensors", metadata={"step": name})
        numpy.savez(top / "b.npz", w=LARGE, v=numpy.full(5, int(name)), objects=numpy.array([{}, name], dtype=object))
        numpy.save(top / "c.npy", numpy.asfortranarray(LARGE) if name == "1" else LARGE)
        numpy.save(top / "d.npy", LARGE)
        trees.write(top / "words", name.encode() * 5)
        trees.write(top / "one.npy", (top / "d.npy").read_bytes() if name == "1" else b"no array")
        commit(top)


def row(path, array, dtype, *shape, **more):
    return {"path": path, "array": array, "dtype": dtype, "shape": list(shape), **more}


def changed(path, array, dtype, *shape, was=None, elements=None, differ=None, max_abs=None, max_ulp=None):
    known = 0 if elements else None
    return row(path, array, dtype, *shape, was={"path": path, "dtype": dtype, "shape": list(shape), **(was or {})}, elements=elements, differ=differ, nan=known, inf=known, max_abs=max_abs, max_ulp=max_ulp)


def test_diff_names_the_arrays_that_differ(mount, models, store, ckptfs):
    got, status = answer(ckptfs, "--arrays", store, "1", "2")
    arrays = got.pop("arrays")
    assert got == {"added": [], "removed": [], "changed": ["a.safetensors", "b.npz", "c.npy", "header.safetensors", "one.npy", "words"], "same": 1} and status == 1
    [by_bytes] = [r for r in arrays["changed"] if r["array"] == "bytes"]
    ulp = by_bytes["max_ulp"]
    assert ulp == abs(int(numpy.float64(LARGE[-1, -1] + 1).view("i8")) - int(LARGE[-1, -1].view("i8")))
    assert arrays == {
        "added": [row("a.safetensors", "a", "f64", 600, 600), row("a.safetensors", "new", "f16", 2, 5)],
        "removed": [row("a.safetensors", "gone", "i64", 3), row(".", "one", "f64", 600, 600)],
        "changed": [changed("a.safetensors", ESCAPE, "i8", 3, elements=3, differ=3, max_abs=1), changed("a.safetensors", "bytes", "f64", 600, 600, elements=360000, differ=1, max_abs=(LARGE[-1, -1] + 1) - LARGE[-1, -1], max_ulp=ulp),
                    changed("a.safetensors", "dtype", "i32", 8, was={"dtype": "f32"}, elements=8, differ=0, max_abs=0), changed("a.safetensors", "shape", "f64", 4, 2, was={"shape": [2, 4]}),
                    changed("b.npz", "v", "i64", 5, elements=5, differ=5, max_abs=1)],
        "same": 3 + 1 + 1 + 2, "unknown": ["one.npy", "words"], "unread": [row("b.npz", "objects", None, why="its elements are objects of Python") | {"shape": [2]}]}
    back = answer(ckptfs, "--arrays", store, "2", "1")[0]["arrays"]
    assert back["added"] == arrays["removed"] and back["removed"] == arrays["added"] and back["same"] == arrays["same"]
    assert answer(ckptfs, "--arrays", store, "1", "1") == ({"added": [], "removed": [], "changed": [], "same": 7, "arrays": {"added": [], "removed": [], "changed": [], "same": 15, "unknown": [], "unread": []}}, 0)
    assert answer(ckptfs, store, "1", "2") == (got, 1), "without the option nothing is said of arrays"


def test_diff_prints_arrays_after_the_files(mount, models, store, ckptfs):
    done = ckptfs("diff", "-a", store, "1", "2", check=False)
    assert done.returncode == 1 and done.stdout.splitlines()[:6] == ["~ a.safetensors", "~ b.npz", "~ c.npy", "~ header.safetensors", "~ one.npy", "~ words"]
    lines = done.stdout.splitlines()[6:]
    assert lines[2].startswith("  ~ bytes: 1 of 360000 elements, max abs 1, max ulp ") and lines.pop(2)
    assert lines == [
        "  ~ \\x1b[31m\\x85\u00e9: 3 of 3 elements, max abs 1", "  + a  f64 [600, 600]", "  ~ dtype  i32 [8], was f32 [8]: 0 of 8 elements, max abs 0", "  - gone  i64 [3]", "  + new  f16 [2, 5]",
        "  ? objects  cannot be compared: its elements are objects of Python", "  - one  f64 [600, 600]", "  ~ shape  f64 [4, 2], was f64 [2, 4]", "  ~ v: 5 of 5 elements, max abs 1"]


def test_an_array_that_cannot_be_read_is_a_failure(mount, models, store, ckptfs):
    mount.umount()
    for lost in (store / "sessions").glob("*/a.safetensors"):
        os.truncate(lost, lost.stat().st_size - 1)
    done = ckptfs("diff", "--arrays", store, "1", "2", check=False)
    assert done.returncode == 1 and done.stdout == "" and "ckptfs: 1: its arrays cannot be read: Input/output error" in done.stderr, done.stderr
