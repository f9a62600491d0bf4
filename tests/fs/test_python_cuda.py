"""The Python module for tensors on devices, on the host device: what is saved, what may change, what is loaded, what is refused."""

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
    from ckptfs import cuda  # noqa: F401

    return module


@pytest.fixture
def pool(package):
    with package.cuda.Pool(1 << 20, "host") as made:
        yield made


@pytest.fixture(params=["mounted", "unmounted"])
def where(request, mount, store):
    if request.param == "unmounted":
        mount.umount()
    return mount.path if request.param == "mounted" else store


def state():
    rng = np.random.default_rng(1)
    return {"model": {"w": rng.random((700, 900), np.float32), "b": np.arange(9).astype(ml_dtypes.bfloat16), "none": np.zeros((0, 3))}, "step": np.array(7)}


@pytest.mark.parametrize("format", ["safetensors", "raw", "dcp"])
def test_what_was_saved_is_loaded(package, pool, where, format):
    saved, into = state(), state()
    save = package.cuda.save_async(pool, saved, where, 1000, format=format)
    save.captured()
    saved["model"]["w"] += 1
    assert package.steps(where) == []
    save.commit(metrics={"loss": np.float32(1.5)})
    [step] = package.steps(where)
    assert (step.name, step.metrics) == ("1000", {"loss": 1.5})
    for array in (into["model"]["w"], into["model"]["b"], into["step"]):
        array[...] = 0
    package.cuda.load(pool, into, where)
    want = state()
    for name in ("w", "b", "none"):
        assert into["model"][name].tobytes() == want["model"][name].tobytes()
    assert into["step"] == 7
    assert np.array_equal(np.asarray(package.arrays(step)["model.w"]), want["model"]["w"])


def test_tensors_of_torch(package, pool, where):
    torch = pytest.importorskip("torch")
    saved = {"w": torch.arange(5000, dtype=torch.bfloat16).reshape(50, 100).T, "p": torch.nn.Parameter(torch.ones(3))}
    package.cuda.save(pool, saved, where, "a")
    into = {"w": torch.zeros(100, 50, dtype=torch.bfloat16), "p": torch.nn.Parameter(torch.zeros(3))}
    package.cuda.load(pool, into, where, "a")
    assert torch.equal(into["w"], saved["w"]) and torch.equal(into["p"], saved["p"])


def test_what_is_refused_is_named(package, pool, where):
    cuda = package.cuda
    with pytest.raises(TypeError, match="model.name: it is no tensor"):
        cuda.save(pool, {"model": {"name": "x"}}, where, 1)
    with cuda.save_async(pool, state(), where, 1):
        pass
    assert package.steps(where) == []
    with pytest.raises(package.Error, match="no format is called tar"):
        cuda.save(pool, state(), where, 1, format="tar")
    cuda.save(pool, {"w": np.ones(4)}, where, 1)
    with pytest.raises(package.Error) as e:
        cuda.save(pool, {"w": np.ones(4)}, where, 1)
    assert e.value.errno == errno.EEXIST
    with pytest.raises(package.Error, match="there is none of this name"):
        cuda.load(pool, {"v": np.ones(4)}, where)
    with pytest.raises(package.Error) as e:
        cuda.load(pool, {"w": np.ones(5)}, where)
    assert e.value.errno == errno.EINVAL
    with pytest.raises(ValueError, match="w: it is not contiguous"):
        cuda.load(pool, {"w": np.ones(8)[::2]}, where)
    with pytest.raises(package.Error, match="a device is cuda, host"):
        cuda.Pool(1 << 20, "tpu")


class OnDevice:
    """An array of CuPy, whose memory is the host's. CUDA's interface has no name for bfloat16."""

    def __init__(self, array, read_only=False):
        self.array, self.dtype = array, array.dtype
        self.__cuda_array_interface__ = {"shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, read_only), "version": 3}


def test_arrays_of_cuda_are_saved_by_their_pointers(package, pool, where):
    saved = {"w": np.arange(12.0).reshape(3, 4), "b": np.arange(5).astype(ml_dtypes.bfloat16), "f": np.arange(5).astype(ml_dtypes.float8_e5m2)}
    package.cuda.save(pool, {name: OnDevice(array) for name, array in saved.items()}, where, 1)
    found = package.arrays(where / "1")
    assert {name: a.dtype for name, a in found.items()} == {name: a.dtype.name for name, a in saved.items()}
    into = {name: np.zeros_like(array) for name, array in saved.items()}
    package.cuda.load(pool, {name: OnDevice(array) for name, array in into.items()}, where, 1)
    assert all(into[name].tobytes() == array.tobytes() for name, array in saved.items())


def test_memory_that_is_read_only_is_not_loaded_into(package, pool, where):
    package.cuda.save(pool, {"w": np.ones(4)}, where, 1)
    fixed = np.zeros(4)
    with pytest.raises(ValueError, match="w: it .* no array whose memory can be written to"):
        package.cuda.load(pool, {"w": OnDevice(fixed, read_only=True)}, where, 1)
    assert not fixed.any()


def test_a_state_with_one_name_twice_is_refused(package, pool, where):
    with pytest.raises(ValueError, match="a.b: two tensors have this name"):
        package.cuda.save(pool, {"a.b": np.ones(1), "a": {"b": np.zeros(1)}}, where, 1)
    assert package.steps(where) == []


def test_what_is_closed_is_not_used(package, where):
    with package.cuda.Pool(1 << 20, "host") as pool:
        left = package.cuda.save_async(pool, state(), where, 1)
        done = package.cuda.save_async(pool, state(), where, 2)
        done.commit()
        for call in (done.captured, done.commit):
            with pytest.raises(ValueError, match="the save was committed or closed"):
                call()
    # The pool gave up the save that went on.
    with pytest.raises(ValueError, match="the save was committed or closed"):
        left.commit()
    assert [step.name for step in package.steps(where)] == ["2"]
    for call in (lambda: package.cuda.save(pool, state(), where, 3), lambda: package.cuda.load(pool, state(), where, 2)):
        with pytest.raises(ValueError, match="the pool is closed"):
            call()


def test_views_are_saved_as_they_look(package, pool, where):
    torch = pytest.importorskip("torch")
    base = torch.arange(12.0).to(torch.complex64) * (1 + 2j)
    package.cuda.save(pool, {"conj": base.conj(), "neg": base.conj().imag}, where, 1)
    got = package.arrays(where / "1")
    assert np.array_equal(got["conj"].numpy(), base.conj().resolve_conj().numpy())
    assert np.array_equal(got["neg"].numpy(), base.conj().imag.resolve_neg().numpy())


def test_a_machine_without_a_gpu_is_told_in_one_line(package):
    said = package.cuda.describe()
    assert said and "\n" not in said
    if not os.path.exists("/dev/nvidiactl"):
        with pytest.raises(package.Error) as e:
            package.cuda.Pool(1 << 20)
        assert e.value.errno == errno.ENODEV and e.value.strerror in said
