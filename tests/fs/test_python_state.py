"""ckptfs.save, save_async and load: state dicts of NumPy, torch and JAX; their trees, their names, what is refused."""

import errno
import os
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from support.fixtures import SLOW, SOURCE

pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it")]


@pytest.fixture(scope="module")
def package(ckptfs, tmp_path_factory):
    """The package as pip installs it, imported."""
    source = tmp_path_factory.mktemp("source") / "python"
    target = tmp_path_factory.mktemp("target")
    shutil.copytree(SOURCE / "tools/python", source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", target, source]
    subprocess.run([*map(str, pip)], check=True, timeout=150)
    os.environ["CKPTFS_LIBRARY"] = str(ckptfs.path.parent / "libckptfs.so.1")
    sys.path.insert(0, str(target))
    import ckptfs as module

    return module


@pytest.fixture(params=["mounted", "unmounted"])
def where(request, mount, store):
    if request.param == "unmounted":
        mount.umount()
    return mount.path if request.param == "mounted" else store


def state():
    rng = np.random.default_rng(1)
    return {
        "model": {"w": rng.random((700, 900), np.float32), "b": np.arange(9).astype(ml_dtypes.bfloat16), "none": np.zeros((0, 3))},
        "groups": [{"lr": 0.5, "betas": (0.9, 0.99), "fused": True}, {"lr": 2, "betas": (0.0, 1.0), "fused": False}],
    }


def zeros():
    return {
        "model": {"w": np.zeros((700, 900), np.float32), "b": np.zeros(9, ml_dtypes.bfloat16), "none": np.zeros((0, 3))},
        "groups": [{"lr": 0.0, "betas": (0.0, 0.0), "fused": False}, {"lr": 0, "betas": (0.0, 0.0), "fused": True}],
    }


@pytest.mark.parametrize("format", ["safetensors", "dcp"])
def test_a_state_comes_back(package, where, format):
    package.save(state(), where / "1000", metrics={"loss": 1.5}, format=format)
    [step] = package.steps(where)
    assert (step.name, step.metrics) == ("1000", {"loss": 1.5})
    into, want = zeros(), state()
    got = package.load(where / "latest", into)
    for name in ("w", "b", "none"):
        assert got["model"][name] is into["model"][name]
        assert got["model"][name].tobytes() == want["model"][name].tobytes()
    assert got["groups"] == want["groups"]
    assert [type(group["lr"]) for group in got["groups"]] == [float, int]
    flat = package.load(step)
    assert sorted(flat) == sorted(["model.w", "model.b", "model.none", *(f"groups.{i}.{n}" for i in (0, 1) for n in ("lr", "betas.0", "betas.1", "fused"))])
    assert flat["model.b"].dtype == ml_dtypes.bfloat16 and np.array_equal(flat["model.w"], want["model"]["w"])


def test_a_save_in_the_background_has_the_bytes_at_captured(package, where):
    saved = state()
    saving = package.save_async(saved, where / "7")
    saving.captured()
    saved["model"]["w"] += 1
    saving.result(60)
    saving.result()
    assert saving.done()
    assert np.array_equal(package.load(where / "7")["model.w"], state()["model"]["w"])
    with pytest.raises(package.Error) as e:
        package.save_async(saved, where / "7").result()
    assert e.value.errno == errno.EEXIST and "overwrite=True" in e.value.strerror
    package.save(saved, where / "7", overwrite=True)
    assert np.array_equal(package.load(where / "7")["model.w"], saved["model"]["w"])


CLOSES = """
import sys
import numpy as np
import ckptfs

with ckptfs.cuda.Pool(1 << 20, "host") as pool:
    saving = ckptfs.save_async({"w": np.arange(4 << 20)}, sys.argv[1] + "/1", pool=pool)
assert saving.done()
saving.result()
"""


def run(package, text, *arguments):
    """In a process of its own, which may end by a signal."""
    package_at = os.path.dirname(os.path.dirname(package.__file__))
    env = {**os.environ, "PYTHONPATH": package_at}
    subprocess.run([sys.executable, "-c", text, *arguments], env=env, check=True, timeout=120)


def test_the_close_of_a_pool_waits_for_saves_in_the_background(package, where):
    run(package, CLOSES, where)
    assert np.array_equal(package.load(where / "1")["w"], np.arange(4 << 20))


def test_a_failure_in_the_background_reaches_the_caller(package, where, caplog):
    saving = package.save_async(state(), where / "8", metrics={"loss": "none"})
    with pytest.raises(ValueError, match="could not convert"):
        saving.result()
    assert "8 was not saved: could not convert" in caplog.text
    assert package.steps(where) == []
    package.save(state(), where / "8")


def test_tensors_of_torch(package, where):
    torch = pytest.importorskip("torch")
    base = torch.arange(12.0).reshape(3, 4).to(torch.complex64) * (1 + 2j)
    saved = {"w": torch.arange(5000, dtype=torch.bfloat16).reshape(50, 100).T, "p": torch.nn.Parameter(torch.ones(3)), "conj": base.conj(), "neg": base.conj().imag, "n": torch.tensor(7)}
    package.save(saved, where / "a")
    into = {"w": torch.zeros(50, 100, dtype=torch.bfloat16).T, "p": torch.nn.Parameter(torch.zeros(3)), "conj": torch.zeros(3, 4, dtype=torch.complex64), "neg": torch.zeros(3, 4), "n": torch.tensor(0)}
    got = package.load(where / "a", into)
    new = package.load(where / "a", framework="torch")
    for name, value in saved.items():
        assert got[name] is into[name]
        assert torch.equal(into[name], value), name
        assert new[name].dtype == value.dtype and torch.equal(new[name], value), name
    model = torch.nn.Linear(4, 3)
    package.save({"model": model.state_dict()}, where / "b")
    other = torch.nn.Linear(4, 3)
    package.load(where / "b", {"model": other.state_dict()})
    assert torch.equal(other.weight, model.weight) and torch.equal(other.bias, model.bias)


def test_arrays_of_jax(package, where):
    jax = pytest.importorskip("jax")
    saved = {"w": jax.numpy.arange(6, dtype=jax.numpy.bfloat16).reshape(2, 3), "b": jax.numpy.ones(4)}
    package.save(saved, where / "j")
    template = jax.tree.map(jax.numpy.zeros_like, saved)
    got = package.load(where / "j", template)
    for name, value in saved.items():
        assert isinstance(got[name], jax.Array) and got[name].dtype == value.dtype and np.array_equal(got[name], value)
        assert not np.any(np.asarray(template[name], np.float32))


def test_what_is_refused_is_named(package, where, tmp_path):
    torch = pytest.importorskip("torch")
    for leaf in ({"x"}, object(), np.array(["x"]), np.datetime64(1, "s")):
        for save in (package.save, package.save_async):
            with pytest.raises(TypeError, match="model.0.name: it is no tensor"):
                save({"w": np.ones(4), "model": [{"name": leaf}]}, where / "1")
    for save in (package.save, package.save_async):
        with pytest.raises(TypeError, match="model.name: .* more than 60 KiB: bytes"):
            save({"w": np.ones(4), "model": {"name": bytes(60 << 10), "title": "x"}}, where / "1")
    with pytest.raises(ValueError, match="ckptfs.state: extras= cannot have it"):
        package.save({"w": np.ones(4), "name": "x"}, where / "1", extras={"ckptfs.state": 1})
    with pytest.raises(ValueError, match="a.b: two values of the state have this name"):
        package.save({"a.b": np.ones(1), "a": {"b": np.zeros(1)}}, where / "1")
    for odd in (torch.ones(3).to_sparse(), torch.ones(3, device="meta")):
        with pytest.raises(TypeError, match="odd: it is no dense tensor of a CPU or of CUDA"):
            package.save({"odd": odd}, where / "1")
    with pytest.raises(package.Error, match="it is in no store"):
        package.save({"w": np.ones(1)}, tmp_path / "1")
    assert package.steps(where) == []
    with pytest.raises(package.Error, match="there is no such step"):
        package.load(where / "1")
    package.save({"w": np.ones(4)}, where / "1")
    for into, code in (({"v": np.ones(4)}, errno.ENOENT), ({"w": np.ones(5)}, errno.EINVAL), ({"w": np.ones(4, np.int64)}, errno.EINVAL)):
        with pytest.raises(package.Error) as e:
            package.load(where / "1", into)
        assert (e.value.errno, e.value.filename) == (code, next(iter(into)))


VALUES = {"none": None, "text": "ö \U0001f40d \"", "odd": "a\0b\udc80", "empty": "", "bytes": bytes(range(256)), "no bytes": b"", "large": 1 << 127, "less": -(1 << 64) - 1}


def test_values_that_are_no_tensors_come_back(package, where):
    saved = {"w": np.ones(4), "rest": [VALUES, ("x", 5, 1 << 63)]}
    package.save(saved, where / "1", extras={"by": "hand"})
    package.save_async(VALUES, where / "2").result()
    [first, second] = package.steps(where)
    assert first.extras["by"] == "hand" and list(second.extras) == ["ckptfs.state"]
    assert package.load(second) == VALUES
    flat = package.load(first)
    assert {n: flat.pop(f"rest.0.{n}") for n in VALUES} == VALUES and flat.pop("rest.1.0") == "x"
    assert sorted(flat) == ["rest.1.1", "rest.1.2", "w"]
    into = {"w": np.zeros(4), "rest": [{**dict.fromkeys(VALUES, ""), "large": 1, "less": 1 << 70}, (None, 1 << 70, 0)]}
    got = package.load(first, into)
    assert got["w"] is into["w"] and got["w"].all() and got["rest"] == saved["rest"]
    for name, leaf in (("none", np.ones(1)), ("none", True), ("text", 1), ("less", 1.5)):
        into = {"w": np.zeros(4), "rest": [{name: leaf}]}
        with pytest.raises(package.Error, match="in the state") as e:
            package.load(first, into)
        assert (e.value.errno, e.value.filename) == (errno.EINVAL, f"rest.0.{name}") and not into["w"].any()
    with pytest.raises(package.Error, match=r"float64 \[4\] in the step, and NoneType in the state"):
        package.load(first, {"w": None})
    with pytest.raises(package.Error, match="no array of this name"):
        package.load(first, {"v": None})


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Adagrad"])
def test_the_state_of_an_optimizer_comes_back(package, where, kind):
    torch = pytest.importorskip("torch")

    def made(seed):
        torch.manual_seed(seed)
        model = torch.nn.Linear(4, 3)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1 * seed)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        return optimizer

    def state(of):
        rng = {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "generator": np.random.default_rng().bit_generator.state}
        return {"opt": of.state_dict(), "rng": rng}

    saved = state(made(1))
    package.save(saved, where / "1")
    other = made(2)
    got = package.load(where / "1", state(other))
    other.load_state_dict(got["opt"])
    assert str(other.state_dict()) == str(saved["opt"]) and str(got["opt"]) == str(saved["opt"])
    assert torch.equal(got["rng"]["torch"], saved["rng"]["torch"])
    np.random.set_state(got["rng"]["numpy"])
    assert str(np.random.get_state()) == str(saved["rng"]["numpy"])
    assert got["rng"]["generator"] == saved["rng"]["generator"]
    flat = package.load(where / "1", framework="torch")
    assert flat["opt.param_groups.0.foreach"] is None and flat["rng.numpy.0"] == "MT19937" and flat["opt.param_groups.0.lr"] == 0.1


