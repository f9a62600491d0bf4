// The job that cools (cool.h): of each folder all sealed steps but the newest (settings.hot of them, in the order of their
// commits), the oldest first. What is pinned stays as it is, and for a day so does what was warmed. Of each step it looks once at each
// version, and after its start, whether raw files are left beside packs: only the disk says so.
//
// It begins none while the disk has not twice its size free: its packs are written before its raw files go, and a save may come
// meanwhile. A call of ckpt_cool() that waits is let by at the next chunk. It holds nothing that a crash would lose:
// what is in packs by then is found there again.
// Threads: any. Its turn ends within a chunk.
#pragma once

#include "core/base/part.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_job;
struct ckpt_step;
struct ckpt_store;

// Of a mount that seals and cools, atomic; else NULL.
CKPT_PART(struct ckpt_store, struct ckpt_job *, ckpt_cooler)

// Guarded by step->lock.
struct ckpt_cooling {
	int64_t cool_after_ns; // when to cool it, monotonic; INT64_MAX: nothing is left to do, or can be
};
CKPT_PART(struct ckpt_step, struct ckpt_cooling, ckpt_cooling)

int ckpt_cooler_start(struct ckpt_store *s); // 0, -ENOMEM, -EAGAIN
// The steps that are to be cooled now, but for those that cannot be, or not yet, and those that have packs and are only looked at for raw
// files of an earlier process. Of a store that does not cool: 0.
void ckpt_cooler_pending(struct ckpt_store *s, uint64_t *ret_steps, uint64_t *ret_bytes);
