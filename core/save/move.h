// Renaming a committed step, into another folder too: one operation of the log. Nothing is copied, and no version is made.
//
// Threads: any. Blocks on the disk.
#pragma once

#include "core/step/step.h"

// The step is listed under the new name alone, its files and open handles as they were. -EEXIST the name is taken; -ESTALE
// the step is not committed (any more); -EINVAL -EILSEQ -ENAMETOOLONG no name for a step; -EIO the outcome is unknown,
// asking again gives the final answer; -ENOSPC ... Failures on the disk are in the error log.
int ckpt_move(struct ckpt_step *step, const char *folder_id, const char *name);

// The same by a path from the root of the mount; its errors are those of ckpt_folders_place, too.
int ckpt_move_to(struct ckpt_step *step, const char *path);
const char *ckpt_move_hint(int error); // what to do about it, or NULL
