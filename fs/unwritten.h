// Files of committed steps that are open for writing, as touch(1) opens them, and that nobody has written yet.
//
// An open changes nothing: the step stays listed. It is led to another node of the same name, the file's twin (look_again.h), which
// the daemon reads and writes; others read the file itself, in passthrough or not. The first write, truncation or fallocate
// reopens the step (core/commit/reopen.h) and gives the file's name a copy there (copy_up.h). From then on all who have the twin
// open have that copy, and who has the file itself open reads on what it opened.
//
// Threads: any. unwritten_begin() blocks for as long as the bytes take.
#pragma once

#include "fs/call.h"
#include "fs/handle.h"

// For call.committed: an open of a file of the step. And for an open of its twin, wherever that is by now. CALL_REOPENS: not like this, since it truncates, or cannot be led to the twin.
int unwritten_open(struct call *c);

static inline bool unwritten_is(const struct handle *h)
{
	return __atomic_load_n(&h->unwritten, __ATOMIC_ACQUIRE);
}

// The first change through the handle. 0: it may be made, in the copy. A file that lost its name is nobody's, as on a disk.
int unwritten_begin(struct ckpt_fs *fs, struct handle *h);

// The file's name got a copy in this step (a reopened one), which is open at fd: who has the twin open has that from now on, and the
// twin is that of the copy's node; NULL: the file has no name, or keeps it.
int unwritten_follow(struct ckpt_fs *fs, struct node *n, struct node *copy, struct ckpt_step *step, int fd);
bool unwritten_any(const struct node *n);

// Around the twin's acquisition, and at the release.
int unwritten_enlist(struct handle *h);
void unwritten_strike_off(struct handle *h);
