"""The Python package: loading by a template, with rules for shapes and names, into memory of NumPy, torch and JAX."""

import errno
import json
import logging
import os
import subprocess
import sys
from typing import Any, NamedTuple

import h5py
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from support.fixtures import SLOW
from support.python_package import mounted_or_not, package, where  # noqa: F401

pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it")]

W = np.arange(24, dtype=np.float32).reshape(4, 6)
STACK = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
ARRAYS = {"net.w": W, "net.stack": STACK, "ids": np.arange(5, dtype=np.int32), "half": np.arange(7).astype(ml_dtypes.bfloat16), "one": np.array(3.5)}


@pytest.fixture
def found(package, mount):
    with package.step(mount.path, 1) as folder:
        save_file(ARRAYS, folder / "model.safetensors")
        (folder / "ema").mkdir()
        save_file({"half": ARRAYS["half"]}, folder / "ema/model.safetensors")
    return package.arrays(mount / "1")


def padded(array, shape):
    want = np.zeros(shape, array.dtype)
    want[tuple(slice(0, n) for n in array.shape)] = array
    return want


SHAPES = [
    # template's shape, rule, what is loaded (None: refused), how
    ("net.w", (4, 6), "strict", W, "same"),
    ("net.w", (6, 4), "strict", None, r"got \(4, 6\), expected \(6, 4\)"),
    ("net.stack", (4, 6), "strict", None, "expected"),
    ("net.stack", (4, 6), "relaxed", STACK[0], "first"),
    ("net.w", (24,), "relaxed", W.reshape(24), "reshaped"),
    ("net.w", (2, 3, 4), "relaxed", W.reshape(2, 3, 4), "reshaped"),
    ("net.w", (5, 6), "relaxed", np.full((5, 6), 9, np.float32), "kept"),
    ("nosuch", (5, 6), "relaxed", np.full((5, 6), 9, np.float32), "kept"),
    ("nosuch", (5, 6), "strict", None, "Missing array for key 'nosuch'"),
    ("net.w", (5, 8), "padded", padded(W, (5, 8)), "padded"),
    ("net.w", (3, 8), "padded", None, "smaller than actual"),
    ("net.w", (4, 6, 1), "padded", None, "Global shape mismatch"),
    ("half", (7,), "strict", None, "TREE:NAME"),
]


@pytest.mark.parametrize("name, shape, rule, want, how", SHAPES)
def test_shapes(package, found, name, shape, rule, want, how):
    template = {name: np.full(shape, 9, np.float32)}
    if want is None:
        with pytest.raises(package.Error, match=how):
            found.load(template, shapes=rule)
        return
    loaded = found.load(template, shapes=rule)
    assert loaded.fitted == {name: how} and np.array_equal(loaded.arrays[name], want) and loaded.arrays[name].dtype == np.float32
    assert (loaded.arrays[name] is template[name]) == (how == "kept")
    assert np.array_equal(found.load(template, shapes=lambda _: rule).arrays[name], want)


REST = ["net.stack", "ids", "model.safetensors:half", "one", "ema/model.safetensors:half"]
MODES = [
    # missing, unexpected, is logged, is refused
    ("assume_ok_unexpected", [], [], False, True),
    ("log_unexpected", [], ["nosuch"], True, False),
    ("log_all", REST, ["nosuch"], True, False),
    ("raise_unexpected", [], ["nosuch"], False, True),
    ("raise_all", REST, ["nosuch"], False, True),
    ("return_unexpected", [], ["nosuch"], False, False),
    ("return_all", REST, ["nosuch"], False, False),
    ("ignore_all", [], [], False, False),
]


@pytest.mark.parametrize("strict, missing, unexpected, logged, refused", MODES)
def test_modes(package, found, caplog, strict, missing, unexpected, logged, refused):
    template = {"net": {"w": None}, "nosuch": np.zeros(3)}
    with caplog.at_level(logging.WARNING, "ckptfs"):
        if refused:
            with pytest.raises(package.Error, match="nosuch") as why:
                found.load(template, strict)
            assert ("'net.stack'" in str(why.value)) == bool(missing)
        else:
            loaded = found.load(template, strict)
            assert sorted(loaded.missing) == sorted(missing) and loaded.unexpected == unexpected
            assert list(loaded.arrays) == ["net"] and np.array_equal(loaded.arrays["net"]["w"], W)
            assert loaded.fitted == {"net.w": "same", "nosuch": "absent"}
    assert bool(caplog.records) == logged and all("nosuch" in r.message for r in caplog.records)


def test_a_mode_or_a_rule_that_is_none(found):
    with pytest.raises(ValueError, match="Invalid strict flag"):
        found.load({"ids": None}, "strict")
    with pytest.raises(ValueError, match="no rule for shapes"):
        found.load({"ids": None}, shapes="loose")


