// Keeps on this node what clients have read whole from the remote: a raw file, which later opens read at the speed of the disk.
//
// It does so only where raw files are a cache: in a store with a remote, for files whose packs are not on this node. A file of a store without a
// remote, or whose packs are here, was cooled to save room, and stays cold. Only a mount for writing keeps anything.
//
// A file is kept if there is room that nothing else wants:
//   - Below work_limit there must be room before copies of other steps would have to go (evict.h). If there is not, files that were kept in the same way
//     at least CKPT_WARMER_STAYS_NS ago make room, the oldest first. So a program that reads all of a large store fills the room once, and then no
//     more of it is written for a while.
//   - On the disk the next step, the reserve of the trash and a part stay free.
// Kept files are the first that go when saves need room.
//
// A job does this (jobs.h), after the last byte was given to the client. What the client's reading has left in trash/ (reading.h) is not read
// again; the rest is. Each chunk was verified when it was decoded. The file gets its name as by ckpt_warm(): whole and durable, or not at all.
// A file that is open then is read from packs until its last close: an inode keeps its way of I/O.
// A remote that does not answer is asked again some times. Failures are not told: nobody waits.
//
// Calling sequence: ckpt_warmer_new() in a mount; ckpt_warmer_stop(), _free(). Ownership: the store's. NULL is fine. Threads: those of the
// caller, one at a time. Blocks: _stop, for as long as a request takes.
#pragma once

#include "core/base/part.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_warmer;
struct ckpt_store;

// Of a mount for writing whose store has a remote; else NULL.
CKPT_PART(struct ckpt_store, struct ckpt_warmer *, ckpt_warmer)

#define CKPT_WARMER_STAYS_NS (INT64_C(3600) * 1000000000)

int ckpt_warmer_new(struct ckpt_store *s, struct ckpt_warmer **ret_warmer); // 0, -ENOMEM, -EAGAIN
void ckpt_warmer_stop(struct ckpt_warmer *w);
void ckpt_warmer_free(struct ckpt_warmer *w); // after _stop, when no file is open any more
size_t ckpt_warmer_pending(
	struct ckpt_warmer *w); // files that wait or are being written, but for those that failed and are tried again
