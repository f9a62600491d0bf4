// Private copies: a file that a fork's leftover may still write is committed as a copy of its own, under the same name.
//
// Calling sequence, by the thread that commits the step and while the step is COMMITTING: ckpt_copy_make() for each name
// of such a file, while the tree is scanned; ckpt_copy_sync(); ckpt_copy_place() when all else that can fail was done;
// then ckpt_copy_keep() if the commit is certain, ckpt_copy_undo() if it certainly failed, and neither while its outcome
// is unknown: the copies stay in place until it is known. Until they are placed they are in trash/, and afterwards the
// leftovers' files are, so that what nobody finishes is no file of a step, and is swept at the next start.
//
// Ownership: the step holds the list, ckpt_copy_forget() frees it. Threads: the one that commits. All block on the disk.
#pragma once

#include "core/step/step.h"

struct statx;

struct ckpt_copying {
	struct ckpt_copies *copies; // the running commit's alone
};
CKPT_PART(struct ckpt_step, struct ckpt_copying, ckpt_copying)

// The copy of the file that is open at fd and is like stx, for its name `path` in the step: hard links of one file get hard
// links of one copy. The copy has its content, owner, mode, times and attributes. ret_fd reads it.
// -EBUSY: the file changed meanwhile; -ENOSPC, ...
int ckpt_copy_make(struct ckpt_step *step, const char *path, int fd, const struct statx *stx, int *ret_fd);
// The copies' data and attributes are on disk when it returns 0. ret_path: the name of the one that failed, borrowed.
int ckpt_copy_sync(struct ckpt_step *step, const char **ret_path);
// Each copy takes its name in the step, durably. After an error some have.
int ckpt_copy_place(struct ckpt_step *step);
// Each leftover's file takes its name back, as far as the copy still has it, and the copies are removed. After an error
// (some are not back) it may be called again.
int ckpt_copy_undo(struct ckpt_step *step);
// The leftovers' files lose their last name; whoever has them open writes on in them, to no effect.
void ckpt_copy_keep(struct ckpt_step *step);
void ckpt_copy_forget(struct ckpt_step *step);
