// A reopened step, as those below its acts (reopen.h) know it.
#pragma once

#include "core/step/step.h"

struct ckpt_reopen {
	bool rewritten;      // array data of it was found to be written over; atomic
	bool claimed;        // a framework's event is awaited for it; set before it is watched
	bool through_latest; // its first change came by the link `latest`, which leads to it meanwhile; atomic
	bool fresh;          // it has nothing of base's, nor its numbers (replace.h); set before reopens, and for good
	struct ckpt_manifest *began; // the files that it began with; from then on until its commit, guarded by lock
	// Of one whose base another node has edited meanwhile (successor.h), which has had several bases: the first, atomic; and a reference to
	// each but the current one, under acts_lock.
	struct ckpt_step *from, **had;
	size_t had_count, had_cap;
};
CKPT_PART(struct ckpt_step, struct ckpt_reopen, ckpt_reopen)

// The step whose files it began with: its base, or one that has had the place of that before.
static inline struct ckpt_step *ckpt_reopen_from(const struct ckpt_step *staged)
{
	struct ckpt_step *from = __atomic_load_n(&ckpt_reopen_of(staged)->from, __ATOMIC_ACQUIRE);

	return from ? from : staged->base;
}

// Its base is not listed any more, and has no successor: another node has deleted it, or saved over it. (This one reopens no such step, and
// does neither to one that is reopened.)
bool ckpt_reopen_is_orphan(struct ckpt_step *staged);
// Those files, with a reference; where they are not kept, those of its base. Errors as of ckpt_step_manifest().
int ckpt_reopen_manifest(struct ckpt_step *staged, struct ckpt_manifest **ret_manifest);
// Those files, with a reference, if conflict copies are among them; else NULL. Of any staged step. Errors as above.
int ckpt_reopen_conflicts(struct ckpt_step *staged, struct ckpt_manifest **ret_manifest);
// The entry at this path was a conflict copy when the step was reopened, and so is in no listing.
bool ckpt_reopen_is_conflict(struct ckpt_step *staged, const char *path);
void ckpt_reopen_set_began(struct ckpt_step *staged, struct ckpt_manifest *m); // NULL: they are not kept any more

// Whether its directory and files are those of the step that it reopens, as far as they are shared.
static inline bool ckpt_reopen_shares(const struct ckpt_step *staged)
{
	return __atomic_load_n(&staged->reopens, __ATOMIC_ACQUIRE) && !ckpt_reopen_of(staged)->fresh;
}
