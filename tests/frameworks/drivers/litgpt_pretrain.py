"""litgpt: the save_checkpoint of its pretraining, and the step that its `resume="auto"` finds."""

import shutil
import sys
import tempfile
from pathlib import Path

import common
import torch
from lightning import Fabric
from litgpt.config import Config
from litgpt.model import GPT
from litgpt.pretrain import save_checkpoint
from litgpt.utils import find_resume_path


def blank():
    return GPT(Config(block_size=32, vocab_size=4096, padded_vocab_size=4096, n_layer=2, n_head=4, n_embd=128))


def weights(n):
    dice = torch.Generator().manual_seed(n)
    return {name: torch.randn(p.shape, generator=dice) for name, p in blank().named_parameters()}


def start():
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    model = fabric.setup(blank())
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=0.0))
    model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
    optimizer.step()
    return fabric, {"model": model, "optimizer": optimizer, "iter_num": 0, "step_count": 0}


def tokenizer():
    folder = Path(tempfile.mkdtemp())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text('{"version": "1.0"}')
    return folder


def saved(fabric, state, folder, n):
    state["model"].load_state_dict(weights(n))
    state["step_count"] = state["iter_num"] = n
    argv, sys.argv = sys.argv, ["litgpt", "pretrain", "pythia-14m"]  # it saves what the command line said
    save_checkpoint(fabric, state, tokenizer(), folder / f"step-{n:08d}" / "lit_model.pth")
    sys.argv = argv


def compare(fabric, state, path, n):
    fabric.load(path, state)
    common.same(dict(state["model"].state_dict()), weights(n))
    assert state["step_count"] == n


def save(folder, n):
    saved(*start(), folder, n)


def load(folder, n):
    compare(*start(), folder / f"step-{n:08d}/lit_model.pth", n)
    for name in ("model_config.yaml", "hyperparameters.yaml", "tokenizer.json", "tokenizer_config.json"):
        assert (folder / f"step-{n:08d}" / name).stat().st_size


def train(folder, count, keep):
    fabric, state = start()
    path = find_resume_path("auto", folder)
    last = int(path.parent.name.split("-")[1]) if path else None
    if path:
        compare(fabric, state, path, last)
    common.say("resumed", last or "none")
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        saved(fabric, state, folder, n)
        common.say("saved", n)
        common.wait_listed(folder / f"step-{n:08d}")
        for old in common.numbers(folder, "step-")[:-keep]:
            shutil.rmtree(folder / f"step-{old:08d}")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
