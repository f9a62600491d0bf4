"""The Python package: steps that are saved by a `with`, what is asked of a store, and arrays that are read when they are used."""

import ctypes
import errno
import os
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from support import trees
from support.fixtures import SLOW
from support.python_package import mounted_or_not, package, where  # noqa: F401

pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it")]


@mounted_or_not
def test_a_step_is_committed_at_the_end_or_not_at_all(package, where, ckptfs, mounted):
    metrics = {}
    with package.step(where, 1000, metrics=metrics, extras={"lr": [1, 2]}) as folder:
        (folder / "sub").mkdir()
        trees.write(folder / "sub/w.bin", b"x" * 5000)
        assert not mounted or ckptfs.json("ls", where) == []
        metrics["loss"] = np.float32(1.5)
    with pytest.raises(ZeroDivisionError), package.step(where, "2000") as folder:
        trees.write(folder / "w.bin", b"y")
        1 / 0  # noqa: B018
    [step] = package.steps(where)
    assert (step.name, step.number, step.version, step.files, step.bytes, step.temporary) == ("1000", 1000, 1, 1, 5000, False)
    assert (step.metrics, step.extras) == ({"loss": 1.5}, {"lr": [1, 2]})
    assert step == package.latest(where) == package.find(where, 1000) and package.find(where, "2000") is None
    assert ckptfs.json("sessions", where) == []
    if mounted:
        assert (step.path / "sub/w.bin").read_bytes() == b"x" * 5000 == open(os.path.join(step, "sub/w.bin"), "rb").read()
    else:
        with pytest.raises(package.Error, match="not mounted"):
            os.fspath(step)


@mounted_or_not
def test_a_committed_step_gets_metrics_later(package, where):
    with package.step(where, 7, metrics={"loss": 1.5}) as folder:
        trees.write(folder / "w.bin", b"a")
    package.note(where, 7, metrics={"acc": np.float32(0.5)}, extras={"epoch": 2})
    package.note(where, "latest", metrics={"loss": 1, "bad": float("nan")})
    package.note(where, 7)
    [step] = package.steps(where)
    assert (step.version, step.metrics, step.extras) == (3, {"loss": 1, "acc": 0.5}, {"epoch": 2})
    with pytest.raises(package.Error, match="there is no such step") as refused:
        package.note(where, 8, metrics={"loss": 1})
    assert (refused.value.errno, refused.value.filename) == (errno.ENOENT, f"{where}/8")


@mounted_or_not
def test_a_name_that_is_taken_and_a_step_that_is_saved_over(package, where):
    for content in b"a", b"b":
        with package.step(where, 7, overwrite=content == b"b", temporary=content == b"b") as folder:
            trees.write(folder / "w.bin", content)
    with pytest.raises(package.Error, match="overwrite=True") as refused, package.step(where, 7):
        pass
    assert refused.value.errno == errno.EEXIST and isinstance(refused.value, OSError)
    assert [(s.name, s.temporary) for s in package.steps(where)] == [("7", True)]


@mounted_or_not
def test_a_save_that_is_no_block(package, where, ckptfs, mounted):
    staged = package.begin(where, 5)
    trees.write(staged.path / "w.bin", b"a")
    assert package.steps(where) == [] and (not mounted or len(ckptfs.json("sessions", where)) == 1)
    with pytest.raises(package.Error, match="form"):
        staged.commit(extras={"a": float("inf")})
    staged.commit(metrics={"loss": 2})
    assert [(s.name, s.metrics) for s in package.steps(where)] == [("5", {"loss": 2.0})]
    staged.abort()
    with pytest.raises(package.Error, match="was committed or aborted"):
        staged.commit()
    dropped = package.begin(where, 6)
    trees.write(dropped.path / "w.bin", b"a")
    dropped.abort()
    assert ckptfs.json("sessions", where) == [] and package.find(where, 6) is None