def test_leaves_of_a_template_say_kind_and_dtype(package, found):
    torch = pytest.importorskip("torch")
    import jax
    import jax.numpy as jnp

    template = {
        "net": {"w": torch.zeros(4, 6, dtype=torch.bfloat16), "stack": jax.ShapeDtypeStruct((2, 4, 6), jnp.float16)},
        "ids": torch.zeros(5, dtype=torch.int64), "model.safetensors:half": jnp.zeros(7, jnp.float32), "one": None, "epoch": 7, "more": ["text"],
    }  # fmt: skip
    got = found.load(template, "raise_unexpected").arrays
    assert got["net"]["w"].dtype == torch.bfloat16 and torch.equal(got["net"]["w"], torch.from_numpy(W).bfloat16())
    assert isinstance(got["net"]["stack"], jax.Array) and got["net"]["stack"].dtype == jnp.float16 and np.array_equal(got["net"]["stack"], STACK)
    assert got["ids"].dtype == torch.int64 and got["ids"].tolist() == [0, 1, 2, 3, 4]
    assert isinstance(got["model.safetensors:half"], jax.Array) and got["model.safetensors:half"].dtype == jnp.float32
    assert got["one"].dtype == np.float64 and got["one"] == 3.5 and (got["epoch"], got["more"]) == (7, ["text"])
    assert found.load({"net.w": None, "ids": None}, dtype="float16").arrays["net.w"].dtype == np.float16
    assert found.load({"ids": None}, dtype="float16").arrays["ids"].dtype == np.int32
    assert found.load({"one": None}, dtype="float32").arrays["one"].dtype == np.float32
    with pytest.raises(package.Error, match="TREE:NAME"):
        found.load({"half": None})


def test_lists_and_tuples_keep_their_kind(package, mount):
    with package.step(mount.path, 1) as folder:
        save_file({f"layers.{i}.w": np.full(2, i, np.float32) for i in range(3)}, folder / "m.safetensors")
    got = package.arrays(mount / "1").load({"layers": [{"w": None}, {"w": None}, {"w": None, "b": None}]}, "ignore_all").arrays
    assert [layer["w"][0] for layer in got["layers"]] == [0, 1, 2] and all(list(layer) == ["w"] for layer in got["layers"])


class Adam(NamedTuple):
    count: Any
    mu: Any
    text: str = "x"


def test_fields_of_a_named_tuple_are_read(package, mount):
    with package.step(mount.path, 1) as folder:
        save_file({"opt.0": np.ones(1), "opt.1": np.ones(2)}, folder / "m.safetensors")
    got = package.arrays(mount / "1").load({"opt": Adam(np.zeros(1), np.zeros(2))}).arrays["opt"]
    assert isinstance(got, Adam) and (got.count.tolist(), got.mu.tolist(), got.text) == ([1.0], [1.0, 1.0], "x")


def test_memory_of_the_template_is_filled_in_place(found):
    torch = pytest.importorskip("torch")
    base = torch.full((6, 9), -1.0)
    template = {"net.w": base[:, ::2][:, :4].t(), "net.stack": np.zeros((4, 6, 2), np.float32).transpose(2, 0, 1), "ids": torch.zeros(5, dtype=torch.int64)}
    got = found.load(template, in_place=True).arrays
    assert got["net.w"] is template["net.w"] and got["net.stack"] is template["net.stack"] and got["ids"].tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(template["net.w"], torch.from_numpy(W)) and np.array_equal(template["net.stack"], STACK)
    assert torch.equal(base[:, 1::2], torch.full((6, 4), -1.0)) and not template["ids"].any()


def test_callbacks_come_between_batches(package, found):
    template = {name: None for name in ("net.w", "net.stack", "ids", "one")}
    for size in 0, 1, 3, 100:
        seen = []
        got = found.load(template, callback=lambda a, name: seen.append(name) or (a * 2 if a.dtype.kind == "f" else a), chunk_size=size, at_once=2)  # noqa: B023
        assert seen == list(template) and np.array_equal(got.arrays["net.w"], W * 2) and np.array_equal(got.arrays["ids"], ARRAYS["ids"])
        assert got.arrays["one"] == 7


@mounted_or_not
def test_many_arrays_are_read_by_many_threads(package, where):
    want = {f"a{i}": np.arange(i * 1000, dtype=np.float32).reshape(10, -1) for i in range(40)}
    with package.step(where, 1) as folder:
        np.savez_compressed(folder / "z.npz", **want)
    found = package.arrays(package.latest(where))
    for at_once in 0, 1, 16:
        got = found.load(dict.fromkeys(want), "raise_all", at_once=at_once).arrays
        assert all(np.array_equal(got[name], a) and got[name].shape == a.shape for name, a in want.items())


MEMORY = """
import sys, numpy as np, ckptfs
from ckptfs._load import Request, read
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
found = ckptfs.arrays(sys.argv[1])
into = np.zeros((8, 16 << 10), np.float32)
requests = [Request(f"a{i}", start=[0, 0], extent=[16 << 10, 1], into=row.ctypes.data) for i, row in enumerate(into)]
read(found._set.lib, found._set.at, [Request("small", into=np.zeros(4, np.float32).ctypes.data)], 8)
before = peak()
assert read(found._set.lib, found._set.at, requests, 8) == [0] * 8 and (into == np.arange(8)[:, None]).all()
print((peak() - before) >> 10)
"""


