"""torch's HuggingFaceStorageWriter, as torchtitan calls it (last_save_in_hf): each rank writes its shards into `sharded/`, then
each makes some of the whole files of them, and the index comes last. VARIANT `rank0`: without the shards."""

import shutil
import sys

import common
import dcp as whole
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files_on_every_rank

FILES = {"embed": 1, "half": 1, "head": 2, "norm": 2}  # it cannot put integers together


def floats(n):
    return {k: a for k, a in common.arrays(n).items() if k in FILES}


def save_as(folder, name, n):
    path = folder / name
    if common.VARIANT == "rank0":
        tensors = {k: torch.from_numpy(a.copy()) for k, a in floats(n).items()}
        dcp.save(tensors, storage_writer=HuggingFaceStorageWriter(path=str(path), fqn_to_index_mapping=FILES))
        return
    writer = HuggingFaceStorageWriter(path=str(path / "sharded"), save_distributed=True, fqn_to_index_mapping=FILES, enable_consolidation=False)
    dcp.save({k: t for k, t in whole.state(n)["model"].items() if k in FILES}, storage_writer=writer)
    consolidate_safetensors_files_on_every_rank(input_dir=str(path / "sharded"), output_dir=str(path), fqn_to_index_mapping=FILES, num_threads=5)


def load_as(folder, name, n):
    got = {k: torch.zeros_like(torch.from_numpy(a)) for k, a in floats(n).items()}
    dcp.load(got, storage_reader=HuggingFaceStorageReader(path=str(folder / name)))
    common.same(got, floats(n))


def save(folder, n):
    save_as(folder, f"step-{n}", n)


def load(folder, n):
    load_as(folder, f"step-{n}", n)


def train(folder, count, keep):
    found = [common.numbers(folder, "step-")]
    dist.broadcast_object_list(found)
    last = found[0][-1] if found[0] else None
    if last is not None:
        load(folder, last)
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        save(folder, n)
        if common.RANK == 0:
            for old in common.numbers(folder, "step-")[:-keep]:
                shutil.rmtree(folder / f"step-{old}")
        dist.barrier()
        common.say("saved", n)


end = whole.end

if __name__ == "__main__":
    common.start_ranks()
    common.main(sys.modules[__name__])
