// A reopened step, as those below its acts (reopen.h) know it.
#pragma once

#include "core/step/step.h"

struct ckpt_reopen {
	bool rewritten;      // array data of it was found to be written over; atomic
	bool claimed;        // a framework's event is awaited for it; set before it is watched
	bool through_latest; // its first change came by the link `latest`, which leads to it meanwhile; atomic
	bool fresh;          // it has nothing of base's, nor its numbers (replace.h); set before reopens, and for good
};
CKPT_PART(struct ckpt_step, struct ckpt_reopen, ckpt_reopen)

// Whether its directory and files are those of the step that it reopens, as far as they are shared.
static inline bool ckpt_reopen_shares(const struct ckpt_step *staged)
{
	return __atomic_load_n(&staged->reopens, __ATOMIC_ACQUIRE) && !ckpt_reopen_of(staged)->fresh;
}
