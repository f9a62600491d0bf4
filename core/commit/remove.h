// Removing a committed step piece by piece, as `rm -r` does: what is removed is marked in memory and changes nothing on
// disk, until the step's own directory goes, which deletes it in one act (delete.h). So an interrupted removal has done
// nothing: the step is back, whole, once it stands still for settings.quiet_ns, and after a restart.
//
// While it is being removed the step is in no listing, and reachable by its exact name, without what is gone.
// Threads: any; guarded by step->lock. Only _whole blocks on the disk, and what is told.
#pragma once

#include "core/store/step.h"

// Marks a child of directory dir as removed: a directory (want_dir) with nothing left in it, or what is none. -ENOENT,
// -ENOTDIR, -EISDIR, -ENOTEMPTY, -ENOMEM; -EROFS the step is not committed; -EPERM it is pinned, which is told in the error
// log; -EAGAIN it is being reopened: remove it there.
int ckpt_remove_entry(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t dir, const char *name,
		      bool want_dir);
bool ckpt_remove_has(struct ckpt_step *step, uint32_t index); // entry index is removed
// The step itself: deleted, if nothing is left in it (-ENOTEMPTY); errors of ckpt_delete, after which it is whole.
int ckpt_remove_whole(struct ckpt_step *step);

// Whether anything of it is marked; and whether it is being removed, and so in no listing.
static inline bool ckpt_remove_any(const struct ckpt_step *step)
{
	return __atomic_load_n(&step->removal, __ATOMIC_RELAXED) != NULL;
}
bool ckpt_remove_hides(struct ckpt_step *step);
// Makes one whole again whose removal stands still, which is told in the error log.
void ckpt_remove_give_up(struct ckpt_step *step);

// For the other files of core. What was marked is whole again.
void ckpt_remove_forget(struct ckpt_step *step);
void ckpt_remove_forget_locked(struct ckpt_step *step); // under step->lock
// The step's next version has the manifest `is`, whose entries are those of `was`: what was marked, or is by who still has that one,
// is marked in both.
void ckpt_remove_same_entries(struct ckpt_step *step, const struct ckpt_manifest *was, const struct ckpt_manifest *is);
