// Renaming a committed step, into another folder too: a record under the new name whose event is "move"; a deletion of the old
// one with that event, which is the commit point; and a version of the new one that is no "move" any more. Until the deletion
// is there, or where the old name was deleted otherwise, the record under the new name is void. Nothing is copied, and the old
// name's deletion is no step in the trash.
//
// Threads: any. Blocks on the disk.
#pragma once

#include "core/store/step.h"

#define CKPT_EVENT_MOVE "move"

// The step is listed under the new name alone, its files and open handles as they were. -EEXIST the name is taken; -ESTALE
// the step is not committed (any more); -EINVAL -EILSEQ -ENAMETOOLONG no name for a step; -EIO the outcome is unknown,
// asking again gives the final answer; -ENOSPC ... Failures on the disk are in the error log.
int ckpt_move(struct ckpt_step *step, const char *folder_id, const char *name);

// The same by a path from the root of the mount; its errors are those of ckpt_folders_place, too.
int ckpt_move_to(struct ckpt_step *step, const char *path);
const char *ckpt_move_hint(int error); // what to do about it, or NULL

// With store->acts_lock held, or before others start: a step that was moved says so in a version of its own, after which what
// is said under its old name may expire.
int ckpt_move_confirm(struct ckpt_step *step);
// For load.c, after a look at the store: forgets the void ones, and where the store is writable removes them.
int ckpt_move_settle(struct ckpt_store *s);
