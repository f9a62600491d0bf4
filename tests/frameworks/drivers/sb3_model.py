"""stable-baselines3: its CheckpointCallback, which saves one zip a step, and the load of it."""

import os
import sys

import common
import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback


class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_):
        return np.zeros(8, np.float32), {}

    def step(self, _):
        return np.zeros(8, np.float32), 0.0, False, False, {}


def blank():
    return PPO("MlpPolicy", Env(), n_steps=2, batch_size=2, device="cpu", policy_kwargs={"net_arch": [512, 512]})


def weights(n):
    dice = torch.Generator().manual_seed(n)
    return {name: torch.randn(p.shape, generator=dice) for name, p in blank().policy.state_dict().items()}


def compare(model, n):
    common.same(dict(model.policy.state_dict()), weights(n))


def path(folder, n):
    return folder / f"rl_model_{n}_steps.zip"


class Loop(BaseCallback):
    """Called before CheckpointCallback, for each step of the environment."""

    def _on_step(self):
        self.model.policy.load_state_dict(weights(self.num_timesteps))
        common.say("saving", self.num_timesteps)
        return True


class After(BaseCallback):
    def __init__(self, folder, keep):
        super().__init__()
        self.folder, self.keep = folder, keep

    def _on_step(self):
        for old in common.numbers(self.folder, "rl_model_", "_steps.zip")[:-self.keep] if self.keep else []:
            os.unlink(path(self.folder, old))
        common.say("saved", self.num_timesteps)
        return True


def learn(folder, last, count, keep=None):
    model = PPO.load(path(folder, last), Env(), device="cpu") if last else blank()
    if last:
        assert model.num_timesteps == last
        compare(model, last)
    common.say("resumed", last or "none")
    model.n_steps, model.learning_rate = max(count, 2), 0.0
    saving = CheckpointCallback(save_freq=1, save_path=str(folder))
    stop = last + count

    class Stop(BaseCallback):
        def _on_step(self):
            return self.num_timesteps < stop

    model.learn(count, callback=[Loop(), saving, After(folder, keep), Stop()], reset_num_timesteps=False)


def newest(folder):
    return (common.numbers(folder, "rl_model_", "_steps.zip") or [0])[-1]


def save(folder, n):
    """It numbers steps by itself: this is the next one."""
    learn(folder, newest(folder), 1)


def load(folder, n):
    compare(PPO.load(path(folder, n), device="cpu"), n)


def train(folder, count, keep):
    learn(folder, newest(folder), count, keep)


if __name__ == "__main__":
    common.main(sys.modules[__name__])
