// A run's folder is not a step: staged directories of the mount that become plain folders, visible with all that is in them.
// ckptfs-steps(7) says when.
//
// Open files and nodes stay what they are; a writer goes on.
// Threads: any, but not those that serve the kernel: the changes of the step that are under way end first.
#pragma once

#include "fs/call.h"

// The staged step becomes a plain folder under its own name, or as `name` in `dir`, where an empty directory is replaced. -EBUSY: it is
// being committed; -EINVAL: it has reopened a committed step; -ESTALE, -EROFS: it is none (any more); -EEXIST, -ENOTEMPTY, ...
int unstage(struct ckpt_fs *fs, struct ckpt_step *step);
int unstage_as(struct ckpt_fs *fs, struct ckpt_step *step, struct node *dir, const char *name);

// For ckpt_store.unstage; arg is the fs.
int unstage_by_looker(void *arg, struct ckpt_step *step, int64_t touched_ns, bool no_arrays);

// A directory of this name, made in the directory dir of a staged step or renamed to it, shows that the step is a run's folder.
bool unstage_is_shown_by(struct ckpt_fs *fs, struct node *dir, struct ckpt_step *step, const char *name);
