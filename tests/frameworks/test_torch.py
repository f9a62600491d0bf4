"""PyTorch's own ways, and torchsnapshot."""

import os

import pytest

from cases import *  # noqa: F403
from frameworks import Framework, run
from support import trees
from support.watcher import watch

DCP = Framework("torch.distributed.checkpoint save", "dcp", "torch", "step_{}", "dcp", "rename:.metadata", ranks=2, any_name="rename:.metadata")
FRAMEWORKS = [
    Framework("torch.save, load (mmap too)", "torch_save", "torch", "model-{}.pt"),
    DCP,
    Framework("torch.distributed.checkpoint async_save", "dcp", "torch", "step_{}", "dcp", "rename:.metadata", variant="async", ranks=2,
              any_name="rename:.metadata"),
    Framework("torchsnapshot take", "torchsnapshot_take", "torchsnapshot", "step_{}", "torchsnapshot", "close:.snapshot_metadata",
              any_name="close:.snapshot_metadata"),
    Framework("torchsnapshot async_take", "torchsnapshot_take", "torchsnapshot", "step_{}", "torchsnapshot", "close:.snapshot_metadata",
              variant="async", any_name="close:.snapshot_metadata"),
    Framework("torch HuggingFaceStorageWriter, as torchtitan", "hf_storage", "torch", "step-{}", "hf-storage", "close:*.safetensors.index.json",
              ranks=2),
    Framework("torch HuggingFaceStorageWriter, rank 0", "hf_storage", "torch", "step-{}", "hf-storage", "close:*.safetensors.index.json",
              variant="rank0"),
    Framework("torch_checkpointing, torchtitan's newer way", "torch_checkpointing_manager", "torch-checkpointing", "step-{}", "generic", "rename",
              half="tmp_step-{}"),
]


@pytest.mark.timeout(200)
def test_a_save_over_a_step_by_fewer_ranks_is_its_next_version(world, mount, folder):
    """The files of the rank that is no more stay, as on any filesystem; until `.metadata` is renamed nobody lists a mixture."""
    run(world, DCP, "save", folder, 1)
    assert {p for p in os.listdir(folder / "step_1") if p.startswith("__1_")}
    before = trees.files(folder / "step_1")
    with watch(world, folder, pattern="step_*") as w:
        run(world, DCP, "save", folder, 1, ranks=1)
    for sight in w.sights:
        assert set(sight["seen"].get("step_1", before)) >= set(before)
    for _ in range(2):
        assert DCP.listed(folder) == [1]
        run(world, DCP, "load", folder, 1)
        about = world.program.json("info", mount.store, "run/step_1")
        assert (about["version"], about["event"]) == (2, "rename:.metadata")
        mount.remount()
    (old,) = world.program.json("ls", "--trash", mount.store)
    assert old["files"] == len(before)


@pytest.mark.timeout(200)
def test_the_watcher_sees_halves_where_there_are_some(world, scratch):
    """On a plain folder: what the other tests say rests on it."""
    folder = scratch / "plain"
    folder.mkdir()
    for n in range(1, 6):
        with watch(world, folder, pattern="step_*") as w:
            run(world, DCP, "save", folder, n)
        try:
            w.check_whole()
        except AssertionError:
            return
    pytest.fail("five saves on a plain folder, and the watcher met none of them")
