// Which arrays of two files differ: found by name, and the same where dtype, shape, order and bytes are, wherever in the file
// they stand and whatever stands around them.
//
// Threads: one. Blocks on the disk: what both have is read, until a byte differs.
#pragma once

#include "core/array/array.h"

#define CKPT_ARRAY_DIFF_PIECE (1u << 20)

struct ckpt_array_diff {
	struct ckpt_source a, b;
	const char *path; // of both
	char *buffer;     // two pieces
	// '+' b alone has it, '-' a alone; '~' both: array is that of b. In the order of their names.
	void (*tell)(void *arg, char mark, const struct ckpt_array *array, const struct ckpt_array *was);
	void (*progress)(void *arg, uint64_t bytes); // that were compared since the last call
	void *arg;
	uint64_t same; // counts those that are
};

// 0; 1: one of them is of no known format, and nothing is told; -errno.
int ckpt_array_diff(struct ckpt_array_diff *d);

// "f32 [2, 3]", "? 100 bytes": malloc'ed.
char *ckpt_array_kind(const struct ckpt_array *array);
// A name as a terminal may have it: malloc'ed, with control characters as \xNN.
char *ckpt_array_name(const struct ckpt_array *array);
