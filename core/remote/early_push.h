// Data that is sent before its commit (REMOTE.md P2): files of staged steps are packed as soon as they are closed (core/tier/early_pack.h),
// and the packs are sent at once. After the commit push.c finds them in the remote.
//
// It only feeds what packs and sends after a commit: what is not done here is done there. No entry of a log names what is here, so that
// a crash leaves packs that nothing needs, here and in the remote; collections take them. A save that lacks room gets theirs.
//
// It gives way to saves, as who pushes does (core/jobs), and packs only what can be sent now: nothing while older steps wait, while the remote does not
// answer, or while CKPT_EARLY_PUSH_WAITING_MAX packs wait. Nothing is packed while the next save might lack the room for it, on the disk or
// below work_limit; then the packs of unfinished steps go, too.
//
// Calling sequence: ckpt_early_push_new(); _take() by who pushes; _stop(), before the end of who pushes; _free(), after it.
// Ownership: the remote's. NULL is a remote without: all calls take it. Threads: as said. Blocks: _take and _give_back for as long as a chunk
// takes, and on the disk; _stop for as long as a chunk takes.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ckpt_early_push;
struct ckpt_early_step;
struct ckpt_packing;
struct ckpt_store;
struct ckpt_uploads;

#define CKPT_EARLY_PUSH_WAITING_MAX 8u             // packs of a step
#define CKPT_EARLY_PUSH_IDLE_NS INT64_C(500000000) // after which a pack that is large enough is sent as it is,
#define CKPT_EARLY_PUSH_IDLE_BYTES (UINT64_C(8) << 20)
#define CKPT_EARLY_PUSH_REST_NS INT64_C(3000000000) // and any other

enum ckpt_early_push_may {
	CKPT_EARLY_PUSH_GO,   // no step waits to be pushed
	CKPT_EARLY_PUSH_WAIT, // something else is to be sent first
	CKPT_EARLY_PUSH_NOT,  // what is closed now is left to the commit
};

struct ckpt_early_push_of {
	struct ckpt_store *store;
	enum ckpt_early_push_may (*may)(void *arg);
	void *arg;
	int64_t *progressed_ns; // as of upload.h
};

int ckpt_early_push_new(const struct ckpt_early_push_of *of, struct ckpt_early_push **ret_early); // 0, -ENOMEM, -EAGAIN
void ckpt_early_push_stop(struct ckpt_early_push *early);
void ckpt_early_push_free(struct ckpt_early_push *early);

// The packs of steps that are not being pushed are removed: somebody lacks the room. The bytes that were freed. Any thread.
uint64_t ckpt_early_push_give_back(struct ckpt_early_push *early);

// --- For the thread that pushes -----------------------------------------------------------------------------------------

// The committed step of this session is the caller's from now on, until ckpt_early_step_free(): nothing is packed for it any more. NULL:
// nothing of it is known.
struct ckpt_early_step *ckpt_early_push_take(struct ckpt_early_push *early, const char *session);
void ckpt_early_step_free(struct ckpt_early_step *step); // NULL is fine, here and below
// Its chunks that are in packs; NULL: none are. Borrowed.
const struct ckpt_packing *ckpt_early_step_packing(const struct ckpt_early_step *step);
// Its packs that have been sent, or are on their way; the caller adds the rest. NULL: that has failed. Borrowed.
struct ckpt_uploads *ckpt_early_step_uploads(const struct ckpt_early_step *step);
