// Elements as numbers.
//
// Half precision and bfloat16 as IEEE 754 and its upper half have them. 8-bit floats: OCP's OFP8 specification (e4m3fn: no infinity, one NaN;
// e5m2) and MX specification (e8m0), and the forms of "8-bit Numerical Formats for Deep Neural Networks" (fnuz: no negative
// zero, whose code is the NaN). Integers of 64 bits are rounded.
//
// Threads: any. Nothing blocks.
#pragma once

#include "core/array/array.h"

// Of a type with an order: no complex number, nothing that shares a byte.
bool ckpt_is_number(enum ckpt_dtype dtype);
// count elements in native order, of a type that is a number.
void ckpt_numbers(enum ckpt_dtype dtype, const void *elements, size_t count, double *into);
