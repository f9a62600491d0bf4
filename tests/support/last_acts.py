"""What frameworks write into a step, and do last with it: each yields before that. And what is listed then."""

import io
import json
import os
import pickle
import time
import zipfile

from support import trees


def info(mount, step):
    return mount.world.program.json("info", mount.store, step)


def completed_by(mount, step):
    row = info(mount, step)
    return row["profile"], row["event"]


def listed(mount):
    return sorted(row["name"] for row in mount.world.program.json("ls", mount.store))


def arrays(name, size):
    """Array data, whole by the format of the name."""
    if name.endswith(".safetensors"):
        header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        return len(header).to_bytes(8, "little") + header + os.urandom(size)
    if name.endswith((".pt", ".bin")):
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as z:
            z.writestr("archive/data.pkl", os.urandom(size))
        return whole.getvalue()
    return os.urandom(size)


def fill(folder, *names):
    for i, name in enumerate(names):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        trees.write(path, arrays(name, 1000 * (i + 1)))


def settle(folder):
    """accelerate's step is complete when its process has written nothing for 2 s: waits until it is listed."""
    above, name = os.path.split(folder)
    end = time.monotonic() + 40
    while name not in os.listdir(above) or not os.path.islink(os.path.join(above, "latest")) or os.readlink(os.path.join(above, "latest")) != name:
        assert time.monotonic() < end, f"{name} is not completed"
        time.sleep(0.1)


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


def accelerate(folder, completes=True):
    fill(folder, "model.safetensors", "optimizer.bin")
    yield
    pickle_file(os.path.join(folder, "random_states_0.pkl"))
    if completes:
        settle(folder)


def eformer(folder):
    fill(folder, "tensorstore_index.json", "checkpoint_metadata.json", "model/w/.zarray", "model/w/0.0")
    trees.write(os.path.join(folder, "metadata.json"), json.dumps({"step": -1, "timestamp": "now", "is_temporary": False}).encode())
    yield
    trees.write(os.path.join(folder, "metadata.json"), json.dumps({"step": 100, "timestamp": "now", "is_temporary": True}).encode())


def levanter(folder):
    fill(folder, "model/w/.zarray", "model/w/0.0")
    yield
    trees.write(os.path.join(folder, "metadata.json"), json.dumps({"step": 100, "timestamp": "now", "is_temporary": True}).encode())


def lightning(folder):
    yield from dcp(folder)
    trees.write(os.path.join(folder, "meta.pt"), arrays("meta.pt", 100))


def hf_storage(folder):
    fill(folder, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    yield
    names = {f"w{i}": f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}
    trees.write(os.path.join(folder, "model.safetensors.index.json"), json.dumps({"metadata": {"total_size": 1}, "weight_map": names}).encode())


def axlearn(folder):
    fill(folder, "gda/w/.zarray", "gda/w/0.0")
    yield
    trees.write(os.path.join(folder, "index"), json.dumps([["step", 10], ["w", {"dtype": "float32", "shape": [2]}]]).encode())


def nanotron(folder):
    fill(folder, "model/w.safetensors")
    trees.write(os.path.join(folder, "checkpoint_metadata.json"), b"{}")
    yield
    trees.write(os.path.join(os.path.dirname(folder), "latest.txt"), os.path.basename(folder).encode())


def snapshot(folder):
    fill(folder, "weights")
    yield
    trees.write(os.path.join(folder, ".snapshot_metadata"), b"version: 0.1.0\nmanifest:\n  0/w:\n    location: weights\n")


def dcp(folder):
    fill(folder, "__0_0.distcp", "__1_0.distcp")
    with open(os.path.join(folder, ".metadata.tmp"), "wb") as f:
        f.write(b"pickled")
        f.flush()
        os.fsync(f.fileno())
    yield
    os.rename(os.path.join(folder, ".metadata.tmp"), os.path.join(folder, ".metadata"))


def commit_file(folder):
    fill(folder, "_CHECKPOINT_METADATA", "_METADATA", f"state/d/{7:032x}")
    yield
    trees.write(os.path.join(folder, "commit_success.txt"), b"done")


def deepspeed(folder):
    fill(folder, "mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    yield
    trees.write(os.path.join(os.path.dirname(folder), "latest"), os.path.basename(folder).encode())


def tracker(folder):
    fill(folder, "mp_rank_00", "common", "optim.pt")
    number = os.path.basename(folder).split("_")[-1].lstrip("0")
    yield
    trees.write(os.path.join(os.path.dirname(folder), "latest_checkpointed_iteration.txt"), number.encode() + b"\n")


def nemo(folder):
    trees.write(folder + "-unfinished", b"")
    fill(folder, "common.pt", "__0_0.distcp")
    yield
    os.unlink(folder + "-unfinished")
