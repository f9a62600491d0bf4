// The wait before a request is made again, and the share of requests that may be.
//
// A wait is anything up to 50 ms, then 100 ms, and so on up to 5 s (full jitter), so that many clients that a busy store has
// refused do not come back together. Requests that are made again are at most a fifth of all, and ten more: a store that is down is not
// asked ever more. One that refuses a tenth of all requests, those that are made again too, fails no call by that limit.
// Calling sequence: ckpt_backoff_new(); for each act a struct ckpt_try; ckpt_backoff_wait() after each failure that may pass.
// Threads: any, each with a struct ckpt_try of its own. Blocks: ckpt_backoff_wait(), up to 5 s, through ckpt_sys.
#pragma once

#include "core/objects/objects.h"

struct ckpt_backoff;

struct ckpt_try {
	const struct ckpt_until *until; // NULL: nobody calls it off
	int64_t deadline_ns;            // monotonic; no wait goes beyond it; nor beyond until's
	unsigned count;                 // of the waits so far
};

int ckpt_backoff_new(struct ckpt_backoff **ret_backoff);
void ckpt_backoff_free(struct ckpt_backoff *backoff); // NULL is fine

// Begins an act, which may take this long with all its waits, and counts it.
struct ckpt_try ckpt_backoff_begin(struct ckpt_backoff *backoff, const struct ckpt_until *until, int64_t ns);
// 0: make it again. -EBUSY: no more of it, the time or the share of requests is used up; -ECANCELED: called off.
int ckpt_backoff_wait(struct ckpt_backoff *backoff, struct ckpt_try *t);
