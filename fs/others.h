// The plain tree of a store with a remote, which other nodes change, too (core/remote/tree.h).
//
// Threads: any. They block on the disk; others_change also on requests of the kernel: no lock of a request may be held.
#pragma once

#include "core/remote/tree_change.h"
#include "fs/fs.h"

// For ckpt_store_calls.change_tree; arg is the fs.
int others_change(void *arg, const struct ckpt_tree_change *change);
bool others_is_written(void *arg, int dirfd, const char *name); // for is_written
// The file that has this name in a plain folder has a new content, which is taken, or has gone.
void others_tell(struct ckpt_fs *fs, struct node *dir, const char *name);
void others_tell_at(struct ckpt_fs *fs, int dirfd, const char *name);
// The same of a file, by its first name, if it is plain.
void others_tell_node(struct ckpt_fs *fs, struct node *n);
