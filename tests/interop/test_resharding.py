"""Checkpoints of four ranks are read as any number of shards, on either axis: each element is in one shard, once."""

import warnings

import numpy as np
import pytest
from support import trees
from support.python_package import package  # noqa: F401

torch = pytest.importorskip("torch")
from support.megatron import Writer, stand  # noqa: E402
from support.zero import Zero  # noqa: E402

torch.set_num_threads(1)  # ranks are forked below
pytestmark = pytest.mark.timeout(240)

RANKS = 4
SHAPES = {"decoder.weight": (12, 8), "decoder.wide": (4, 20)}


def numbered():
    """No two elements of an array are alike."""
    return {name: torch.arange(float(np.prod(shape))).reshape(shape) + 1 for name, shape in SHAPES.items()}


def save_rank(rank, top, want):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{top}.ranks", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    dcp.save({name: distribute_tensor(t, mesh, [Shard(axis)]) for axis, (name, t) in enumerate(want.items())}, checkpoint_id=top)
    dist.destroy_process_group()


def write_dcp(top, want, monkeypatch, scratch):
    torch.multiprocessing.start_processes(save_rank, (str(scratch / "made"), want), nprocs=RANKS, start_method="fork")
    (scratch / "made").rename(top)


def write_megatron(top, want, monkeypatch, scratch):
    """The boxes of two tensor-parallel ranks or of a grid of four; each is flat, and cut between the ranks that have it."""
    stand(monkeypatch)
    writer = Writer(top, RANKS)
    for (name, tensor), grid, cuts in zip(want.items(), [(2, 2), (1, 2)], [[1, 13], [7, 20, 33]], strict=True):
        writer.flat(name, tensor, grid, cuts)
    writer.end()


def write_zero3(top, want, monkeypatch, scratch):
    Zero([want], 3, RANKS).write(top)


@pytest.mark.parametrize("write", [write_dcp, write_megatron, write_zero3])
def test_any_number_of_shards_on_either_axis(mount, tmp_path, package, monkeypatch, write):  # noqa: F811
    want = numbered()
    step = mount / "1000"
    step.mkdir()
    made = tmp_path / "step"
    if write is not write_dcp:
        made.mkdir()
    write(made, want, monkeypatch, tmp_path)
    for path in made.iterdir():
        trees.write(step / path.name, path.read_bytes())
    trees.write(step / ".finalize", b"")
    found = package.arrays(package.latest(mount.path))
    for name, tensor in want.items():
        whole = tensor.numpy()
        for axis in (0, 1):
            for shards in (1, 2, 3, 8):
                chunks = list(torch.chunk(tensor, shards, axis))
                chunks += [torch.narrow(tensor, axis, 0, 0)] * (shards - len(chunks))
                got = [np.load(step / f".views/shard={i + 1}of{shards},axis={axis}/{name}.npy") for i in range(shards)]
                assert all(np.array_equal(a, b.numpy()) and a.shape == tuple(b.shape) for a, b in zip(got, chunks, strict=True)), (name, axis, shards)
                assert sorted(np.concatenate([a.reshape(-1) for a in got])) == list(whole.reshape(-1)), "every element once"
                # The library reads the same boxes.
                start = 0
                for part in got:
                    box = [slice(None)] * 2
                    box[axis] = slice(start, start + part.shape[axis])
                    start += part.shape[axis]
                    assert np.array_equal(found[name][tuple(box)], part), (name, axis, shards)