@mounted_or_not
def test_what_is_refused_says_what_to_do(package, where, tmp_path):
    with pytest.raises(package.Error, match="there is no store"):
        package.steps(tmp_path / "nosuch")
    with pytest.raises(package.Error, match="folder is not there"), package.step(where, "nosuch/1"):
        pass
    with pytest.raises(package.Error, match="form"), package.step(where, 5, extras={"a": float("inf")}) as folder:
        trees.write(folder / "w.bin", b"a")
    assert package.steps(where) == [] and package.latest(where) is None
    with pytest.raises(package.Error, match="both paths"):
        package.resolve(where, load_parameters_path="/a", load_full_state_path="/b")
    with pytest.raises(TimeoutError):
        package.wait(where, 9, timeout=0.05)


@mounted_or_not
def test_a_forked_child_leaves_the_step_to_its_parent(package, where):
    staged = package.begin(where, 3)
    trees.write(staged.path / "w", b"x")
    child = os.fork()
    if not child:
        staged.abort()
        staged._end()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    staged.commit()
    assert [(step.name, step.files) for step in package.steps(where)] == [("3", 1)]


@mounted_or_not
def test_what_to_load_and_whether_to_save(package, where):
    assert not package.resolve(where) and package.resolve(where).mode == package.Mode.SCRATCH
    assert package.should_save(where, 10)
    with package.step(where, 10) as folder:
        trees.write(folder / "w.bin", b"a")
    package.wait(where, 10)
    choice = package.resolve(where)
    assert choice and (choice.mode, choice.step) == (package.Mode.RESUME, "10")
    assert package.should_save(where, 10) == package.Answer.NO
    asked = []

    def decide(question):
        asked.append((question.step, question.latest, question.count))
        return package.Answer.TEMPORARY

    assert package.should_save(where, 20, decide=decide) == package.Answer.TEMPORARY and asked == [(20, 10, 1)]

    def fail(_question):
        raise KeyError("of the caller")

    with pytest.raises(KeyError, match="of the caller"):
        package.should_save(where, 30, decide=fail)


def test_many_threads_and_folders(package, mount):
    os.makedirs(mount / "run7")
    failed = []

    def save(i):
        try:
            with package.step(mount.path, f"run7/{i}", metrics={"i": i}) as folder:
                trees.write(folder / "w.bin", bytes([i]) * 100)
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=save, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed and sorted(s.number for s in package.steps(mount.path, "run7")) == list(range(12))
    assert package.latest(mount.path, "run7", by="step").metrics == {"i": 11} and package.steps(mount.path, None) and not package.steps(mount.path)


def same(got, want):
    return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


@mounted_or_not
def test_arrays_are_read_when_they_are_used(package, where):
    dice = np.random.default_rng(3)
    want = {"a.weight": dice.standard_normal((7, 9, 4), np.float32), "half": dice.standard_normal(50).astype(ml_dtypes.bfloat16),
            "eight": np.arange(-8, 8).astype(ml_dtypes.float8_e4m3fn), "on": np.array([True, False]), "none": np.zeros((0, 3)), "one": np.array(5)}  # fmt: skip
    with package.step(where, 1) as folder:
        save_file(want, folder / "model.safetensors")
        (folder / "ema").mkdir()
        save_file({"half": want["half"]}, folder / "ema/model.safetensors")
        np.savez_compressed(folder / "z.npz", turned=np.asfortranarray(want["a.weight"]))
    found = package.arrays(package.latest(where))
    halves = {"model.safetensors:half", "ema/model.safetensors:half"}
    assert set(found) == (want.keys() - {"half"}) | halves | {"turned"} and len(found) == 8
    with pytest.raises(KeyError):
        found["half"]
    for name, array in want.items():
        one = found[f"model.safetensors:{name}"]
        assert (one.name, one.shape, one.dtype, one.nbytes, one.why) == (name, array.shape, array.dtype.name, array.nbytes, None)
        assert same(np.asarray(one), array) and same(one.numpy(), array)
        assert one.torch().numpy().tobytes() == array.tobytes() if array.dtype.kind in "fib" else one.torch().element_size() == array.itemsize
    whole = want["a.weight"]
    for at in [0, -1, slice(2, 5), (slice(None), 3), (..., 2), (1, ..., -4), (slice(6, 0, -2), slice(None, None, 3), 1), slice(5, 5), (2, 3, 1),
               np.array([1, 1, 0]), whole[:, 0, 0] > 0, None]:  # fmt: skip
        for name in "a.weight", "turned":
            assert same(np.asarray(found[name][at]), np.asarray(whole[at])), at
    for at in 7, -8, (0, 0, 0, 0):
        with pytest.raises(IndexError):
            found["a.weight"][at]
    assert len(found["a.weight"]) == 7 and np.asarray(found["one"], dtype=np.float32) == 5


