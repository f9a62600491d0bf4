// By how much the elements of two arrays differ.
//
//	struct ckpt_difference d = {0}; ckpt_difference_add() for each run of both; the sums are in d
//
// An element differs if its bytes do; where the types differ, if its value does (two NaNs are one value). Values of different types are
// compared exactly, but 64-bit integers with floating numbers, which are rounded.
//
// Threads: any, one for one struct. Nothing blocks.
#pragma once

#include "core/array/array.h"

struct ckpt_difference {
	uint64_t elements; // that were compared
	uint64_t differ;
	// Of those that differ. An element of the first two kinds has part in none of the maxima. Parts of a complex number are numbers.
	uint64_t nan; // NaN in one of the two alone
	uint64_t inf; // infinite in one of the two alone, or of the other sign
	double max_abs;
	// Between codes of the type with fewer bits of mantissa, to which the others are rounded.
	uint64_t max_ulp;
};

// Elements of these types have values that can be compared: both are real numbers, or both complex.
bool ckpt_difference_is_known(enum ckpt_dtype a, enum ckpt_dtype b);
// max_ulp means something: none of the two is of integers.
bool ckpt_difference_has_ulp(enum ckpt_dtype a, enum ckpt_dtype b);
// count elements of each, in native order.
void ckpt_difference_add(struct ckpt_difference *d, enum ckpt_dtype a, const void *x, enum ckpt_dtype b, const void *y,
			 size_t count);
