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

// Whether the process writes the array file n, in the top directory of the staged step (NULL: none), a second time: it has closed it
// whole, commit_quiet or longer ago, no profile claims the step, and nothing else in it is being written. Reads the file's ends.
bool unstage_by_second_write(struct ckpt_fs *fs, struct node *n, struct ckpt_step *step, pid_t process);
struct handle;
// At the release of a handle that was opened so, but without O_TRUNC: if it has written anything, and the file is whole, the step becomes
// a plain folder, on a thread of its own.
void unstage_if_rewritten(struct ckpt_fs *fs, const struct handle *h);
// Then the step of c->node, or with `other` of c->other, becomes a plain folder, if it can, and the call is run once more, on a thread of
// its own.
void unstage_then(struct call *c, bool other);

// A directory of this name, made in the directory dir of a staged step or renamed to it, shows that the step is a run's folder.
bool unstage_is_shown_by(struct ckpt_fs *fs, struct node *dir, struct ckpt_step *step, const char *name);