def test_arrays_by_path_and_what_cannot_be_read(package, mount, tmp_path):
    os.makedirs(mount / "run7")
    with package.step(mount.path, "run7/1") as folder:
        np.save(folder / "w.npy", np.arange(6))
        np.save(folder / "text.npy", np.array(["a", "b"]))
    found = package.arrays(mount / "run7/1")
    assert list(found["w"][2:4]) == [2, 3] and found["text"].why
    with pytest.raises(package.Error, match="text"):
        found["text"].numpy()
    for path in mount / "run7/2", tmp_path / "x":
        with pytest.raises(package.Error, match="no such step|no store"):
            package.arrays(path)


def test_many_threads_read_one_array(package, mount):
    want = np.arange(300_000, dtype=np.int64).reshape(300, 1000)
    with package.step(mount.path, 1) as folder:
        np.savez_compressed(folder / "z.npz", x=want, y=want * 2)
    found, wrong = package.arrays(mount / "1"), []

    def read(i):
        for k in range(i, 300, 8):
            if not same(found["xy"[k % 2]][k : k + 3], want[k : k + 3] * (1 + k % 2)):
                wrong.append(k)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_findings(package, mount):
    with package.step(mount.path, 1) as folder:
        np.save(folder / "w.npy", np.array([1, np.nan]))
    assert [f["kind"] for f in package.findings(package.latest(mount.path))] == ["nan"]
    with pytest.raises(package.Error, match="there is no such step") as refused:
        package.findings(mount / "77")
    assert refused.value.errno == errno.ENOENT
    with pytest.raises(package.Error, match="it is step, commit, timestamp, mtime or tracker"):
        package.latest(mount.path, by="size")
    assert package.latest(mount.path, healthy=True) != package.latest(mount.path)
    assert package.checks(mount / "1")["healthy"]


def test_a_library_that_is_not_there(package):
    code = "import ckptfs\ntry:\n    ckptfs.version()\nexcept ImportError as e:\n    print(e)"
    env = {**os.environ, "CKPTFS_LIBRARY": "/nosuch.so", "PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__))}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert "CKPTFS_LIBRARY" in said and package.version() == "0.1.0"


def test_a_box_outside_of_the_array_is_refused(package, mount):
    with package.step(mount.path, 1) as folder:
        np.save(folder / "w.npy", np.arange(12).reshape(3, 4))
    one = package.arrays(mount / "1")["w"]
    assert one._read([1, 1], [2, 3]).tolist() == [[5, 6, 7], [9, 10, 11]]
    for start, extent in (([1, 0], [3, 4]), ([0, 5], [1, 0]), ([2**64 - 1, 0], [2, 1])):
        got = (ctypes.c_uint64 * 64)()
        numbers = ctypes.c_uint64 * 2
        assert one._set.lib.ckpt_array_set_read(one._set.at, one._index, numbers(*start), numbers(*extent), got) == -errno.ERANGE
