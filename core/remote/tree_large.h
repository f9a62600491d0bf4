// The content of a plain file that is too large for the log: chunks in packs, and a manifest of the one file that says where they are
// (FORMAT.md section 10). Chunks of the version before that are still in it are not put again.
//
// Threads: any. Blocks on the file, and on the network. Memory: a pack in the making, and some chunks. Errors: those of the objects, and
// those named here.
#pragma once

#include "core/objects/objects.h"
#include "core/state/act.h"

// Asked after each chunk; false: -EINTR.
struct ckpt_tree_pace {
	bool (*go_on)(void *arg, uint64_t bytes);
	void *arg;
};

// Reads the file from fd, and puts what `there` has not got. before: NULL, or the version before; one that cannot be read is of no use.
// -EAGAIN: the file has changed meanwhile.
int ckpt_tree_large_put(struct ckpt_objects *there, int fd, const struct ckpt_plain_large *before,
			const struct ckpt_tree_pace *pace, struct ckpt_plain_large *ret);
// Into the empty file fd. -EBADMSG: what is there are not these bytes.
int ckpt_tree_large_get(struct ckpt_objects *there, const struct ckpt_plain_large *is, int fd,
			const struct ckpt_tree_pace *pace);
