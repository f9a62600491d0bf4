// The names by which frameworks complete a step: which files, renames and removals may do so (core/profile/profile.h).
//
// Threads: any. Nothing blocks: the names are all that it looks at.
#pragma once

#include "fs/fs.h"

// Whether a file of this name in this directory is one whose close may complete a step or be late, by the names alone. Such a file
// is served by the daemon while it is written (amend.h): its close is the commit. step is that of dir, NULL in the plain tree.
bool complete_watches_close(struct ckpt_fs *fs, const struct node *dir, const struct ckpt_step *step, const char *name);
// Whether it is one that says which step beside it is complete.
bool complete_names_step(struct ckpt_fs *fs, const struct node *dir, const char *name);
bool complete_watches_node(struct ckpt_fs *fs, struct node *n); // the same of a file, wherever it is
// Whether it is one that other ranks write late: the daemon serves it, so that its close can add it to the step.
bool complete_is_late(struct ckpt_fs *fs, struct node *n);
// The same of a rename to this name, and of an unlink.
bool complete_watches_rename(struct ckpt_fs *fs, const struct node *dir, const char *from, const char *name);
bool complete_watches_unlink(struct ckpt_fs *fs, const struct node *dir, const char *name);
