// The listed steps as clients know them, before the steps follow entries of other nodes: for telling clients what has changed since.
//
// Calling sequence: _new() before the steps follow, _add_changed() after; then _renew(), _tell() and _tell_lost_names(), each once; _free().
// Ownership: the caller's; it holds references of the steps. Threads: one at a time. Blocks: _tell, on manifests and on the kernel.
#pragma once

#include <stdbool.h>

struct ckpt_known;
struct ckpt_store;
struct ckpt_step;

// 0; -ENOMEM. Under acts_lock.
int ckpt_known_new(struct ckpt_store *s, struct ckpt_known **ret_known);
// Puts those steps that have changed since behind others in a list, which has all that is yet to be told; NULL is an empty one. The
// rest is freed. False: no step has changed. Under acts_lock.
bool ckpt_known_add_changed(struct ckpt_known **list, struct ckpt_known *k);
// Files of a step are those of an edit by another node from now on, for clients who have them open, too; and so are changes of the step that
// are no version yet. Under acts_lock: whoever waits for that finds what is there now. Here and below k is a list.
void ckpt_known_renew(struct ckpt_known *k);
// Tells clients of steps that are gone, and of files that have changed. Without locks.
void ckpt_known_tell(const struct ckpt_known *k);
// Adds a line to the error log for each step that has lost its name to another node's.
void ckpt_known_tell_lost_names(const struct ckpt_known *k);
void ckpt_known_free(struct ckpt_known **k); // the list
