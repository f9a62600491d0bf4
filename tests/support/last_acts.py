"""What frameworks write into a step, and do last with it: each yields before that. And what is listed then."""

import json
import os
import pickle
import zipfile

from support import trees


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


def rank_file(path, ranks=1):
    """As DeepSpeed's ranks write theirs; says how many they are."""
    said = {"module": {}, "dp_world_size": ranks, "mp_world_size": 1, "ds_version": "0.19.8"}
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("archive/data.pkl", pickle.dumps(said, protocol=2))


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
