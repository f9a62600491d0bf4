"""Hugging Face's Trainer on a tiny model made here. Each step's weights are set before the Trainer saves them, so that what it
loads can be compared."""

import sys

import common
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


def model():
    return GPT2LMHeadModel(GPT2Config(vocab_size=2048, n_positions=32, n_embd=256, n_layer=2, n_head=4))


def weights(n):
    """All numbers of the model, of step n."""
    dice = torch.Generator().manual_seed(n)
    return {name: torch.randn(p.shape, generator=dice) for name, p in model().named_parameters()}


def fill(m, n):
    new = weights(n)
    with torch.no_grad():
        for name, p in m.named_parameters():
            p.copy_(new[name])


def compare(m, n):
    common.same({name: p.detach() for name, p in m.named_parameters()}, weights(n))


class Loop(TrainerCallback):
    def __init__(self):
        self.last = None

    def on_train_begin(self, args, state, control, model=None, **_):
        if state.global_step:
            self.last = state.global_step
            compare(model, self.last)
        common.say("resumed", self.last or "none")

    def on_step_end(self, args, state, control, model=None, **_):
        fill(model, state.global_step)
        common.say("saving", state.global_step)

    def on_save(self, args, state, control, **_):
        common.say("saved", state.global_step)


def run(folder, until, keep=None):
    data = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(64)]
    last = get_last_checkpoint(str(folder))
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=until(int(last.rsplit("-")[-1]) if last else 0), save_strategy="steps", save_steps=1, save_total_limit=keep,
        per_device_train_batch_size=1, learning_rate=0.0, report_to=[], disable_tqdm=True, logging_strategy="no", use_cpu=True, seed=1)
    Trainer(model=model(), args=arguments, train_dataset=data, callbacks=[Loop()]).train(resume_from_checkpoint=last)


def save(folder, n):
    """It numbers steps by itself: this is the next one."""
    run(folder, lambda last: n)


def load(folder, n):
    compare(GPT2LMHeadModel.from_pretrained(folder / f"checkpoint-{n}"), n)
    assert torch.load(folder / f"checkpoint-{n}/optimizer.pt")["state"]


def train(folder, count, keep):
    run(folder, lambda last: last + count, keep)


if __name__ == "__main__":
    common.main(sys.modules[__name__])
