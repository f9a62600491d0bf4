// The next version of a committed step: a record put beside the one before, for what changes without its files being
// written anew: its metadata, its deletion.
//
// Threads: those that hold store->acts_lock. Who finds his version taken (by a put of his own whose answer was lost) reads
// what is there, and goes one further. Blocks on the disk.
#pragma once

#include "core/store/step.h"

// What a version changes of the one before: 0 go on, 1 nothing, -errno. The record is the caller's to change; its
// time is set before, version and nonce after it.
typedef int ckpt_version_change_fn(void *arg, struct ckpt_record *record);

// An act that frees room says so (frees): its version can be put on a full disk too, out of the reserve (backends/spare.h).
//
// 0: *ret_summary is durable; or with *ret_changed false, nothing was to do. -ESTALE the step is not committed (any
// more); -EIO the outcome is unknown, asking again gives the final answer; ... Nothing is said in the error log, and the
// step in memory is as it was: the caller's.
int ckpt_version_put(struct ckpt_step *step, ckpt_version_change_fn *change, void *arg, bool frees,
		     struct ckpt_summary *ret_summary, bool *ret_changed);
// The same for what is no matter of the files: the step in memory and the index have it then. What says in the error log what it could
// not be: "pinned". Takes store->acts_lock. -EBUSY: it is being removed or changed.
int ckpt_version_flag(struct ckpt_step *step, ckpt_version_change_fn *change, void *arg, bool frees, const char *what);
// A version after the one in memory, whose answer was lost, is taken over, and is durable then; most often there is none. -EIO
// it is still unknown.
int ckpt_version_settle(struct ckpt_step *step);
// What was found in the store, and not put by this process, may be of one that died before it was durable: before anything goes that
// an older version needs, this says that the current one stays. Most often it is known. -EIO it may not be; ...
int ckpt_version_make_durable(struct ckpt_step *step);
// A record under a key of the step, as a version of it, with the time that it has: encoded and put. A lost answer is asked for
// again.
int ckpt_version_put_record(struct ckpt_step *step, struct ckpt_record *record, bool frees);
