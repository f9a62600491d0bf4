"""The examples of tools/python/README.md, run as they stand: only /ckpt is another folder, and cuda the CPU."""

import os
import subprocess
import sys
import textwrap

import pytest

from support.fixtures import SLOW, SOURCE
from support.python_package import package  # noqa: F401

pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(SLOW > 1, reason="a library under a sanitizer needs a program under it")]

BEFORE = """
import ckptfs, numpy as np, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(30, 30)])

model = Net()

def saved(name, **more):
    ckptfs.save(model.state_dict(), f"/ckpt/{name}", **more)
"""
JAX = """
import jax, jax.numpy as jnp
params, opt_state, key = {"w": jnp.ones(4)}, ({"count": jnp.zeros(())},), jax.random.key(0)
"""
# By the first line of an example: the modules that it needs, what stands before it, and what has to hold behind it.
EXAMPLES = {
    "pip install ./tools/python": None,  # the package is installed so
    'with ckptfs.step("/ckpt", 1000, metrics={"loss": 1.5}) as folder:': ([], "", "ckptfs.find('/ckpt', 1000).metrics == {'loss': 1.5}"),
    'saving = ckptfs.save_async({"model": model.state_dict(), "step": 1000}, "/ckpt/1000", metrics={"loss": 1.5})': ([], "", "saving.done()"),
    'state = {"params": params, "opt": opt_state, "rng": jax.random.key_data(key)}': (["jax"], JAX, "state['params']['w'].sum() == 4"),
    'ckptfs.steps("/ckpt")': ([], "saved(1000, metrics={'loss': 1.5}); saved(2000)", "ckptfs.find('/ckpt', 2000).metrics == {'eval_loss': 0.4}"),
    'weights = ckptfs.arrays(ckptfs.latest("/ckpt"))': ([], "saved(1000)", "weights['layers.0.weight'][10:20].shape == (10, 30)"),
    'loaded = ckptfs.arrays(step).load(model.state_dict(), strict="raise_all")': (
        [], "saved(1000); step = ckptfs.latest('/ckpt'); template = model.state_dict(); put = lambda array, name: array", "not loaded.missing"),
    "from ckptfs.dcp import Reader, Writer": ([], "import torch.distributed.checkpoint as dcp; state = {'w': torch.ones(3)}", "ckptfs.find('/ckpt', 1000).metrics == {'loss': 1.5}"),
    # tests/frameworks has both trainers.
    "from ckptfs.huggingface import StepCallback, resume": None,
    "from ckptfs.lightning import StepCheckpoint, resume": None,
    "import ckptfs, pandas as pd": (["pandas", "matplotlib"], "saved(1000, metrics={'loss': 1.5})", "len(frame) == 1"),
}  # fmt: skip


def examples():
    block, found = [], []
    for line in [*(SOURCE / "tools/python/README.md").read_text().splitlines(), "end"]:
        if line.startswith("    ") or (block and not line):
            block.append(line)
        elif block:
            found.append(textwrap.dedent("\n".join(block)).strip())
            block = []
    return found


def key_of(example):
    lines = [line for line in example.splitlines() if line.strip() and line != "import ckptfs"]
    return lines[0].split("  #")[0].strip()


def test_each_example_is_known_here():
    assert [key_of(e) for e in examples()] == list(EXAMPLES)


@pytest.mark.parametrize("example", [pytest.param(e, id=str(i)) for i, e in enumerate(examples()) if EXAMPLES.get(key_of(e))])
def test_an_example_does_what_it_says(package, mount, ckptfs, tmp_path, example):
    modules, before, holds = EXAMPLES[key_of(example)]
    for module in ("torch", *modules):
        pytest.importorskip(module)
    text = "\n".join([BEFORE, before, example, f"assert {holds}, 'it does not hold'"])
    text = text.replace("/ckpt", str(mount.path)).replace('device="cuda"', 'device="cpu"')
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__)), "JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg",
           "PATH": f"{ckptfs.path.parent}:{os.environ['PATH']}"}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=150, cwd=tmp_path)
    assert done.returncode == 0, f"{example}\n{done.stderr}"
