"""What frameworks do last completes a step, without a marker (core/profile.c), and what looks like it does not."""

import json
import os
import subprocess
import zipfile

import pytest

from support import trees
from support.commits import error_line
from support.fixtures import all_modes, both_modes
from support.mounting import Mount, wait_until

pytestmark = pytest.mark.timeout(60)


def info(mount, step):
    return mount.world.program.json("info", mount.store, step)


def completed_by(mount, step):
    row = info(mount, step)
    return row["profile"], row["event"]


def listed(mount):
    return sorted(row["name"] for row in mount.world.program.json("ls", mount.store))


def fill(folder, *names):
    os.makedirs(folder, exist_ok=True)
    for i, name in enumerate(names):
        trees.write(os.path.join(folder, name), os.urandom(1000 * (i + 1)))


def pickle_file(path):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("random_states_0/data.pkl", b"\x80\x02}q\x00.")


def megatron(folder):
    fill(folder, "__0_0.distcp", "common.pt")
    trees.write(os.path.join(folder, ".metadata.tmp"), b"plan")
    os.rename(os.path.join(folder, ".metadata.tmp"), os.path.join(folder, ".metadata"))
    yield
    trees.write(os.path.join(folder, "metadata.json"), json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}).encode())


def trainer(folder):
    fill(folder, "model.safetensors", "optimizer.pt")
    yield
    trees.write(os.path.join(folder, "trainer_state.json"), b'{"global_step": 500, "log_history": [{"loss": NaN, "grad_norm": -Infinity}]}')


def accelerate(folder):
    fill(folder, "model.safetensors", "optimizer.bin")
    yield
    pickle_file(os.path.join(folder, "random_states_0.pkl"))


def eformer(folder):
    fill(folder, "tensorstore_index.json", "checkpoint_metadata.json")
    trees.write(os.path.join(folder, "metadata.json"), json.dumps({"step": -1, "timestamp": "now", "is_temporary": False}).encode())
    yield
    trees.write(os.path.join(folder, "metadata.json"), json.dumps({"step": 100, "timestamp": "now", "is_temporary": True}).encode())


def snapshot(folder):
    fill(folder, "weights")
    yield
    trees.write(os.path.join(folder, ".snapshot_metadata"), b"version: 0.1.0\n")


def dcp(folder):
    fill(folder, "__0_0.distcp", "__1_0.distcp")
    with open(os.path.join(folder, ".metadata.tmp"), "wb") as f:
        f.write(b"pickled")
        f.flush()
        os.fsync(f.fileno())
    yield
    os.rename(os.path.join(folder, ".metadata.tmp"), os.path.join(folder, ".metadata"))


def commit_file(folder):
    fill(folder, "_CHECKPOINT_METADATA", "_METADATA")
    yield
    trees.write(os.path.join(folder, "commit_success.txt"), b"done")


def deepspeed(folder):
    fill(folder, "mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    yield
    trees.write(os.path.join(os.path.dirname(folder), "latest"), os.path.basename(folder).encode())


def tracker(folder):
    fill(folder, "mp_rank_00", "common")
    number = os.path.basename(folder).split("_")[-1].lstrip("0")
    yield
    trees.write(os.path.join(os.path.dirname(folder), "latest_checkpointed_iteration.txt"), number.encode() + b"\n")


def nemo(folder):
    trees.write(folder + "-unfinished", b"")
    fill(folder, "common.pt", "__0_0.distcp")
    yield
    os.unlink(folder + "-unfinished")


WRITERS = [
    (megatron, "iter_0000100", "megatron", "close:metadata.json"),
    (megatron, "mymodel", "megatron", "close:metadata.json"),
    (trainer, "checkpoint-500", "hf-trainer", "close:trainer_state.json"),
    (accelerate, "checkpoint_3", "accelerate", "close:random_states_0.pkl"),
    (accelerate, "mymodel", "accelerate", "close:random_states_0.pkl"),
    (eformer, "run-100", "eformer", "close:metadata.json"),
    (eformer, "mymodel", "eformer", "close:metadata.json"),
    (snapshot, "step_5", "torchsnapshot", "close:.snapshot_metadata"),
    (snapshot, "mymodel", "torchsnapshot", "close:.snapshot_metadata"),
    (dcp, "step-100", "dcp", "rename:.metadata"),
    (dcp, "checkpoint-100", "dcp", "rename:.metadata"),
    (dcp, "mymodel", "dcp", "rename:.metadata"),
    (commit_file, "100", "orbax-commitfile", "close:commit_success.txt"),
    (deepspeed, "global_step20", "deepspeed", "close:latest"),
    (deepspeed, "mytag", "deepspeed", "close:latest"),
    (tracker, "global_step_7", "bytecheckpoint", "close:tracker"),
    (tracker, "iter_0000007", "megatron", "close:tracker"),
    (nemo, "epoch=0-step=10", "nemo", "unlink:*-unfinished"),
    (nemo, "megatron_gpt--step=10-samples=5.0", "nemo", "unlink:*-unfinished"),
]
writers = pytest.mark.parametrize("writer,name,profile,event", WRITERS, ids=[f"{w[2]}-{w[1]}" for w in WRITERS])


@both_modes
@writers
def test_last_act_of_a_framework_completes_its_step(mount, writer, name, profile, event):
    folder = str(mount / name)
    staged = name not in ("mymodel", "mytag") and not name.startswith("megatron_gpt")
    save = writer(folder)
    next(save)
    assert listed(mount) == []
    assert (name in os.listdir(mount.path)) == (not staged)
    before = trees.describe(folder)
    with pytest.raises(StopIteration):
        next(save)
    assert listed(mount) == [name]
    assert name in os.listdir(mount.path)
    assert completed_by(mount, name) == (profile, event)
    assert mount.errors() == []
    after = trees.describe(folder)
    assert {k: after[k] for k in before if k in after and k not in ("metadata.json", ".", "")} == \
           {k: v for k, v in before.items() if k in after and k not in ("metadata.json", ".", "")}
    mount.remount()
    assert trees.describe(folder) == after
    assert listed(mount) == [name]
    assert info(mount, name).get("temporary", False) == (profile == "eformer")


@both_modes
@writers
def test_saving_anew_over_a_step_makes_its_next_version(mount, writer, name, profile, event):
    folder = str(mount / name)
    for _ in writer(folder):
        pass
    first = trees.describe(folder)
    for _ in writer(folder):
        pass
    assert listed(mount) == [name]
    assert completed_by(mount, name) == (profile, event)
    assert trees.describe(folder) != first
    assert len(info(mount, name)["versions"]) >= 2
