// The job that seals (seal.h): the committed steps that are not sealed, in the order of their commits.
//
// It holds nothing that a crash would lose: what was not written down is read again. Threads: any. Its turn ends within a
// chunk.
#pragma once

#include "core/base/part.h"

#include <stdint.h>

struct ckpt_job;
struct ckpt_step;
struct ckpt_store;

// Of a mount that seals, atomic; else NULL.
CKPT_PART(struct ckpt_store, struct ckpt_job *, ckpt_sealer)

// Guarded by step->lock.
struct ckpt_sealing {
	uint32_t seal_failed;  // the version that could not be sealed; 0: none
	int64_t seal_after_ns; // when to try again, monotonic
	unsigned
		taken; // by so many that seal it in a hurry: not read a second time meanwhile; atomic, not under the lock
};
CKPT_PART(struct ckpt_step, struct ckpt_sealing, ckpt_sealing)

int ckpt_sealer_start(struct ckpt_store *s); // 0, -ENOMEM, -EAGAIN
// The files of the steps that are not sealed yet, but for those that cannot be; of a store that does not seal: 0.
void ckpt_sealer_pending(struct ckpt_store *s, uint64_t *ret_files, uint64_t *ret_bytes);
