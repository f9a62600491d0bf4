"""ckptfs.save and load of torch's tensors: views, odd layouts and dtypes, tensors of other processes; each is saved as it looks, or refused by its name."""

import os
import subprocess
import sys
import threading
import warnings

import pytest

from support.fixtures import SLOW
from support.python_package import package  # noqa: F401

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it"),
              pytest.mark.filterwarnings("ignore")]  # fmt: skip

base = torch.arange(24.0).reshape(4, 6)


class Sub(torch.Tensor):
    pass


LOOKS = {
    "rows": base[1:3],
    "turned": base.T,
    "strided": base[:, ::2],
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3),
    "expanded to nothing": torch.zeros(1, 3).expand(0, 3),
    "one everywhere": torch.tensor(3.0).expand(2, 3),
    "channels last": torch.arange(16.0).reshape(1, 2, 2, 4).to(memory_format=torch.channels_last),
    "complex": torch.complex(base, base + 1),
    "conjugate": torch.complex(base, base + 1).mH,
    "complex128": torch.complex(base, base + 1).to(torch.complex128),
    "leaf": torch.ones(3, requires_grad=True),
    "result": torch.ones(3, requires_grad=True) * 2,
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "subclass": torch.arange(3.0).as_subclass(Sub),
    "no dimensions": torch.tensor(7),
    "nothing": torch.zeros(0, 3),
    "float8": torch.arange(4.0).to(torch.float8_e4m3fn),
    "uint16": torch.arange(4).to(torch.uint16),
    "half": torch.arange(4.0).half(),
}


def numbers(tensor):
    return tensor.detach().resolve_conj().resolve_neg().to(torch.complex128).as_subclass(torch.Tensor)


@pytest.mark.parametrize("format", [None, "dcp"])
def test_a_tensor_is_saved_as_it_looks(package, mount, format):
    saved = {n: t for n, t in LOOKS.items() if format is None or t.dtype not in (torch.complex64, torch.complex128)}
    package.save({"net": saved}, mount / "1", format=format)
    new = package.load(mount / "1", framework="torch")
    into = {n: torch.zeros_like(t, requires_grad=False) for n, t in saved.items()}
    filled = package.load(mount / "1", {"net": into})["net"]
    for name, tensor in saved.items():
        for got in (new[f"net.{name}"], filled[name]):
            assert got.dtype == tensor.dtype and torch.equal(numbers(got), numbers(tensor)), name
        assert filled[name] is into[name]


def test_numbers_that_are_complex_have_a_format(package, mount):
    package.save({"z": 1 + 2j, "w": torch.ones(2)}, mount / "1")
    assert package.load(mount / "1", {"z": 0j, "w": torch.zeros(2)})["z"] == 1 + 2j
    with pytest.raises(package.Error, match="z: safetensors has no dtype complex128"):
        package.save({"z": 1 + 2j}, mount / "2", format="safetensors")


def odd():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.masked import masked_tensor

    with FakeTensorMode():
        fake = torch.ones(3)
    yield "quantised", torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8), "it is quantised"
    yield "quantised by channel", torch.quantize_per_channel(torch.randn(4, 2), torch.ones(4), torch.zeros(4), 0, torch.quint8), "it is quantised"
    for layout in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.empty(3, device="meta")):
        yield str(layout.layout), layout, "it is no dense tensor of a CPU or of CUDA"
    yield "nested", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "it is no dense tensor of a CPU or of CUDA: nested"
    yield "jagged", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "it is no dense tensor of a CPU or of CUDA: nested"
    yield "fake", fake, "a FakeTensor has no bytes of its own"
    yield "masked", masked_tensor(torch.ones(2), torch.tensor([True, False])), "a MaskedTensor has no bytes of its own"
    yield "lazy", torch.nn.UninitializedParameter(), "uninitialized parameter"
    yield "complex32", torch.zeros(3, dtype=torch.complex32), "no dtype is called complex32"


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what is new in torch, or old
    ODD = [pytest.param(tensor, why, id=name) for name, tensor, why in odd()]


@pytest.mark.parametrize("leaf, why", ODD)
def test_a_tensor_that_cannot_be_saved_is_refused_by_its_name(package, mount, leaf, why):
    with pytest.raises((TypeError, ValueError, package.Error), match=f"^(\\[Errno 95\\] )?net.0.w: .*{why}"):
        package.save({"good": torch.ones(4), "net": [{"w": leaf}]}, mount / "1")
    assert package.steps(mount.path) == []


