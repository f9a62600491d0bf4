// Raw files of a step whose bytes are in packs: written again (warmed), which makes no version, and what is known of them.
//
// Threads: any. Blocks on the disk where said.
#pragma once

#include "core/cold/reading.h"
#include "core/step/step.h"

#define CKPT_WARM_NS (INT64_C(24) * 3600 * 1000000000) // after which the cooler may cool a step that was warmed

// Raw files of a step on this node; guarded by step->lock.
struct ckpt_raws {
	bool left;       // by this process, beside packs
	uint32_t cooled; // the version that the cooler has looked at last; 0: it is to look again
};
CKPT_PART(struct ckpt_step, struct ckpt_raws, ckpt_raws)

struct ckpt_packing;

struct ckpt_tier_how {
	bool at_once;    // cool: -EBUSY where another step is being cooled; else it waits for that one
	bool keeps_warm; // cool: raw files stay as long as ckpt_warm_left_ns() says
	bool keeps_raw;  // cool: all of them stay
	// After each chunk: may end the act by answering false. NULL: on and on.
	bool (*go_on)(void *arg, uint64_t bytes);
	void *arg;
	uint64_t pack_bytes; // cool: packs are put once they have so many
	// cool: a pack was put into the store of this node; sha256 of the whole object. No version names it yet. NULL: nobody is told.
	void (*put)(void *arg, const struct ckpt_pack *pack, const uint8_t *sha256);
	// cool: chunks of the step that this process has put into packs before its commit; borrowed, and not changed meanwhile. NULL: none.
	const struct ckpt_packing *early;
	const char
		*only; // warm: the files whose path matches this glob(7), which may match in any directory; NULL: all
	// warm: these files alone, which clients have read whole, in the order of their numbers; NULL: all. What is written of them already is
	// taken, the error log is not told, and the step is marked as kept since it was read, unless somebody has warmed it.
	struct ckpt_reading *const *readings;
	size_t reading_count;
};

struct ckpt_tier_done {
	uint64_t files, bytes;       // cool: of which a raw file was removed; warm: of which one was written
	uint64_t stored_bytes;       // cool: what was put into packs for it; warm: the raw files
	uint64_t deduplicated_bytes; // cool: of chunks that were in a pack already, by another file or step
};

// Writes the raw files that are not there, durably. Errors as of ckpt_cool() (core/tier/cool.h). Blocks for as long as that takes.
int ckpt_warm(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done);
// For how long from now on the cooler leaves the step as it is, by the node's clock: it was warmed. 0: it was not, or a day ago.
int64_t ckpt_warm_left_ns(const struct ckpt_step *step);
// The time at which the last of its files was kept since it was read, by the node's clock; 0: none is, or the step was warmed by somebody.
int64_t ckpt_warm_read_ns(const struct ckpt_step *step);

void ckpt_warm_end(const struct ckpt_step *step); // it was cooled
void ckpt_raws_left(struct ckpt_step *step, bool left);