def test_threads_do_not_multiply_the_memory_of_decoding(package, mount):
    with package.step(mount.path, 1) as folder, h5py.File(folder / "model.h5", "w") as f:
        for i in range(8):
            f.create_dataset(f"a{i}", data=np.full((16 << 10, 1 << 10), i, np.float32), chunks=(1 << 10, 1 << 10), compression="gzip", compression_opts=1)
        f["small"] = np.zeros(4, np.float32)
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__))}
    said = subprocess.run([sys.executable, "-c", MEMORY, str(mount / "1")], env=env, capture_output=True, text=True, timeout=150)
    assert said.returncode == 0, said.stderr
    assert int(said.stdout) <= 200, said.stdout


SPLIT = """
import sys, json, numpy as np, jax, jax.numpy as jnp, ckptfs
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
found = ckptfs.arrays(sys.argv[1])
read = []
inside = type(found._set).read_all
type(found._set).read_all = lambda self, requests, *more: read.extend(r.extent for r in requests) or inside(self, requests, *more)
leaf = jax.ShapeDtypeStruct((4, 8), jnp.bfloat16, sharding=NamedSharding(mesh, P("x", "y")))
got = found.load({"net": {"w": leaf}}, shapes="padded").arrays["net"]["w"]
print(json.dumps([sorted(map(list, filter(None, read))), np.asarray(got, np.float32).tolist(), str(got.dtype), len(got.sharding.device_set)]))
"""


def test_a_sharded_leaf_of_jax_is_read_part_by_part(package, found, mount):
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__)), "JAX_PLATFORMS": "cpu",
           "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}  # fmt: skip
    said = subprocess.run([sys.executable, "-c", SPLIT, str(mount / "1")], env=env, capture_output=True, text=True, check=True).stdout
    extents, got, dtype, devices = json.loads(said)
    assert extents == [[2, 4]] * 4 and got == padded(W, (4, 8)).tolist() and (dtype, devices) == ("bfloat16", 4)


@pytest.mark.parametrize("more", [{"start": [1], "extent": [2]}, {"strides": [4]}, {"start": [1, 0, 0], "extent": [1, 1, 1]}])
@pytest.mark.parametrize("name, result", [("net.w", -errno.EINVAL), ("half_ema", -errno.ENOENT)])
def test_a_box_of_another_rank_is_refused(package, found, more, name, result):
    from ckptfs._load import Request, match, read

    into = np.full(24, 9, np.float32)
    request = Request(name, into=into.ctypes.data, **more)
    assert read(found._set.lib, found._set.at, [request]) == [result] and (into == 9).all()
    if "start" in more:
        assert match(found._set.lib, found._set.at, [request], "assume_ok_unexpected", "").results == [result]


@pytest.mark.parametrize("has, start, count, result", [(1, 7, 5, 0), (1, 7, 0, 0), (1, 0, 0, 0), (1, 24, 0, 0), (1, 20, 5, -errno.ERANGE), (1, 25, 0, -errno.ERANGE), (0, 0, 5, -errno.EINVAL), (2, 0, 5, -errno.EINVAL)])
def test_a_flat_range_is_read_and_an_empty_one_is_not_all(package, found, has, start, count, result):
    from ctypes import c_int

    from ckptfs._load import Request, _structs

    into = np.full(24, -1, np.float32)
    asked = _structs([Request("net.w", into=into.ctypes.data)])
    asked[0].has_flat, asked[0].flat_start, asked[0].flat_count = has, start, count
    results = (c_int * 1)()
    found._set.lib.ckpt_array_set_read_many(found._set.at, asked, 1, 1, results)
    want = W.reshape(-1)[start : start + count] if not result else W[:0]
    assert results[0] == result and into[: len(want)].tolist() == want.tolist() and (into[len(want) :] == -1).all()


def test_a_name_that_a_tree_has_twice_is_the_first(package, mount):
    """The second has another shape: its memory would be too small for the first."""
    torch = pytest.importorskip("torch")
    first, second = torch.arange(100_000.0), torch.ones(3)
    with package.step(mount.path, 1) as folder:
        torch.save({"x": {"y": first}, "x.y": second, "other": second}, folder / "a.pt")
    arrays = package.arrays(mount / "1")
    assert list(arrays) == ["a.pt:x.y", "other"] and arrays["a.pt:x.y"].shape == (100_000,)
    assert torch.equal(arrays["a.pt:x.y"].torch(), first) and np.array_equal(arrays["a.pt:x.y"].numpy(), first.numpy())
    assert np.array_equal(arrays.load({"a.pt:x.y": None}).arrays["a.pt:x.y"], first.numpy())


def test_an_array_that_cannot_be_read_is_no_tensor(package, mount):
    torch = pytest.importorskip("torch")
    with package.step(mount.path, 1) as folder:
        torch.save({"meta": torch.ones(2, device="meta"), "conj": torch.ones(2, dtype=torch.complex64).conj()}, folder / "a.pt")
    for name, word in ("meta", "meta tensor"), ("conj", "conjugated"):
        for read in (package.arrays(mount / "1")[name].torch, package.arrays(mount / "1")[name].numpy):
            with pytest.raises(package.Error, match=word):
                read()
