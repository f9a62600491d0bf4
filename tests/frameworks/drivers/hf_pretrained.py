"""transformers' save_pretrained. It has no last move of its own; the script's is the marker."""

import shutil
import sys

import common
from hf_trainer import compare, fill, model
from transformers import GPT2LMHeadModel


def save_as(folder, name, n):
    m = model()
    fill(m, n)
    m.save_pretrained(folder / name, max_shard_size="4MB")
    (folder / name / ".finalize").touch()


def load_as(folder, name, n):
    compare(GPT2LMHeadModel.from_pretrained(folder / name), n)


def save(folder, n):
    save_as(folder, f"step_{n}", n)


def load(folder, n):
    load_as(folder, f"step_{n}", n)


def steps(folder):
    return common.numbers(folder, "step_")


def remove(folder, n):
    shutil.rmtree(folder / f"step_{n}")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
