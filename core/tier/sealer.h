// Seals behind (seal.h, behind.h): the committed steps that are not sealed, in the order of their commits.
//
// It holds nothing that a crash would lose: what was not written down is read again. Threads: any. Only _stop blocks, for as long
// as a chunk takes.
#pragma once

#include "core/base/part.h"

#include <stdint.h>

struct ckpt_sealer;
struct ckpt_step;
struct ckpt_store;

// Of a mount that seals, atomic; else NULL.
CKPT_PART(struct ckpt_store, struct ckpt_sealer *, ckpt_sealer)

// Guarded by step->lock.
struct ckpt_sealing {
	uint32_t seal_failed;  // the version that could not be sealed; 0: none
	int64_t seal_after_ns; // when to try again, monotonic
	unsigned
		taken; // by so many that seal it in a hurry: not read a second time meanwhile; atomic, not under the lock
};
CKPT_PART(struct ckpt_step, struct ckpt_sealing, ckpt_sealing)

int ckpt_sealer_new(struct ckpt_store *s, struct ckpt_sealer **ret_sealer); // s is borrowed; 0, -ENOMEM, -EAGAIN
void ckpt_sealer_wake(struct ckpt_sealer *sealer); // there may be something to seal; NULL is fine
void ckpt_sealer_stop(struct ckpt_sealer *sealer); // it seals no more; NULL is fine
void ckpt_sealer_free(struct ckpt_sealer *sealer); // after _stop, when nobody wakes it; NULL is fine
// The files of the steps that are not sealed yet, but for those that cannot be; NULL: 0.
void ckpt_sealer_pending(struct ckpt_sealer *sealer, uint64_t *ret_files, uint64_t *ret_bytes);
