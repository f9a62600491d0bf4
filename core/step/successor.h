// Steps whose place another node has taken by an edit of them. An edit is saved as a step of its own, which takes the place of the one that
// it began with, and has its directory's number and its place in the order of commits.
//
// Threads: any; _follow: that which holds store->acts_lock. Nothing blocks.
#pragma once

#include "core/step/step.h"

// The listed step that is the same directory after an edit, by another node or by this one, with a reference. NULL: there is none; it was
// deleted, or saved over.
struct ckpt_step *ckpt_successor_find(struct ckpt_step *step);
// Two steps are one directory, before and after edits.
bool ckpt_successor_is(const struct ckpt_step *a, const struct ckpt_step *b);

// For follow.c, once the steps are as the log says: what is being changed here (core/save/reopen.h) has the place of the successor of its
// base from now on, and the name that its base has by now. 0; 1: a commit stands in the way, which is to end first; -ENOMEM.
int ckpt_successor_follow(struct ckpt_store *s);
