// The job of a mount that collects garbage on its remote when nobody else has done so for a day (collect.h).
//
// All nodes of a remote look at the same entry of its log, the newest CONDEMN. Where that is older than a day, each waits for a random time, and
// looks again: so one of them collects, most often. It leaves a CONDEMN even if there is no garbage. It comes back when what it condemned may go;
// should it end before, the next collection does that.
//
// A failure is in the error log, each once as long as it is the same.
// Ownership: the store has one, and is borrowed. Threads: _new, _stop and _free belong to one. Blocks: _stop for as long as a request takes.
#pragma once

#include "core/base/part.h"

#include <stdint.h>

struct ckpt_collector;
struct ckpt_store;

// That of a mount; NULL: the store has no remote, or is not mounted for writing.
CKPT_PART(struct ckpt_store, struct ckpt_collector *, ckpt_collector)

struct ckpt_collector_pace {
	int64_t first_ns;           // after its begin
	int64_t period_ns;          // between two collections of all nodes
	int64_t spread_ns;          // the longest random time
	int64_t retry_ns;           // after a failure
	int64_t grace_ns, delay_ns; // of collect.h
	uint64_t repack_bytes;
};
extern const struct ckpt_collector_pace ckpt_collector_pace; // of a mount

int ckpt_collector_new(struct ckpt_store *s, const struct ckpt_collector_pace *pace,
		       struct ckpt_collector **ret_collector); // 0, -ENOMEM, -EAGAIN
void ckpt_collector_stop(struct ckpt_collector *c);            // NULL is fine, here and below
void ckpt_collector_free(struct ckpt_collector *c);
