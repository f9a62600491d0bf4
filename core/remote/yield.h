// Names that are staged here, and that complete steps of other nodes have in the log. An unfinished save that nobody goes on with lets its
// name go, so that the complete step is listed: at the next mount it would be the same. Its files are kept, as a left-over session.
//
// Calling sequence: _names(), under acts_lock, when the steps that follow are behind; the steps follow once more; _tell(), without locks.
// Threads: that of the remote. Ownership: the steps are the list's, until _tell().
#pragma once

#include "core/step/step.h"

struct ckpt_yielded {
	struct ckpt_step **steps;
	size_t count;
};

// True: there is one, and its name is free. Blocks as ckpt_makers_ask(). Without memory there is none, and the next turn tries again.
bool ckpt_yield_names(struct ckpt_store *s, struct ckpt_yielded *ret_yielded);
// The kernel looks the names up again, and the error log says where the files are. Blocks on the disk.
void ckpt_yield_tell(struct ckpt_yielded *y);
