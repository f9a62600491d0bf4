// Cools behind (cool.h, behind.h): of each folder all sealed steps but the newest (settings.hot of them, in the order of their
// commits), the oldest first. What is pinned stays as it is, and for a day so does what was warmed. Of each step it looks once at each
// version, and after its start, whether raw files are left beside packs: only the disk says so.
//
// It begins none while the disk has not twice its size free: its packs are written before its raw files go, and a save may come
// meanwhile. A call of ckpt_cool() that waits is let by at the next chunk. It holds nothing that a crash would lose:
// what is in packs by then is found there again.
// Threads: any. Only _stop blocks, for as long as a chunk takes.
#pragma once

#include "core/base/part.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_cooler;
struct ckpt_step;
struct ckpt_store;

// Of a mount that seals and cools, atomic; else NULL.
CKPT_PART(struct ckpt_store, struct ckpt_cooler *, ckpt_cooler)

// Guarded by step->lock.
struct ckpt_cooling {
	int64_t cool_after_ns; // when to cool it, monotonic; INT64_MAX: nothing is left to do, or can be
};
CKPT_PART(struct ckpt_step, struct ckpt_cooling, ckpt_cooling)

int ckpt_cooler_new(struct ckpt_store *s, struct ckpt_cooler **ret_cooler); // s is borrowed; 0, -ENOMEM, -EAGAIN
void ckpt_cooler_wake(struct ckpt_cooler *cooler); // there may be something to cool; NULL is fine
void ckpt_cooler_stop(struct ckpt_cooler *cooler); // it cools no more; NULL is fine
void ckpt_cooler_free(struct ckpt_cooler *cooler); // after _stop, when nobody wakes it; NULL is fine
// The steps that are to be cooled now, but for those that cannot be, or not yet, and those that have packs and are only looked at for raw
// files of an earlier process. NULL: 0.
void ckpt_cooler_pending(struct ckpt_cooler *cooler, uint64_t *ret_steps, uint64_t *ret_bytes);