def test_objects_of_a_dcp_step_are_left_out(package, where):
    torch = pytest.importorskip("torch")
    from torch.distributed import checkpoint

    saved = {"w": torch.ones(4), "epoch": 3, "name": "x", "object": {"a", "b"}}
    with package.step(where, 1) as folder:
        checkpoint.save(saved, checkpoint_id=folder, no_dist=True)
    for framework in ("numpy", "torch"):
        got = package.load(where / "1", framework=framework)
        assert list(got) == ["w"] and got["w"].tolist() == [1.0] * 4
    for leaf in (1, "x", torch.zeros(1)):
        into = {"w": torch.zeros(4), "epoch": leaf}
        with pytest.raises(package.Error, match="it is an object of the program") as e:
            package.load(where / "1", into)
        assert (e.value.errno, e.value.filename) == (errno.ENOTSUP, "epoch") and not into["w"].any()


NUMBERS = [
    # in the step, in the state, what is loaded (None: refused)
    (0.75, 1, None),
    (5, True, None),
    (1, True, None),
    (True, False, True),
    (True, 5, 1),
    (3.0, 1, 3),
    (2**53 + 1, 1.0, None),
    (7, 1.0, 7.0),
    (float("nan"), 1, None),
    (float("inf"), 1, None),
    (float("-inf"), 1.0, float("-inf")),
    (1j, 1.0, None),
    (2, 1j, 2 + 0j),
]


