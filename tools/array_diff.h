// Which arrays of two steps differ, and by how much: whatever formats their files have.
//
// Arrays are found by NAME; by TREE:NAME where a step has several of the name. A number in a tree that is the step's own is no difference.
// Nothing is read of arrays whose bytes lie in files that are known to be the same, nor of those with one digest (core/array/array_digest.h), whose
// files are as they were when it was made.
//
// Threads: one. Blocks as the files do. Memory: that of two readers (gather.h), and a name for each array.
#pragma once

#include "core/array/catalog.h"
#include "core/array/difference.h"

struct ckpt_array_diff_side {
	const struct ckpt_catalog *catalog;
	const struct ckpt_catalog_files *files;
	int64_t number; // of the step; -1: it has none
};

struct ckpt_array_told {
	char mark;                              // '+' b alone has it, '-' a alone, '~' both; '?' it cannot be compared
	const char *name;                       // NAME or TREE:NAME
	const struct ckpt_catalog_array *a, *b; // NULL: that side has none
	const struct ckpt_difference *by;       // of '~': NULL, no element can be compared with another
	const char *why;                        // of '?'
};

struct ckpt_array_diff {
	struct ckpt_array_diff_side a, b;
	bool (*is_same_file)(void *arg, const char *path); // both steps have it at this path, with the same bytes
	// The bytes of this file of a side, 'a' or 'b', are read as they were sealed, or not at all.
	bool (*is_as_sealed)(void *arg, char side, const char *path);
	void (*tell)(void *arg, const struct ckpt_array_told *told); // in the order of names
	void (*progress)(void *arg, uint64_t bytes);                 // that were compared since the last call
	void *arg;
	// Results.
	uint64_t same;      // counts those that are
	char failed;        // after an error: 'a', 'b', or 0
	char *failed_array; // its name; malloc'ed
};

// 0, -ENOMEM, what the files say.
int ckpt_array_diff(struct ckpt_array_diff *d);
