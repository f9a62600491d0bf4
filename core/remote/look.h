// A look at a remote's log by a program that has no work directory of it: what it has, and whether it can be read to its end.
//
// Changes nothing. Threads: any. Blocks on the objects: for a list of the snapshots, the newest one, and each entry behind it.
#pragma once

#include "core/objects/objects.h"

struct ckpt_remote_seen {
	uint64_t format;
	uint64_t entries;  // that can be read, from the first one on
	uint64_t snapshot; // the entry of the newest one; 0: there is none
	int64_t snapshot_ns;
	uint64_t unread; // the entry that cannot be read, with `error`; 0
	int error;       // -EBADMSG damaged, -ENOTSUP newer, -ESTALE trimmed, or of the objects: it may be there
	uint64_t steps;  // that are listed
};

// 0, also with an entry that cannot be read; -ENOENT: there is no store; -EMEDIUMTYPE: there is something else; -ENOTSUP: a newer one;
// -ENOMEM, and errors of the objects.
int ckpt_remote_look(struct ckpt_objects *objects, struct ckpt_remote_seen *ret_seen);
