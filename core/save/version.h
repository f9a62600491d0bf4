// Acts on a committed step: each is one operation of the log, after which the step in memory is as the log says.
//
// Threads: those that hold store->acts_lock. Blocks on the disk.
#pragma once

#include "core/state/act.h"
#include "core/step/step.h"

// An act whose answer was lost before is known first. An act that frees room says so (frees): it can be done on a full disk, too, out of the
// reserve (backends/spare.h).
//
// 0: it has happened, durably. -ESTALE the log does not allow it: the step is not committed (any more); -EIO the outcome is unknown, asking
// again gives the final answer; ... Nothing is said in the error log.
int ckpt_version_act(struct ckpt_step *step, struct ckpt_act *act, bool frees);

// The copy of its record becomes that of now (record_copy.h): of this one, or NULL.
void ckpt_version_copy(struct ckpt_step *step, const void *record, size_t len);
// True: an earlier act of this kind, whose answer was lost, was done; the step has this state since.
bool ckpt_version_was_done(struct ckpt_step *step, enum ckpt_act_kind kind, enum ckpt_step_state state);

// The changes of a version to the one before: 0 go on, 1 nothing, -errno. The record is the caller's to change; its
// time is set before, version and nonce after it.
typedef int ckpt_version_change_fn(void *arg, struct ckpt_record *record);
// The next version, by its record. With *ret_changed false nothing was to do.
int ckpt_version_put(struct ckpt_step *step, enum ckpt_act_kind kind, ckpt_version_change_fn *change, void *arg,
		     bool frees, struct ckpt_summary *ret_summary, bool *ret_changed);
// The same as a MERGE up to this version of the remote's log, of a step that may be in the trash.
int ckpt_version_merge(struct ckpt_step *step, uint32_t merged, ckpt_version_change_fn *change, void *arg,
		       struct ckpt_summary *ret_summary, bool *ret_changed);
// Sets or drops a flag of it (act.h). What says in the error log what it could not be: "pinned". Takes store->acts_lock. -EBUSY: it is being
// removed or changed.
int ckpt_version_flag(struct ckpt_step *step, uint32_t flag, bool on, const char *what);

// New metadata for a committed step, as a new version with the same files. The same metadata: 0, nothing is written.
int ckpt_commit_metadata(struct ckpt_step *step, const char *metadata);
// The same, asked for by a user and not by a marker: metrics and extras alone (-EINVAL), and what was said before stays (-EFBIG: there is no room for
// both). Takes store->acts_lock, as that does. -EBUSY: it is being removed or changed; -ESTALE: it is
// not committed.
int ckpt_version_note(struct ckpt_step *step, const char *metadata);
