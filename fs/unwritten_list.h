// Clients that have the twin of a file open for writing and have not written (unwritten.h): a list at the file's node. All of them follow the twin
// to the file that it becomes.
//
// Threads: any. Nothing blocks but opening that file.
#pragma once

#include "fs/handle.h"

static inline bool unwritten_is(const struct handle *h)
{
	return __atomic_load_n(&h->unwritten, __ATOMIC_ACQUIRE);
}

static inline bool unwritten_any(const struct node *n)
{
	struct node_use *use = node_used(n);

	return use && __atomic_load_n(&use->unwritten, __ATOMIC_RELAXED);
}

// Around the twin's acquisition, and at the release. -EAGAIN: it is no twin any more.
int unwritten_enlist(struct handle *h);
void unwritten_strike_off(struct handle *h);

// n's name has another file, which is open at fd, in a reopened step or (NULL) the plain tree, and n's twin (taken; NULL: it had none)
// is its node now (node_adopt_twin_locked): who has it open has that file.
int unwritten_hand_over(struct ckpt_fs *fs, struct node *n, struct node *twin, struct ckpt_step *step, int fd);
// The same of who writes a file that has no name: the twin is nobody's node but theirs.
int unwritten_follow(struct node *n, struct node *twin, struct ckpt_step *step, int fd);
