"""Megatron-core's dist_checkpointing in its torch_dist format. The folder's name, the tracker beside it and the end of old
iterations are its training loop's, which the package does not have: the script does the same calls."""

import shutil
import sys

import common
import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedTensor

if not torch.cuda.is_available():
    # It waits for a GPU before it writes, and has the ranks agree on one. It is itself as it came: only these two are told of none.
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"

TRACKER = "latest_checkpointed_iteration.txt"
SHARDED = ("embed", "head", "ids")


def state(n, blank=False):
    """Rows of three of the arrays on each rank, the others on rank 0 and copied; what is no tensor is common."""
    out = {"iteration": n, "args": {"hidden": 512}}
    for name, a in common.arrays(n).items():
        a = torch.from_numpy(a.copy())
        a = torch.zeros_like(a) if blank else a
        if name in SHARDED:
            out[name] = ShardedTensor.from_rank_offsets(name, a.chunk(common.WORLD)[common.RANK].contiguous(), (0, common.RANK, common.WORLD))
        elif a.dim():
            out[name] = ShardedTensor.from_rank_offsets(name, a, replica_id=common.RANK)
    return out


def save_as(folder, name, n):
    path = folder / name
    if common.RANK == 0:
        path.mkdir(exist_ok=True)
    dist.barrier()
    dist_checkpointing.save(state(n), str(path))


def load_as(folder, name, n):
    path = str(folder / name)
    got = dist_checkpointing.load(state(n, blank=True), path)
    assert (got.pop("iteration"), got.pop("args")) == (n, {"hidden": 512})
    want = {k: a for k, a in common.arrays(n).items() if a.ndim}
    common.same(got, {k: torch.from_numpy(a).chunk(common.WORLD)[common.RANK] if k in SHARDED else a for k, a in want.items()})
    about = dist_checkpointing.load_tensors_metadata(path)
    assert {k: tuple(t.global_shape) for k, t in about.items()} == {k: a.shape for k, a in want.items()}


def save(folder, n):
    save_as(folder, f"iter_{n:07d}", n)
    if common.RANK == 0:
        (folder / TRACKER).write_text(str(n))
    dist.barrier()


def load(folder, n):
    load_as(folder, f"iter_{n:07d}", n)


def train(folder, count, keep):
    last = int((folder / TRACKER).read_text()) if (folder / TRACKER).exists() else None
    if last is not None:
        load(folder, last)
    dist.barrier()
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        save(folder, n)
        if common.RANK == 0:
            for old in common.numbers(folder, "iter_")[:-keep]:
                shutil.rmtree(folder / f"iter_{old:07d}")
        dist.barrier()
        common.say("saved", n)


def end():
    dist.destroy_process_group()


if __name__ == "__main__":  # it spawns processes, which import this again
    common.start_ranks()
    parallel_state.initialize_model_parallel(1, 1)
    common.main(sys.modules[__name__])
