// The limits of unfinished work: what staged steps, left-over sessions and drafts may take on the disk, all together (work_limit)
// and for each user but root (user_limit). Who wants to write more is refused until something is committed or dropped.
// In the work directory of a store with a remote all that is there counts for work_limit, and copies of what the remote has go
// (core/remote/evict.h).
//
// What counts is what is allocated to their files, each file once, but for what is shared with a committed step (share.h). By a
// walk, and not by a project quota of the disk's filesystem: a session never moves when it is committed, so that the quota would
// go on counting it.
//
// Calling sequence: ckpt_limit_new() where a store has limits, ckpt_limit_ask() before something is written; ckpt_limit_watch() in a mount,
// where the kernel writes to what is open without a word to us.
// Ownership: the store's. NULL is a store without limits: all calls take it and do nothing. Threads: any.
// Blocks: ask does not, unless nothing is known yet or the answer would be no: then it walks first, as room may have become free, but for
// a tenth of the time at most; what a commit or an abort has freed is always seen. With user_limit it takes a lock, shortly.
#pragma once

#include "core/base/part.h"

#include <stdint.h>
#include <sys/types.h>

struct ckpt_limit;
struct ckpt_store;
// Of a store that is open for writing.
CKPT_PART(struct ckpt_store, struct ckpt_limit *, ckpt_limit)

#define CKPT_LIMIT_NONE UINT64_MAX

// *ret_limit is NULL where the settings of s, which is borrowed, have no limit. 0, -ENOMEM.
int ckpt_limit_new(struct ckpt_store *s, struct ckpt_limit **ret_limit);
// From now on a job looks once a second at what there is, and rests ten times as long as that took. 0, -ENOMEM, -EAGAIN.
int ckpt_limit_watch(struct ckpt_limit *limit);
void ckpt_limit_stop(struct ckpt_limit *limit); // it looks no more; waits for it
void ckpt_limit_free(struct ckpt_limit *limit); // after _stop

// Whether so many bytes more may be written, to a file of this user; 0 bytes: whether anything may be. What may be counts as written
// until the next walk. 0; -ENOSPC, -EDQUOT: a line in the error log says what to do, once a minute. Where it cannot be known
// it may be.
int ckpt_limit_ask(struct ckpt_limit *limit, uid_t uid, uint64_t bytes);
// The same without a line, and without taking it: what is asked for may follow. Walks, if what is known may be another by now.
int ckpt_limit_try(struct ckpt_limit *limit, uid_t uid, uint64_t bytes);
// The bytes that count for work_limit now; walks, if the known number may be another by now. 0, -ENODATA.
int ckpt_limit_used(struct ckpt_limit *limit, uint64_t *ret_bytes);
// Something is no unfinished work any more. Never blocks, any lock may be held.
void ckpt_limit_freed(struct ckpt_limit *limit);

// What unfinished work takes now, for people. Walks all of it. 0; -ENODATA: there is no limit, and nobody wants to know; -ENOMEM, -EIO, ...
int ckpt_limit_measure(struct ckpt_store *s, uint64_t *ret_bytes);
