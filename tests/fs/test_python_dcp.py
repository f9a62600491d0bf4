"""The Python package under torch.distributed.checkpoint: a storage writer that commits a step, and a reader of steps of any format."""

import itertools
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.fixtures import SLOW
from support.python_package import mounted_or_not, package, where  # noqa: F401

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402  (a BaseException)
from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: E402
from torch.distributed.checkpoint.metadata import (  # noqa: E402
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it"),
              pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]  # fmt: skip


def state(fill=None):
    dice = torch.Generator().manual_seed(5)
    made = {"model": {"w": torch.randn(33, 7, generator=dice), "half": torch.randn(9, generator=dice).bfloat16()}, "ids": torch.arange(12).reshape(3, 4)}
    return made if fill is None else {"model": {k: torch.full_like(v, fill) for k, v in made["model"].items()}, "ids": torch.full_like(made["ids"], fill)}


def same(got, want):
    return torch.equal(got["ids"], want["ids"]) and all(torch.equal(got["model"][k], v) for k, v in want["model"].items())


@mounted_or_not
def test_a_save_is_one_commit_at_finish(package, where, ckptfs, mounted, monkeypatch):
    from ckptfs.dcp import Reader, Writer

    listed = []
    inside = Writer.finish

    def finish(self, metadata, results):
        listed.append(package.steps(where))
        inside(self, metadata, results)
        listed.append(package.steps(where))

    monkeypatch.setattr(Writer, "finish", finish)
    metrics = {"loss": 1.5}
    dcp.save({**state(), "epoch": 3}, storage_writer=Writer(where, 7, metrics=metrics, extras={"a": 1}), no_dist=True)
    assert listed[0] == [] and [s.name for s in listed[1]] == ["7"]
    step = package.latest(where)
    assert (step.metrics, step.extras, step.files) == ({"loss": 1.5}, {"a": 1}, 2) and ckptfs.json("sessions", where) == []
    got = state(0)
    dcp.load(got, storage_reader=Reader(step), no_dist=True)
    assert same(got, state())
    if mounted:
        got = {**state(0), "epoch": 0}
        dcp.load(got, storage_reader=Reader(step), no_dist=True)
        assert got["epoch"] == 3 and same(got, state())
        got = state(0)
        dcp.load(got, checkpoint_id=step.path, no_dist=True)  # torch's own reader
        assert same(got, state())


@mounted_or_not
def test_a_save_that_fails_leaves_no_step_and_the_next_one_drops_it(package, where, ckptfs, mounted, monkeypatch):
    from ckptfs.dcp import Writer

    writer = Writer(where)
    with pytest.raises(CheckpointException, match="has no name"):
        dcp.save(state(), storage_writer=writer, no_dist=True)
    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed.checkpoint.FileSystemWriter, "write_data", lambda *a: 1 / 0)
        with pytest.raises(CheckpointException, match="division by zero"):
            dcp.save(state(), checkpoint_id="7", storage_writer=writer, no_dist=True)
    assert package.steps(where) == [] and (not mounted or len(ckptfs.json("sessions", where)) == 1)
    dcp.save(state(), checkpoint_id="7", storage_writer=writer, no_dist=True)
    dcp.save(state(), checkpoint_id="8", storage_writer=writer, no_dist=True)
    assert [s.name for s in package.steps(where)] == ["7", "8"] and ckptfs.json("sessions", where) == []
    with pytest.raises(CheckpointException, match="overwrite=True"):
        dcp.save(state(), storage_writer=Writer(where, 7), no_dist=True)
    dcp.save(state(1), storage_writer=Writer(where, 7, overwrite=True, temporary=True), no_dist=True)
    assert package.find(where, 7).temporary


