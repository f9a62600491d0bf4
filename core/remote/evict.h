// The work directory of a store with a remote stays below work_limit: copies of steps that the remote has go, the oldest first.
//
// The limit counts all that is in the directory (core/save/limit.h). While more is there than leaves room for the next save, a job removes the
// raw files of one step after the other, and packs that no other step here needs and the remote has. Steps in the trash go first, then
// those whose files are only kept because they were read (warmer.h), the longest ago, then those that were committed first. What stays:
//   - a step that is not in the remote's log as it is here, with its packs
//   - a pinned step, one that is being changed or removed, and one of which a file is open
//   - one whose manifest cannot be read, as the error log says once; where the remote does not have it, all packs
//   - the log, the index, and plain files
// A step that has gone so is listed as before, and read from the remote. Where none may go and somebody waits, the packs of unfinished steps go
// (early_push.h).
//
// Threads: any. A turn of the job ends within a file.
#pragma once

#include "core/base/part.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_job;
struct ckpt_step;
struct ckpt_store;

struct ckpt_evict {
	struct ckpt_job *job; // of a mount whose store has a remote and a work_limit, atomic; else NULL
	bool hurried;         // somebody waits; atomic
	int64_t removed_ns;   // when something was removed last, monotonic; atomic
};
CKPT_PART(struct ckpt_store, struct ckpt_evict, ckpt_evict)

// The manifest of a step cannot be read, as the error log says: it is read again when the step has another version, or, if it may be
// another failure than damage, after a while. Guarded by step->lock.
struct ckpt_evict_unreadable {
	uint32_t version;
	int error;        // 0: it can
	int64_t again_ns; // monotonic
};
CKPT_PART(struct ckpt_step, struct ckpt_evict_unreadable, ckpt_evict_unreadable)

// --- What goes ----------------------------------------------------------------------------------------------------------

struct ckpt_evict_row {
	uint64_t sequence; // in the order of commits
	bool deleted;      // it is in the trash
	bool durable;      // the remote has it as it is here
	bool stays;        // it is pinned, or in somebody's hand
	bool open;         // somebody has a file of it open
	int64_t read_ns;   // its raw files are kept since a client has read one whole, then for the last time; else 0
	uint64_t raw_bytes;
};
// The places of those that may go, in their order; so many. Pure. ret_order has room for count.
size_t ckpt_evict_order(const struct ckpt_evict_row *rows, size_t count, size_t *ret_order);
// The bytes that the directory may take before something goes: a save of the size of the newest step fits beside it, raw and packed.
uint64_t ckpt_evict_target(uint64_t limit_bytes, uint64_t newest_bytes);

// --- Of a mount ---------------------------------------------------------------------------------------------------------

int ckpt_evict_start(struct ckpt_store *s); // 0, -ENOMEM, -EAGAIN

// Somebody waits: what was put off is tried now.
void ckpt_evict_hurry(struct ckpt_store *s);
// The bytes that the next step is expected to take until it is in the remote, with what those take that are not there yet: raw and packed. 0: the remote does not
// answer, so that room would not come soon.
uint64_t ckpt_evict_expected(struct ckpt_store *s);
// A writer that lacks room should wait for some: copies may go now, or once the push, which goes on, has sent more. since_ns: when he
// began to wait, monotonic. False: without a remote, too.
#define CKPT_EVICT_PATIENCE_NS                                                                                         \
	INT64_C(20000000000)                   // without anything sent or removed, while something waits to be sent
#define CKPT_EVICT_LAST_NS INT64_C(3000000000) // and when nothing does
bool ckpt_evict_may_help(struct ckpt_store *s, int64_t since_ns);
// The bytes that may be added before something goes; CKPT_LIMIT_NONE: there is no limit.
uint64_t ckpt_evict_left(struct ckpt_store *s);
// One round of raw files alone that are kept since they were read, for the last time until before_ns, by the node's clock. As below.
int ckpt_evict_read(struct ckpt_store *s, uint64_t bytes, int64_t before_ns, uint64_t *ret_bytes,
		    bool (*go_on)(void *arg), void *arg);
// One round now: removes until so many bytes have gone, or nothing more may go. *ret_bytes: what has gone, also on failure. 0; -EINTR: go_on
// said no; -EAGAIN: the log is ahead of the steps; -ENOMEM, -errno of the disk. Called by the thread, and by tests.
int ckpt_evict_round(struct ckpt_store *s, uint64_t bytes, uint64_t *ret_bytes, bool (*go_on)(void *arg), void *arg);
