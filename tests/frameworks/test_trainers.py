"""More frameworks that train, on top of the ways to save that test_torch.py and test_training.py have."""

from cases import *  # noqa: F403
from frameworks import Framework

del test_a_step_of_any_name_appears_when_it_is_complete  # noqa: F821  (their steps have their own names)

FRAMEWORKS = [
    Framework("Lightning Trainer, file", "lightning_trainer", "lightning", "epoch=0-step={}.ckpt", variant="file", keeps=(3, 4, 5)),
    Framework("Lightning Trainer, folder of shards", "lightning_trainer", "lightning", "epoch=0-step={}.ckpt", "lightning", "close:meta.pt",
              variant="folder", ranks=2, keeps=(3, 4, 5), stumbles=True),
    Framework("TRL SFTTrainer", "trl_sft", "trl", "checkpoint-{}", "hf-trainer", "close:trainer_state.json"),
    Framework("diffusers' training scripts", "diffusers_training", "diffusers", "checkpoint-{}", "accelerate", "close:random_states_0.pkl", stumbles=True,
              settles=2.5),
    Framework("stable-baselines3 CheckpointCallback", "sb3_model", "stable-baselines3", "rl_model_{}_steps.zip"),
]
