// A save over a committed step, past the mount: it is staged under a name of its own, and its commit has the place of the step that is
// there, which goes to the trash in the same act. Until then that one is listed and read as ever.
//
// It is reopening (reopen.h) of which nothing is shared: the directory is another one, and so are its files. What stays is the
// moment of the first commit, and a pin.
// Threads: any. Blocks on the disk.
#pragma once

#include "core/save/commit.h"

// As ckpt_stage_begin() where the name is free. -EEXIST: what has it is no committed step.
int ckpt_replace_begin(struct ckpt_store *s, const char *folder_id, const char *name, mode_t mode, uid_t uid, gid_t gid,
		       pid_t pid, struct ckpt_step **ret_step);
// Commits it under this name (how->folder_id and how->name, set). *ret_replaced: what was there, with a reference; NULL: nothing. -EBUSY
// somebody changes or removes that; else as ckpt_commit(). After a failure the step of before is there as it was, and this may be
// tried again; but where the outcome is unknown.
int ckpt_replace_commit(struct ckpt_step *step, const struct ckpt_commit *how, struct ckpt_step **ret_replaced);

const char *ckpt_replace_hint(int error); // of begin without it; NULL: nothing better is known
