// Steps that cannot be pushed, whatever the remote does: their bytes on this node are damaged or gone (REMOTE.md P8).
//
// The queue passes them over. Plain files that were written behind such a step may name it: they wait, too, until a step that was saved
// later is in the remote. All this is in memory: a step is tried again after a while, when it has changed, and by the next mount.
//
// Threads: any. Nothing blocks.
#pragma once

#include "core/base/lock.h"
#include "core/state/journal.h"

struct ckpt_failure {
	char session[CKPT_UUID_LEN + 1];
	int error;
	uint64_t number, place,
		until; // of its newest act; of it (difference.h), and of the first step behind that was pushed
	int64_t wait_ns, again_ns; // between two attempts; the next one, monotonic
	int64_t told_ns;           // monotonic
};

struct ckpt_failures {
	struct ckpt_lock lock;
	struct ckpt_failure *list; // guarded by lock
	size_t count, cap;
};

void ckpt_failures_init(struct ckpt_failures *f);
void ckpt_failures_done(struct ckpt_failures *f);
// The attempt to push this step, whose newest act has this number, has failed by this error. 1: it is to be told; 0: it was, within the last
// hour; -ENOMEM.
int ckpt_failures_add(struct ckpt_failures *f, const struct ckpt_failure *failure);
// Steps that have changed, or were pushed, are forgotten.
void ckpt_failures_follow(struct ckpt_failures *f, struct ckpt_journal *journal);
// A step of this place was pushed.
void ckpt_failures_pushed(struct ckpt_failures *f, uint64_t place);
// A plain file that was written when the newest act had this number may name such a step.
bool ckpt_failures_hold(struct ckpt_failures *f, uint64_t number);

// A copy, for who holds a lock of the journal.
struct ckpt_failure_list {
	struct ckpt_failure *failures; // malloc'ed
	size_t count;
};
int ckpt_failures_list(struct ckpt_failures *f, struct ckpt_failure_list *ret_list); // 0, -ENOMEM
void ckpt_failure_list_done(struct ckpt_failure_list *list);
const struct ckpt_failure *ckpt_failure_of(const struct ckpt_failure_list *list, const char *session); // NULL: none
// One behind which a plain file with this number was written (_hold); NULL: none.
const struct ckpt_failure *ckpt_failure_holding(const struct ckpt_failure_list *list, uint64_t number);
// The step is to be passed over, for now.
bool ckpt_failure_waits(const struct ckpt_failure_list *list, const char *session);
