// A pinned step is not deleted, whoever asks, until it is unpinned. The pin is a flag of the step's newest version
// (version.h): it goes with the step when it is renamed and into its later versions.
//
// Threads: any. Blocks on the disk.
#pragma once

#include "core/step/step.h"

struct ckpt_pinned {
	int64_t pin_told_ns; // when the error log was told of its pin, monotonic; guarded by step->lock
};
CKPT_PART(struct ckpt_step, struct ckpt_pinned, ckpt_pinned)

// 0: it is so, durably; nothing is written where it was. -ESTALE the step is not committed (any more); -EBUSY it is being
// removed or changed; -EIO the outcome is unknown, asking again gives the final answer; -ENOSPC ... Failures are in the error log.
int ckpt_pin(struct ckpt_step *step, bool pinned);
bool ckpt_pin_is(struct ckpt_step *step);
// Says in the error log, once in a while, that somebody tried to remove it.
void ckpt_pin_tell(struct ckpt_step *step);
