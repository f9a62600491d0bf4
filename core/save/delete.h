// Deleting a step, and having it back: a deletion is a version (version.h), so it is atomic, durable when acknowledged, and
// a version over it makes the step listed again. Its files stay where they are until it expires, settings.trash_ns later.
//
// Threads: any. Blocks on the disk.
#pragma once

#include "core/step/step.h"

// A committed step goes out of listing, at once and for good; open files stay readable. -ESTALE it is not committed (any
// more); -EPERM it is pinned (pin.h); -EIO the outcome is unknown (asking again gives the final answer); -ENOSPC ... Failures are
// in the error log.
int ckpt_delete(struct ckpt_step *step);
// The same for what a policy deletes, and nobody by its name, with store->acts_lock held: -EBUSY where somebody changes it, removes
// it or adds a file to it; -ESTALE, too, for one that is pinned by now, or was to be temporary and is permanent.
int ckpt_delete_behind_locked(struct ckpt_step *step, bool temporary);
const char *ckpt_delete_hint(int error); // what to do about it, or NULL
const char *ckpt_expire_hint(int error); // of both, one after the other
// A deleted step is listed again, as it was, but permanent (temporary.h). -EEXIST its name is taken; -ESTALE it has expired, or is not deleted; -ENOENT
// its folder is gone; -EIO the outcome is unknown, asking again gives the final answer.
int ckpt_undelete(struct ckpt_step *step);
const char *ckpt_undelete_hint(int error); // what to do about it, or NULL
// All deleted steps, by name, the newest first; free with ckpt_step_list_free. And what each is called among them: its
// name, older ones of the same name (by_folder: in the same folder) with the beginning of their session's id behind it.
int ckpt_deleted_list(struct ckpt_store *s, struct ckpt_step ***ret_steps, size_t *ret_count);
void ckpt_deleted_label(struct ckpt_step *const *steps, size_t i, bool by_folder, char *buf, size_t cap);
// Removes a deleted step for good: its records, and its files behind. What fails is left for the next time. -ESTALE it is
// not deleted: an undelete of unknown outcome was done, and asking for that again says so; -EBUSY a listed step has its files.
int ckpt_expire(struct ckpt_step *step);
int ckpt_expire_at_once(struct ckpt_step *step); // the files, too: their room is free when it returns
// Both, of a committed step; of a deleted one the second.
int ckpt_delete_for_good(struct ckpt_step *step);

// Removes what was deleted before this time, until *stop. When the oldest of what is left was deleted; INT64_MAX: nothing
// is. What should be gone and could not be removed counts as deleted CKPT_EXPIRE_RETRY_NS after deleted_ns.
#define CKPT_EXPIRE_RETRY_NS (INT64_C(60) * 1000000000)
int64_t ckpt_expire_before(struct ckpt_store *s, int64_t deleted_ns, const bool *stop);