def test_what_is_loaded_has_its_bytes_or_is_refused(package, mount):
    from torch._subclasses.fake_tensor import FakeTensorMode

    package.save({"w": torch.arange(8.0), "c": torch.complex(torch.arange(4.0), torch.ones(4))}, mount / "1")
    found = package.arrays(mount / "1")
    with torch.device("meta"):
        template = torch.nn.ParameterDict({"w": torch.empty(8)})
    got = found.load(dict(template), in_place=True).arrays["w"]
    assert got.device.type == "cpu" and got.tolist() == list(range(8))
    strided = torch.zeros(16)
    assert found.load({"w": strided[::2]}, in_place=True).arrays["w"].data_ptr() == strided.data_ptr() and strided[::2].tolist() == list(range(8))
    with FakeTensorMode():
        fake = torch.ones(8)
    beside = torch.zeros(4, dtype=torch.complex64)
    for leaf in (torch.zeros(1).expand(8), torch.zeros(9).as_strided((8,), (0,)), torch.zeros(8).to_sparse(), fake):
        with pytest.raises(ValueError, match="^w: it cannot be filled in its place"):
            found.load({"c": beside, "w": leaf}, in_place=True)
    with pytest.raises(ValueError, match="^c: it cannot be filled in its place"):
        found.load({"c": beside.conj()}, in_place=True)
    with pytest.raises(TypeError, match="^w: it is quantised"):
        found.load({"w": torch.quantize_per_tensor(torch.zeros(8), 0.1, 0, torch.qint8)})
    with pytest.raises(ValueError, match="^w: its memory cannot be written to"):
        package.load(mount / "1", {"c": beside, "w": torch.zeros(1).expand(8)})
    assert not beside.any()


def test_the_loaders_of_frameworks_read_what_was_saved(package, mount):
    from safetensors.torch import load_file

    saved = {"model": {"w": torch.arange(6.0).reshape(2, 3), "half": torch.arange(5).bfloat16()}}
    for format in ("safetensors", "dcp", "torch"):
        package.save(saved, mount / format, format=format)
    flat = {f"model.{n}": t for n, t in saved["model"].items()}
    [file] = (mount / "safetensors").glob("*.safetensors")
    [pickle] = (mount / "torch").glob("*.pt")
    into = {n: torch.zeros_like(t) for n, t in flat.items()}
    dcp.load(into, checkpoint_id=str(mount / "dcp"), no_dist=True)
    for got in (load_file(file), torch.load(pickle), into):
        assert sorted(got) == sorted(flat) and all(torch.equal(got[n], t) for n, t in flat.items())


RANKS = """
import sys
import torch, ckptfs
from torch.distributed import init_process_group, destroy_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, zeros

store, rank, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
init_process_group("gloo", init_method=f"file://{sys.argv[4]}", rank=rank, world_size=count)
mesh = init_device_mesh("cpu", (count,))
whole = torch.arange(8.0)
for how in (Shard(0), Replicate()):
    tensor = distribute_tensor(whole, mesh, [how])
    if not how.is_replicate() and count > 1:
        try:
            ckptfs.save({"net": {"w": tensor}}, f"{store}/{rank}")
        except TypeError as e:
            print(e)
        continue
    ckptfs.save({"net": {"w": tensor}}, f"{store}/{rank}", overwrite=True)
    for into in (zeros(8, device_mesh=mesh, placements=[how]), zeros(8, 2, device_mesh=mesh, placements=[how])[:, 0]):
        got = ckptfs.load(f"{store}/{rank}", {"net": {"w": into}})["net"]["w"]
        assert got is into and torch.equal(got.full_tensor(), whole)
    filled = zeros(8, device_mesh=mesh, placements=[how])
    assert ckptfs.arrays(f"{store}/{rank}").load({"net.w": filled}, in_place=True).arrays["net.w"] is filled
    assert torch.equal(filled.full_tensor(), whole)
destroy_process_group()
"""


@pytest.mark.parametrize("count", [1, 2])
def test_a_dtensor_is_saved_where_a_process_has_all_of_it(package, mount, tmp_path, count):
    pytest.importorskip("torch.distributed.tensor")
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__))}
    ranks = [subprocess.Popen([sys.executable, "-c", RANKS, str(mount.path), str(r), str(count), str(tmp_path / "meet")], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for r in range(count)]  # fmt: skip
    try:
        said = [(*rank.communicate(timeout=150), rank.returncode) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for out, err, status in said:
        assert status == 0, err
        assert out.startswith("net.w: other processes have parts of it: full_tensor() gathers it") if count > 1 else out == ""
    assert sorted(step.name for step in package.steps(mount.path)) == [str(r) for r in range(count)]
    for rank in range(count):
        assert package.load(mount / str(rank))["net.w"].tolist() == list(range(8))


def test_another_thread_may_change_tensors_once_they_are_captured(package, mount):
    """The pool is smaller than the state: most of it is written while its first part is on disk already."""
    state = {str(i): torch.full((1 << 16,), float(i)) for i in range(8)}
    captured, over = threading.Event(), threading.Event()

    def change():
        captured.wait(60)
        while not over.is_set():
            for tensor in state.values():
                tensor += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with package.cuda.Pool(64 << 10, "host") as pool:
            saving = package.save_async(state, mount / "1", pool=pool)
            saving.captured()
            captured.set()
            saving.result()
    finally:
        captured.set()
        over.set()
        thread.join()
    got = package.load(mount / "1", framework="torch")
    assert all(torch.equal(got[str(i)], torch.full((1 << 16,), float(i))) for i in range(8))
