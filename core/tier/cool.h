// Tiers: a step that is seldom read is cooled, its files' chunks go into packs, encoded and each once, and its raw files are
// removed; warming writes the raw files anew. The files stay what they are, and clients see no change but of speed.
//
// Either is a version with the same entries (edit.h). What is in packs was decoded from them and compared before a raw file goes.
// Threads: any; one step of a store is cooled at a time, others wait. Blocks on the disk for as long as the step takes to read.
#pragma once

#include "core/store/step.h"

#define CKPT_EVENT_COOL "cool" // of the versions
#define CKPT_EVENT_WARM "warm"

struct ckpt_raws {
	bool raws_gone; // of what is in packs no raw file is left; guarded by step->lock
};
CKPT_PART(struct ckpt_step, struct ckpt_raws, ckpt_raws)

struct ckpt_tier_how {
	bool at_once; // cool: -EBUSY where another step is being cooled; else it waits for that one
	// After each chunk: may end the act by answering false. NULL: on and on.
	bool (*go_on)(void *arg, uint64_t bytes);
	void *arg;
	uint64_t pack_bytes; // cool: packs are put once they have so many
	const char
		*only; // warm: the files whose path matches this glob(7), which may match in any directory; NULL: all
};

struct ckpt_tier_done {
	uint64_t files, bytes;       // whose place is another now
	uint64_t stored_bytes;       // cool: what was put into packs for it; warm: the raw files
	uint64_t deduplicated_bytes; // cool: of chunks that were in a pack already, by another file or step
};

// 0; -EINTR go_on said no: nothing has changed but for packs, in which the next attempt finds what this one put there; -ESTALE the step is not committed (any more);
// -EBUSY it is reopened or being removed; -ENODATA it is not sealed (seal.h); -EIO a file cannot be read or is not what was sealed,
// and stays raw, or the outcome is unknown; -ENOSPC, ... Failures but the first four are in the error log.
// What a crash has left of an earlier cooling is completed. It waits for another step that is being cooled: a mount that cools
// behind ends that at the next chunk (cooler.h).
int ckpt_cool(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done);
bool ckpt_cool_is_wanted(const struct ckpt_store *s); // a call waits for the one that cools now
// The same, sealed first where it is not: go_on is told of those bytes, too.
int ckpt_cool_sealed(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done);
int ckpt_warm(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done);
// What to do about a failure; NULL: nothing better is known than what goes for the error anywhere.
const char *ckpt_tier_hint(int error);
// Removes the raw files of what is in packs: those that a crash has left, too. Done once, it has nothing to do any more until
// the step is cooled again. go_on, asked now and then (of 0 bytes), ends it by answering false; NULL: on and on. Blocks on the
// disk, under acts_lock for a moment at a time.
void ckpt_cool_sweep(struct ckpt_step *step, bool (*go_on)(void *arg, uint64_t bytes), void *arg);
// There may be some again.
void ckpt_cool_raws_left(struct ckpt_step *step);
