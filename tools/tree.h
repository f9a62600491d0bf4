// A tree of files, directories and symlinks, copied into an empty directory: with owners (as root), modes, times, extended
// attributes and hard links, and by reflink where the disk can.
// Threads: one. Blocks on the disk.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ckpt_tree {
	const char *skip;         // this name at the top is left out, or NULL
	const volatile int *stop; // not 0: end with -EINTR
	void (*progress)(uint64_t bytes);
	// Results.
	uint64_t files, bytes;
	char *blamed; // the path that made it fail, malloc'ed, or NULL
};

// What is there, for a bar: its bytes. 0 when it cannot be told.
uint64_t ckpt_tree_bytes(int dirfd);
// 0; -EINVAL something is no file, directory or symlink; errors of a name that a step cannot have (core/record/name.h); -EBUSY a
// file changed while it was copied; -errno. The directory `to` gets the attributes of `from`.
int ckpt_tree_copy(struct ckpt_tree *t, int from, int to);
