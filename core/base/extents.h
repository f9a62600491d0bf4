// Parts of a range of bytes, as they are added in any order: when they are all of it.
//
// Calling sequence: zeroed; ckpt_extents_add() as often as wanted; ckpt_extents_done().
// Ownership: the caller's. Threads: one at a time. Nothing blocks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_extent {
	uint64_t begin, end; // the first byte behind it
};

// In order; no two touch.
struct ckpt_extents {
	struct ckpt_extent *list;
	size_t count, cap;
};

// An empty part is none. 0; -E2BIG: there would be more than count_max parts, -ENOMEM: then it was not added.
int ckpt_extents_add(struct ckpt_extents *s, uint64_t begin, uint64_t end, size_t count_max);
bool ckpt_extents_cover(const struct ckpt_extents *s, uint64_t begin, uint64_t end); // an empty range: always
void ckpt_extents_done(struct ckpt_extents *s);                                      // it is empty again
