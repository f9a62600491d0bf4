"""Frameworks that cannot be installed here: their drivers write as their sources say."""

from cases import *  # noqa: F403
from frameworks import Framework

del test_a_step_of_any_name_appears_when_it_is_complete  # noqa: F821  (their steps have their own names)

FRAMEWORKS = [
    Framework("nanotron", "replayed", "", "{}", "nanotron", "close:latest.txt", variant="nanotron", replayed=True, at="checkpoints",
              late=("model_config.json",), tracker="checkpoints/latest.txt"),
    Framework("T5X", "replayed", "", "checkpoint_{}", "generic", "rename", variant="t5x", replayed=True, half="checkpoint_{}.tmp-*", passing="*.tmp-*"),
    Framework("Composer", "replayed", "", "ep0-ba{}-rank0.pt", variant="composer", replayed=True, tracker="latest-rank0.pt"),
    Framework("fairseq", "replayed", "", "checkpoint_1_{}.pt", variant="fairseq", replayed=True, tracker="checkpoint_last.pt"),
]
