// Coverage of a region by boxes: how many of its elements are in no box, and how many in more than one.
//
// A sweep, one dimension after the other: between two neighbouring ends of boxes nothing changes, so that each part of the first dimension asks
// the same question of the boxes that are there, with one dimension less. For a grid of n boxes it takes some n steps for each
// dimension. CKPT_COVER_STEPS_MAX bounds what boxes from outside can ask for.
//
// Threads: any. Memory: 4 bytes for each box and dimension at most. Nothing blocks.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CKPT_COVER_STEPS_MAX (UINT64_C(1) << 27)

struct ckpt_box {
	const uint64_t *start, *extent; // ndim numbers each; start + extent does not overflow
};

struct ckpt_covered {
	uint64_t missing; // elements in no box
	uint64_t doubled; // times that an element is in one more
};

// Parts of boxes that are outside of the region do not count; the elements of the region fit in 64 bits. 0; -E2BIG: more steps than
// are allowed; -ENOMEM.
int ckpt_cover(const struct ckpt_box *boxes, size_t count, unsigned ndim, const struct ckpt_box *region,
	       struct ckpt_covered *ret_covered);
