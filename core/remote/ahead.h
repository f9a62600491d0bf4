// Entries of a remote's log that are asked for at the same time: a log that is far ahead is read so many times faster.
//
// Threads: one at a time. Blocks on the objects. Ownership: results are malloc'ed.
#pragma once

#include "core/log/log.h"

#define CKPT_AHEAD_MAX 128u    // entries of one call
#define CKPT_AHEAD_THREADS 32u // requests at the same time

struct ckpt_ahead_entry {
	void *data;
	size_t len;
};

// Up to count entries behind the position, which becomes that of the last of them: each follows the one before it. Fewer where the log ends, or
// where an entry cannot be read, or is not the next one: who reads it alone gets the error. How many there are.
size_t ckpt_ahead_read(struct ckpt_objects *objects, struct ckpt_log_position *at, size_t count,
		       struct ckpt_ahead_entry ret_entries[CKPT_AHEAD_MAX]);
void ckpt_ahead_free(struct ckpt_ahead_entry *entries, size_t count);