def test_a_number_is_loaded_whole_or_refused(package, where):
    package.save({str(i): was for i, (was, _, _) in enumerate(NUMBERS)} | {"w": np.ones(4), "nan": float("nan")}, where / "1", format="raw")
    for i, (_, template, want) in enumerate(NUMBERS):
        into = {"w": np.zeros(4), str(i): template}
        if want is not None:
            got = package.load(where / "1", into)[str(i)]
            assert (got, type(got)) == (want, type(want))
            continue
        with pytest.raises(package.Error, match=f"{type(template).__name__} in the state") as e:
            package.load(where / "1", into)
        assert (e.value.errno, e.value.filename) == (errno.EINVAL, str(i))
        assert not into["w"].any()
    nan = package.load(where / "1", {"nan": 0.0})["nan"]
    assert nan != nan
    with pytest.raises(package.Error, match=r"float64 \[4\] in the step, and a number in the state"):
        package.load(where / "1", {"w": 1.0})


def test_scalars_of_numpy_are_numbers(package, where):
    saved = {"f": np.float32(0.1), "d": np.float64(0.1), "i": np.int64(300), "b": np.bool_(True), "h": ml_dtypes.bfloat16(1.5), "n": np.float32("nan")}
    package.save(saved, where / "1")
    got = package.load(where / "1", {n: type(v)(0) for n, v in saved.items()})
    assert {n: type(v) for n, v in got.items()} == {n: type(v) for n, v in saved.items()}
    assert all(got[n] == v for n, v in saved.items() if n != "n") and np.isnan(got["n"])
    for name, leaf in (("d", np.float32(0)), ("f", np.int64(0)), ("i", np.int8(0)), ("i", np.bool_(False)), ("h", np.int32(0))):
        with pytest.raises(package.Error, match=f"{type(leaf).__name__} in the state") as e:
            package.load(where / "1", {name: leaf})
        assert (e.value.errno, e.value.filename) == (errno.EINVAL, name)


def test_nothing_is_filled_when_a_leaf_cannot_be(package, where):
    torch = pytest.importorskip("torch")
    package.save({"a": np.ones(4), "b": np.ones(4), "c": np.ones(2)}, where / "1")
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    for name, leaf in (("b", fixed), ("b", torch.zeros(4, dtype=torch.float64).to_sparse()), ("c", 1.0), ("c", None), ("c", {"x"})):
        into = {"a": np.zeros(4), name: leaf}
        with pytest.raises((package.Error, TypeError, ValueError), match=f"{name}: |'{name}'"):
            package.load(where / "1", into)
        assert not into["a"].any()


def test_a_child_of_a_fork_saves_with_a_pool_of_its_own(package, where):
    text = """
import os, sys
import numpy as np
import ckptfs

ckptfs.save({"w": np.ones(4)}, sys.argv[1] + "/1")
child = os.fork()
if not child:
    ckptfs.save({"w": np.full(4, 2.0)}, sys.argv[1] + "/2")
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""
    run(package, text, where)
    assert np.array_equal(package.load(where / "2")["w"], np.full(4, 2.0))
