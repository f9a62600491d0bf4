"""Frameworks on JAX."""

from cases import *  # noqa: F403
from frameworks import Framework

FRAMEWORKS = [
    Framework("Orbax v0 CheckpointManager", "orbax_v0", "orbax-checkpoint", "{}", "orbax", "rename", any_name="rename",
              half="{}.orbax-checkpoint-tmp"),
    Framework("Orbax v1 save", "orbax_v1", "orbax-checkpoint", "{}", "orbax", "rename", any_name="rename", half="{}.orbax-checkpoint-tmp"),
    Framework("Orbax v1 save_async", "orbax_v1", "orbax-checkpoint", "{}", "orbax", "rename", variant="async", any_name="rename",
              half="{}.orbax-checkpoint-tmp"),
    Framework("Orbax v1 partial", "orbax_v1", "orbax-checkpoint", "{}", "orbax", "rename", variant="partial", any_name="rename",
              trains=False),
    Framework("flax.training.checkpoints", "flax_legacy", "flax", "checkpoint_{}"),
    Framework("eFormer Checkpointer", "eformer_checkpointer", "eformer", "run-{}", "eformer", "close:metadata.json", any_name="close:metadata.json",
              keeps=(3, 5), stumbles=True),
    Framework("Levanter Checkpointer", "levanter_checkpointer", "levanter", "step-{}", "levanter", "close:metadata.json",
              any_name="close:metadata.json", keeps=(3, 5)),
]
