"""Frameworks that cannot be installed here, played by what their sources write (read in 2026): which files, in which order, by
which calls. VARIANT says which:

nanotron   0.4, trainer.py and serialize/: wants NCCL and a GPU. `latest.txt` names the step, and one more file of it follows.
t5x        checkpoints.py: not on PyPI. A folder under a temporary name with a time in it, which is then renamed.
composer   0.32, callbacks/checkpoint_saver.py: wants an older torch. One file, and a link to it that is removed and made anew.
fairseq    0.12, checkpoint_utils.py: wants an older Python. One file, copied over checkpoint_last.pt, from which it resumes.
"""

import json
import os
import shutil
import time

import common
import flax.serialization
import tensorstore
import torch
from safetensors.torch import load_file, save_file


def tensors(n):
    return {k: torch.from_numpy(v.copy()) for k, v in common.arrays(n).items()}


class Nanotron:
    def save(self, folder, n):
        step = folder / "checkpoints" / str(n)
        step.mkdir(parents=True, exist_ok=True)
        (step / "config.yaml").write_text(f"general:\n  step: {n}\n")
        for name, t in tensors(n).items():
            path = step / "model" / "model" / name / "model_weight_pp-rank-0-of-1_tp-rank-0-of-1.safetensors"
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file({"data": t}, path)
        (step / "optimizer").mkdir(exist_ok=True)
        (step / "optimizer" / "optimizer_config.json").write_text("{}")
        torch.save({"state": tensors(n)["norm"]}, step / "optimizer" / "optimizer_pp-0-of-1_tp-0-of-1_dp-0-of-1.pt")
        (step / "lr_scheduler").mkdir(exist_ok=True)
        torch.save({"last_epoch": n}, step / "lr_scheduler" / "lr_scheduler_pp-0-of-1_tp-0-of-1_dp-0-of-1.pt")
        (step / "checkpoint_metadata.json").write_text(json.dumps({"metas": {"last_train_step": n}}))
        (step / "random").mkdir(exist_ok=True)
        torch.save({"torch_random_state": n}, step / "random" / "tp-0-of-1_dp-0-of-1_pp-0-of-1.pt")
        (folder / "checkpoints" / "latest.txt").write_text(str(n))
        (step / "model_config.json").write_text("{}")

    def load(self, folder, n):
        step = folder / "checkpoints" / str(n)
        common.same({p.parent.name: load_file(p)["data"] for p in step.glob("model/model/*/*.safetensors")}, common.arrays(n))
        assert torch.load(step / "lr_scheduler" / "lr_scheduler_pp-0-of-1_tp-0-of-1_dp-0-of-1.pt") == {"last_epoch": n}

    def newest(self, folder):
        latest = folder / "checkpoints" / "latest.txt"
        return int(latest.read_text()) if latest.exists() else None

    def rotate(self, folder, keep):
        """It keeps all; whoever runs it removes the oldest."""
        steps = sorted(int(name) for name in os.listdir(folder / "checkpoints") if name.isdecimal())
        for old in steps[:-keep]:
            shutil.rmtree(folder / "checkpoints" / str(old))


class T5X:
    def spec(self, path):
        return {"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}}

    def save(self, folder, n):
        final = folder / f"checkpoint_{n}"
        temporary = folder / f"checkpoint_{n}.tmp-{int(time.time())}"
        if final.exists():
            return
        os.makedirs(temporary, exist_ok=True)
        for name, a in common.arrays(n).items():
            spec = self.spec(temporary / f"target.{name}") | {"metadata": {"shape": list(a.shape), "dtype": a.dtype.str, "compressor": {"id": "gzip"}}}
            tensorstore.open(spec, create=True, open=True).result().write(a).result()
        with open(temporary / "checkpoint", "wb") as f:
            f.write(flax.serialization.to_bytes({"version": 3, "optimizer": {"step": n}}))
        os.rename(temporary, final)

    def load(self, folder, n):
        step = folder / f"checkpoint_{n}"
        common.same({name: tensorstore.open(self.spec(step / f"target.{name}")).result().read().result() for name in common.arrays(n)},
                    common.arrays(n))
        assert flax.serialization.msgpack_restore((step / "checkpoint").read_bytes())["optimizer"] == {"step": n}

    def newest(self, folder):
        return (common.numbers(folder, "checkpoint_") or [None])[-1]

    def rotate(self, folder, keep):
        for old in common.numbers(folder, "checkpoint_")[:-keep]:
            shutil.rmtree(folder / f"checkpoint_{old}")


class OneFile:
    """`before` and `after` a number are the name; `last` leads to the newest, or is a copy of it."""

    def save(self, folder, n):
        path = folder / f"{self.before}{n}{self.after}"
        with open(path, "wb") as f:
            torch.save(tensors(n), f)
        self.follow(path, folder / self.last)

    def load(self, folder, n):
        common.same(torch.load(folder / f"{self.before}{n}{self.after}"), common.arrays(n))

    def newest(self, folder):
        last = folder / self.last
        if not last.exists():
            return (common.numbers(folder, self.before, self.after) or [None])[-1]
        got = torch.load(last)
        common.same(got, common.arrays(int(got["step"])))
        return int(got["step"])

    def rotate(self, folder, keep):
        for old in common.numbers(folder, self.before, self.after)[:-keep]:
            os.unlink(folder / f"{self.before}{old}{self.after}")


class Composer(OneFile):
    before, after, last = "ep0-ba", "-rank0.pt", "latest-rank0.pt"

    def follow(self, path, last):
        try:
            os.remove(last)
        except FileNotFoundError:
            pass
        os.symlink(path.name, last)


class Fairseq(OneFile):
    before, after, last = "checkpoint_1_", ".pt", "checkpoint_last.pt"

    def follow(self, path, last):
        shutil.copyfile(path, last)


class Driver:
    def __init__(self, writer):
        self.save, self.load, self.writer = writer.save, writer.load, writer

    def train(self, folder, count, keep):
        last = self.writer.newest(folder)
        if last is not None:
            self.load(folder, last)
        common.say("resumed", "none" if last is None else last)
        for n in range((last or 0) + 1, (last or 0) + count + 1):
            common.say("saving", n)
            self.save(folder, n)
            self.writer.rotate(folder, keep)
            common.say("saved", n)


if __name__ == "__main__":
    common.main(Driver({"nanotron": Nanotron, "t5x": T5X, "composer": Composer, "fairseq": Fairseq}[common.VARIANT]()))
