"""The loop of diffusers' training scripts: accelerate's save_state into `checkpoint-N`, with a hook that saves the UNet by
save_pretrained, and the oldest removed before each. A log grows beside the steps, as the scripts have it."""

import os
import shutil
import sys

import common
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_scheduler


def unet():
    return UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(64, 128), norm_num_groups=8,
                       down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))


def weights(n):
    dice = torch.Generator().manual_seed(n)
    return {name: torch.randn(p.shape, generator=dice) for name, p in unet().named_parameters()}


def start(folder):
    a = Accelerator(project_config=ProjectConfiguration(project_dir=str(folder), logging_dir=str(folder / "logs")), cpu=True)
    model = unet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    schedule = get_scheduler("constant", optimizer=optimizer)

    def save_model(models, parts, output_dir):
        for m in models:
            m.save_pretrained(os.path.join(output_dir, "unet"))
            parts.pop()  # else accelerate saves it, too

    def load_model(models, input_dir):
        while models:
            got = UNet2DModel.from_pretrained(input_dir, subfolder="unet")
            models.pop().load_state_dict(got.state_dict())

    a.register_save_state_pre_hook(save_model)
    a.register_load_state_pre_hook(load_model)
    model, optimizer, schedule = a.prepare(model, optimizer, schedule)
    noise = DDPMScheduler(10).add_noise(torch.ones(1, 1, 8, 8), torch.ones(1, 1, 8, 8), torch.tensor([5]))
    a.backward(model(noise, 5).sample.sum())
    optimizer.step()
    os.makedirs(folder / "logs", exist_ok=True)
    return a, model, open(folder / "logs" / f"events.out.{os.getpid()}", "a", buffering=1)


def saved(a, model, log, folder, n, keep=None):
    new = weights(n)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(new[name])
    if keep is not None:
        steps = common.numbers(folder, "checkpoint-")
        for old in steps[:max(0, len(steps) - keep + 1)]:
            shutil.rmtree(folder / f"checkpoint-{old}")
    a.save_state(str(folder / f"checkpoint-{n}"))
    log.write(f"saved {n}\n")


def compare(a, model, folder, n):
    a.load_state(str(folder / f"checkpoint-{n}"))
    common.same({name: p.detach() for name, p in model.named_parameters()}, weights(n))


def save(folder, n):
    saved(*start(folder), folder, n)


def load(folder, n):
    a, model, _ = start(folder)
    compare(a, model, folder, n)


def train(folder, count, keep):
    steps = common.numbers(folder, "checkpoint-")
    last = steps[-1] if steps else None
    a, model, log = start(folder)
    if last is not None:
        compare(a, model, folder, last)
    common.say("resumed", "none" if last is None else last)
    for n in range((last or 0) + 1, (last or 0) + count + 1):
        common.say("saving", n)
        saved(a, model, log, folder, n, keep)
        common.say("saved", n)
        common.wait_listed(folder / f"checkpoint-{n}")  # 2 s later: the next save looks for what is old


if __name__ == "__main__":
    common.main(sys.modules[__name__])
