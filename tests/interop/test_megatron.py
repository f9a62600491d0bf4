"""The optimizer's states in Megatron's torch_dist format, from when its shards were flat (flattened_range): a grid of equal boxes, each of
which lies as flat ranges in several files. Written here as megatron/core/dist_checkpointing/strategies/torch.py did to 2025."""

import itertools
import math
import pickle
import sys
import types
from dataclasses import dataclass

import numpy as np
import pytest
from support.catalog import by_name, catalog, read, same

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint.metadata as md  # noqa: E402
from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(240)

MODULE = "megatron.core.dist_checkpointing.strategies.torch"


@dataclass
class MCoreMetadata(md.Metadata):
    mcore_data: dict = None


MCoreMetadata.__module__ = MODULE


@pytest.fixture(autouse=True)
def megatron(monkeypatch):
    parts = MODULE.split(".")
    for i in range(1, len(parts) + 1):
        name = ".".join(parts[:i])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules[MODULE].MCoreMetadata = MCoreMetadata


class Writer:
    def __init__(self, top, ranks=2):
        self.top, self.ranks = top, ranks
        self.state, self.storage, self.mcore = {}, {}, {}

    def chunk(self, key, tensor, offset):
        rank = len(self.storage) % self.ranks
        path = self.top / f"__{rank}_0.distcp"
        begin = path.stat().st_size if path.exists() else 0
        with path.open("ab") as f:
            torch.save(tensor.clone(), f)
            end = f.tell()
        self.storage[md.MetadataIndex(key, offset)] = _StorageInfo(path.name, begin, end - begin)
        return md.ChunkStorageMetadata(torch.Size(offset), tensor.shape)

    def flat(self, key, tensor, grid, cuts):
        """Each box of the grid is flat, and cut at these places."""
        box = [n // g for n, g in zip(tensor.shape, grid)]
        size, chunks = math.prod(box), []
        for at in itertools.product(*map(range, grid)):
            part = tensor[tuple(slice(a * n, (a + 1) * n) for a, n in zip(at, box))].reshape(-1)
            for a, b in zip([0, *cuts], [*cuts, size]):
                chunks.append(self.chunk(key, part[a:b].reshape(*[1] * len(grid), -1), (*at, a)))
        self.add(key, tensor, (*grid, size), chunks)
        self.mcore[key] = {"nd_reformulated_orig_global_shape": tuple(tensor.shape)}

    def add(self, key, tensor, size, chunks):
        self.state[key] = md.TensorStorageMetadata(md.TensorProperties(tensor.dtype), torch.Size(size), chunks)

    def whole(self, key, tensor):
        self.add(key, tensor, tensor.shape, [self.chunk(key, tensor, (0,) * tensor.ndim)])
        self.mcore[key] = {}

    def end(self, plain=False):
        metadata = md.Metadata(self.state, None, self.storage) if plain else MCoreMetadata(self.state, None, self.storage, mcore_data=self.mcore)
        if plain:
            metadata.mcore_data = self.mcore  # before 0.14
        (self.top / ".metadata").write_bytes(pickle.dumps(metadata))


def tensors():
    return {
        "optimizer.state.exp_avg.decoder.w": (torch.arange(6 * 8 * 10).float().reshape(6, 8, 10), (3, 2, 1), [1, 7, 45]),
        "optimizer.state.exp_avg.decoder.b": (torch.arange(24).float().reshape(24), (4,), [2, 5]),
        "optimizer.state.exp_avg.one": (torch.arange(35).bfloat16().float().reshape(5, 7), (1, 1), []),
        "optimizer.state.exp_avg.rows": (torch.arange(64).float().reshape(8, 8), (1, 2), list(range(1, 32))),
    }


@pytest.mark.parametrize("plain", [False, True])
def test_flat_shards_are_parts_of_the_whole_array(tmp_path, plain):
    writer = Writer(tmp_path, 3)
    for key, (tensor, grid, cuts) in tensors().items():
        writer.flat(key, tensor, grid, cuts)
    writer.whole("decoder.w", torch.arange(12).reshape(3, 4))
    writer.end(plain)
    names = by_name(catalog(tmp_path, ".metadata"))
    want = {key: t[0] for key, t in tensors().items()} | {"decoder.w": torch.arange(12).reshape(3, 4)}
    assert set(names) == set(want)
    for key, tensor in want.items():
        assert same(read(tmp_path, names[key]), tensor.numpy()), key


def test_shards_that_are_not_flat_stay_as_they_are(tmp_path):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [])
    writer.mcore = None
    writer.end()
    array = by_name(catalog(tmp_path, ".metadata"))["w"]
    assert array["shape"] == [2, 3, 4] and np.array_equal(np.sort(read(tmp_path, array).reshape(-1)), np.arange(24))


SHAPES = [(4, 7), (8, 6), (24,), (4, 6, 1), (0, 6), (2**62, 2**62), (-4, -6), "x", [4, 6]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_shape_that_does_not_fit_the_grid_is_the_reason(tmp_path, shape):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [1])
    writer.mcore["w"]["nd_reformulated_orig_global_shape"] = shape
    writer.end()
    found = catalog(tmp_path, ".metadata")
    assert [a["why"] for a in found["arrays"]] == ["its shape and the grid of its flat shards do not fit"]


def broken_range(writer):
    chunk = writer.state["w"].chunks[1]
    chunk.offsets = torch.Size((*chunk.offsets[:-1], 4))


def broken_box(writer):
    for chunk in writer.state["w"].chunks:
        chunk.offsets = torch.Size((2, *chunk.offsets[1:]))


def broken_sizes(writer):
    writer.state["w"].chunks[0].sizes = torch.Size((2, 1, 1))


def missing_file(writer):
    (writer.top / "__1_0.distcp").unlink()


@pytest.mark.parametrize("change,word", [(broken_range, "box"), (broken_box, "box"), (broken_sizes, "box"), (missing_file, "missing")], ids=lambda c: getattr(c, "__name__", c))
def test_a_flat_range_outside_of_its_box_is_the_reason(tmp_path, change, word):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [1])
    change(writer)
    writer.end()
    (array,) = catalog(tmp_path, ".metadata")["arrays"]
    assert word in array["why"]


def test_a_range_that_is_missing_is_a_gap(tmp_path):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [1])
    del writer.state["w"].chunks[3]
    writer.end()
    (array,) = catalog(tmp_path, ".metadata")["arrays"]
    assert array["why"] is None and array["gathered"] == "ENODATA"


@pytest.mark.parametrize("saved", [torch.ones(1, 1, 2), torch.ones(3), torch.ones(1, 1, 3).double(), torch.ones(1, 3, 1), torch.ones(1, 1, 6)[:, :, ::2]], ids=lambda t: f"{t.dtype}{list(t.shape)}{t.stride()}")
def test_bytes_that_are_no_such_row_are_not_read(tmp_path, saved):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [1])
    index = md.MetadataIndex("w", (1, 1, 1))
    path = tmp_path / "other.distcp"
    torch.save(saved, path)
    writer.storage[index] = _StorageInfo(path.name, 0, path.stat().st_size)
    writer.end()
    (array,) = catalog(tmp_path, ".metadata")["arrays"]
    assert array["gathered"] == "EBADMSG"
