"""Checkpoints in Megatron's torch_dist format as it was while the optimizer's shards were flat (flattened_range): a grid of equal boxes, each of which
lies as flat ranges in several files (megatron/core/dist_checkpointing/strategies/torch.py, to 2025)."""

import itertools
import math
import pickle
import sys
import types
from dataclasses import dataclass

import torch
import torch.distributed.checkpoint.metadata as md
from torch.distributed.checkpoint.filesystem import _StorageInfo

MODULE = "megatron.core.dist_checkpointing.strategies.torch"


@dataclass
class MCoreMetadata(md.Metadata):
    mcore_data: dict = None


MCoreMetadata.__module__ = MODULE


def stand(monkeypatch):
    """Its pickles name a class of this module: it stands there for one test."""
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
