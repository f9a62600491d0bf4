// The folders and plain files of a store with a remote, which all its nodes share (REMOTE.md section 5).
//
// They are live files in tree/ on each node. What a node changes there is found by a look at the disk (tree_plan.h), or taken at once when
// a file is closed, and waits (tree_queue.h) to be put into the remote's log, behind the steps that were saved before. Each entry that
// another node has put there is carried out in tree/, in the order of the log: so who sees a tracker sees the step that it names.
//
// Ownership: the remote has one. Threads: _touch, _take, _waits any; the rest that of the remote, or who opens it. Blocks on the disk.
#pragma once

#include "core/log/log.h"
#include "core/step/store.h"

struct ckpt_tree;
struct ckpt_failures;

// failures: of the remote, for as long as it has the tree. 0, -ENOMEM.
int ckpt_tree_new(struct ckpt_store *s, const char *node, struct ckpt_failures *failures, struct ckpt_tree **ret_tree);
void ckpt_tree_free(struct ckpt_tree *t); // NULL is fine

// Before _push and _carry_out: how large files are put and fetched.
struct ckpt_tree_pace;
void ckpt_tree_pace(struct ckpt_tree *t, const struct ckpt_tree_pace *pace);

// Something in tree/ has changed, or may have: it is looked at in a moment. NULL is fine.
void ckpt_tree_touch(struct ckpt_tree *t);
// The same of the file with this name: it has a new content, which is taken, or has gone. NULL is fine.
void ckpt_tree_take_name(struct ckpt_tree *t, int dirfd, const char *name);
// The number of changes that wait to be pushed, as far as they are known; at least one until all was looked at.
size_t ckpt_tree_waits(struct ckpt_tree *t);

// Calls fn for each change that waits, in order, under a lock: it must not block. NULL is fine.
struct ckpt_tree_item;
typedef void ckpt_tree_fn(void *arg, const struct ckpt_tree_item *item);
void ckpt_tree_each(struct ckpt_tree *t, ckpt_tree_fn *fn, void *arg);

// Calls fn for each file or link of another node whose content was not carried out here, once that was tried (_carry_out): it could not be
// fetched, or something else has its name. The path is borrowed, and fn must not block. 0, -ENOMEM.
typedef void ckpt_tree_path_fn(void *arg, const char *path);
int ckpt_tree_lacks(struct ckpt_tree *t, ckpt_tree_path_fn *fn, void *arg);

// After each entry of the remote's log that says something of the tree.
void ckpt_tree_carry_out(struct ckpt_tree *t);
// Puts one entry into the log, of changes that were made before the act `before`; UINT64_MAX: of all. now: it looks at the disk first,
// whenever that was done last. 1: read the log; 0: there is nothing to push now; else as of ckpt_log_append().
int ckpt_tree_push(struct ckpt_tree *t, struct ckpt_log *log, uint64_t before, bool now);
bool ckpt_tree_holds_deletions(
	struct ckpt_tree *t); // of steps: a file that was written before them is to be pushed first