@mounted_or_not
def test_a_save_is_tried_again_with_the_same_writer(package, where, ckptfs):
    from ckptfs.dcp import Writer

    writer = Writer(where, 7)
    with pytest.raises(CheckpointException, match="pickle"):
        dcp.save({**state(), "object": lambda: 0}, storage_writer=writer, no_dist=True)
    dcp.save(state(), storage_writer=writer, no_dist=True)
    assert [s.name for s in package.steps(where)] == ["7"] and ckptfs.json("sessions", where) == []


@mounted_or_not
@pytest.mark.parametrize("at", ["metadata", "commit"])
def test_a_finish_that_fails_drops_what_was_written(package, where, ckptfs, monkeypatch, at):
    from ckptfs.dcp import Writer

    more = {} if at == "metadata" else {"extras": {"a": object()}}
    if at == "metadata":
        monkeypatch.setattr(torch.distributed.checkpoint.FileSystemWriter, "finish", lambda *a: 1 / 0)
    with pytest.raises(CheckpointException, match="division by zero|JSON"):
        dcp.save(state(), storage_writer=Writer(where, 7, **more), no_dist=True)
    assert package.steps(where) == [] and ckptfs.json("sessions", where) == []


@mounted_or_not
def test_a_step_of_another_format_is_loaded(package, where):
    from ckptfs.dcp import Reader

    want = np.arange(24, dtype=np.float32).reshape(4, 6)
    with package.step(where, 1) as folder:
        save_file({"transformer.w": want, "ids": np.arange(3, dtype=np.int32)}, folder / "model.safetensors")
    got = {"w": torch.zeros(6, 4, dtype=torch.float16).t(), "ids": torch.zeros(3, dtype=torch.int64)}
    dcp.load(got, storage_reader=Reader(package.latest(where), names={"w": "transformer.w"}), no_dist=True)
    assert torch.equal(got["w"], torch.from_numpy(want).half()) and got["ids"].tolist() == [0, 1, 2] and got["ids"].dtype == torch.int64
    with pytest.raises(CheckpointException, match="nosuch"):
        dcp.load({"nosuch": torch.zeros(1)}, storage_reader=Reader(package.latest(where)), no_dist=True)


@mounted_or_not
@pytest.mark.parametrize("kind", ["dcp", "safetensors"])
def test_names_of_the_state_are_others(package, where, mounted, kind):
    from ckptfs.dcp import Reader, Writer

    want = torch.arange(24.0).reshape(4, 6)
    if kind == "dcp":
        dcp.save({"old": {"w": want, "b": want[0]}, "epoch": 3}, storage_writer=Writer(where, 1), no_dist=True)
    else:
        with package.step(where, 1) as folder:
            save_file({"old.w": want.numpy(), "old.b": want[0].numpy()}, folder / "model.safetensors")
    there = {"new.w": "old.w", "new.b": "old.b", "when": "epoch"}
    for names in there, lambda name: there.get(name, name):
        got = {"new": {"w": torch.zeros(4, 6), "b": torch.zeros(6)}}
        if mounted and kind == "dcp":
            got["when"] = 0
        dcp.load(got, storage_reader=Reader(package.latest(where), names=names), no_dist=True)
        assert torch.equal(got["new"]["w"], want) and torch.equal(got["new"]["b"], want[0]) and got.get("when", 3) == 3
        with pytest.raises(CheckpointException, match="nosuch"):
            dcp.load({"nosuch": torch.zeros(1)}, storage_reader=Reader(package.latest(where), names=names), no_dist=True)


