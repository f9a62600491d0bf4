"""Frameworks that train: each has its own names, its own last move, and its own ideas of what may go."""

from dataclasses import replace

import pytest

from cases import *  # noqa: F403
from frameworks import Framework, run
from support.watcher import watch

DEEPSPEED = Framework("DeepSpeed save_checkpoint", "deepspeed_engine", "deepspeed", "global_step{}", "deepspeed", "close:latest", ranks=2, load_ranks=2,
                      any_name="close:latest")
FRAMEWORKS = [
    Framework("Hugging Face Trainer", "hf_trainer", "transformers", "checkpoint-{}", "hf-trainer", "close:trainer_state.json"),
    Framework("transformers save_pretrained", "hf_pretrained", "transformers", "step_{}", "generic", "marker", any_name="marker"),
    Framework("accelerate save_state", "accelerate_state", "accelerate", "checkpoint_{}", "accelerate", "close:random_states_0.pkl", at="checkpoints",
              late=("custom_checkpoint_*.pkl",), any_name="close:random_states_0.pkl", stumbles=True, settles=2.5,
              wants="custom_checkpoint_0.pkl"),
    Framework("Megatron-core torch_dist", "megatron_dist", "megatron-core", "iter_{:07d}", "megatron", "close:metadata.json", ranks=2,
              any_name="close:metadata.json", tracker="latest_checkpointed_iteration.txt"),
    DEEPSPEED,
]


@pytest.mark.timeout(200)
def test_deepspeed_names_a_step_before_its_slowest_rank_has_written(world, mount, folder):
    """Rank 0 closes `latest`, and waits for the others then: the step is none until the last file is there."""
    slow = replace(DEEPSPEED, variant="slow")
    with watch(world, folder, pattern=slow.pattern) as w:
        run(world, slow, "save", folder, 1, 2)
    assert w.check_whole() == {"global_step1", "global_step2"} and mount.errors() == []
    run(world, slow, "load", folder, 1, 2)
