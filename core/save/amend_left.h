// Files that a verb has written for a change of several files (amend.h) that did not come: it was refused, or the verb was killed before it asked.
// No version names them. The next such change of the step removes them, whatever becomes of it itself.
//
// Whoever writes such files holds a shared flock(2) of the session's directory until he asks: then they are the asked process's. One asks at a
// time: the clean-up of another's change would take the files, as no version names them yet.
// Threads: any. Blocks on the disk.
#pragma once

#include "core/step/amending.h"

// A new name for one. Errors of the random source.
int ckpt_amend_left_name(char ret_raw[CKPT_AMENDING_RAW_MAX]);
int ckpt_amend_left_hold(int dirfd); // 0, -errno; close(2) ends it
// Waits until no other asks, and lets go of that directory: a descriptor, which is closed once there is an answer. -EINTR, ...: it is still held.
// The asked process waits for neither lock.
int ckpt_amend_left_ask(const struct ckpt_store *s, int dirfd);
// Under acts_lock, of a committed step whose last amend is known. What cannot be told to be left over stays.
void ckpt_amend_left_remove(struct ckpt_step *step);
