"""TRL's SFTTrainer, which is Hugging Face's Trainer with more files in a step, on the tiny model of hf_trainer.py."""

import sys

import common
import torch
from datasets import Dataset
from hf_trainer import Loop, load, model  # noqa: F401  (load is for common.main)
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer


def tokenizer():
    words = {f"w{i}": i for i in range(2046)} | {"<pad>": 2046, "<end>": 2047}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")), pad_token="<pad>", eos_token="<end>")


def run(folder, until, keep=None):
    last = get_last_checkpoint(str(folder))
    arguments = SFTConfig(
        output_dir=str(folder), max_steps=until(int(last.rsplit("-")[-1]) if last else 0), save_strategy="steps", save_steps=1, save_total_limit=keep,
        per_device_train_batch_size=1, learning_rate=0.0, report_to=[], disable_tqdm=True, logging_strategy="no", use_cpu=True, seed=1, max_length=32,
        bf16=False, gradient_checkpointing=False, dataset_kwargs={"skip_prepare_dataset": True})
    data = Dataset.from_dict({"input_ids": [(torch.arange(8) + i).tolist() for i in range(64)]})
    SFTTrainer(model=model(), args=arguments, train_dataset=data, processing_class=tokenizer(), callbacks=[Loop()]).train(resume_from_checkpoint=last)


def save(folder, n):
    """It numbers steps by itself: this is the next one."""
    run(folder, lambda last: n)


def train(folder, count, keep):
    run(folder, lambda last: last + count, keep)


if __name__ == "__main__":
    common.main(sys.modules[__name__])
