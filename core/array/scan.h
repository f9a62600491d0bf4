// The kinds of some elements: NaN, infinite, zero. Halves, bfloat16, floats and doubles are looked at sixteen bytes at a time, as fast as memory
// gives them; the other types as numbers (number.h).
//
// Calling sequence: ckpt_scan_begin(), ckpt_scan_add() for each part of an array.
// Threads: any. Nothing blocks, nothing fails.
#pragma once

#include "core/array/array.h"

struct ckpt_scan {
	enum ckpt_dtype dtype; // that is a number
	uint64_t nan, inf;
	bool all_zero; // of what was added; negative zeros are zeros
};

void ckpt_scan_begin(struct ckpt_scan *s, enum ckpt_dtype dtype);
// count elements in native order; numbers has room for as many.
void ckpt_scan_add(struct ckpt_scan *s, const void *elements, size_t count, double *numbers);