def flat_shards(folder, key, tensor, grid, cuts):
    """A DCP checkpoint with a tensor as Megatron's optimizer had it to 2025: each box of a grid is flat, and cut at places."""
    box = [n // g for n, g in zip(tensor.shape, grid)]
    size, chunks, storage = math.prod(box), [], {}
    with open(folder / "__0_0.distcp", "wb") as f:
        for at in itertools.product(*map(range, grid)):
            part = tensor[tuple(slice(a * n, (a + 1) * n) for a, n in zip(at, box))].reshape(-1)
            for a, b in zip([0, *cuts], [*cuts, size]):
                begin = f.tell()
                torch.save(part[a:b].reshape(*[1] * len(grid), -1).clone(), f)
                storage[MetadataIndex(key, (*at, a))] = _StorageInfo("__0_0.distcp", begin, f.tell() - begin)
                chunks.append(ChunkStorageMetadata(torch.Size((*at, a)), torch.Size((*[1] * len(grid), b - a))))
    found = Metadata({key: TensorStorageMetadata(TensorProperties(tensor.dtype), torch.Size((*grid, size)), chunks)}, None, storage)
    found.mcore_data = {key: {"nd_reformulated_orig_global_shape": tuple(tensor.shape)}}
    (folder / ".metadata").write_bytes(pickle.dumps(found))


@pytest.mark.parametrize("grid", [(2, 1), (2, 2)])
def test_flat_shards_are_loaded_as_the_metadata_has_them(package, mount, grid):
    from ckptfs.dcp import Reader

    whole = torch.arange(1.0, 49.0).reshape(8, 6)
    with package.step(mount.path, 1) as folder:
        flat_shards(folder, "w", whole, grid, [5, 11])
    step = package.latest(mount.path)
    assert package.arrays(step)["w"].shape == (8, 6)
    shape = (*grid, 48 // math.prod(grid))
    got, want = ({"w": torch.zeros(shape)} for _ in range(2))
    dcp.load(want, checkpoint_id=step.path, no_dist=True)  # torch's own reader
    dcp.load(got, storage_reader=Reader(step), no_dist=True)
    assert want["w"][0, 0, :3].tolist() == [1, 2, 3] and torch.equal(got["w"], want["w"])
    got = {"renamed": torch.zeros(shape)}
    dcp.load(got, storage_reader=Reader(step, names={"renamed": "w"}), no_dist=True)
    assert torch.equal(got["renamed"], want["w"])
    # Whole, and without a mount, by the name that the library has.
    assert torch.equal(package.arrays(step)["w"].torch(), whole)


RANKS = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
import ckptfs
from ckptfs.dcp import Reader, Writer
store, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,))
whole = {"w": torch.arange(35.0).reshape(7, 5), "v": torch.arange(9.0)}
if sys.argv[5] == "save":
    state = {"w": distribute_tensor(whole["w"], mesh, [Shard(0)]), "v": distribute_tensor(whole["v"], mesh, [Replicate()])}
    dcp.save(state, storage_writer=Writer(store, 1, metrics={"ranks": world}))
    assert [s.name for s in ckptfs.steps(store)] == ["1"]
else:
    state = {"w": distribute_tensor(torch.zeros(7, 5), mesh, [Shard(1)]), "v": distribute_tensor(torch.zeros(9), mesh, [Shard(0)])}
    dcp.load(state, storage_reader=Reader(ckptfs.latest(store)))
    assert all(torch.equal(state[k].full_tensor(), v) for k, v in whole.items())
dist.destroy_process_group()
"""


def ranks(package, where, tmp_path, world, what):
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__)), "OMP_NUM_THREADS": "1"}
    rendezvous = tmp_path / f"rendezvous-{what}"
    started = [
        subprocess.Popen([sys.executable, "-c", RANKS, str(where), str(r), str(world), str(rendezvous), what], env=env, stderr=subprocess.PIPE, text=True)
        for r in range(world)
    ]
    failed = [(p.communicate(timeout=180)[1], p.returncode) for p in started]
    assert all(code == 0 for _, code in failed), "\n".join(said for said, _ in failed)


def test_ranks_save_one_step_and_others_load_it(package, mount, tmp_path, ckptfs):
    ranks(package, mount.path, tmp_path, 2, "save")
    [step] = package.steps(mount.path)
    assert step.metrics == {"ranks": 2} and step.files == 3 and ckptfs.json("sessions", mount.path) == []
    ranks(package, mount.path, tmp_path, 3, "load")
