// Floating elements as those of another type: rounded to nearest, ties to even, from the exact value. NaN stays NaN, with its sign where
// the type has one; infinity stays, and is NaN where the type has none (e4m3fn, fnuz), as is any number that is too large for it.
//
// Threads: any. Nothing blocks.
#pragma once

#include "core/array/array.h"

// f16, bf16, f32, f64, f8: numbers that are cast. e8m0 is a scale, and is none.
bool ckpt_is_floating(enum ckpt_dtype dtype);
// count elements, in native order. Both types are floating; the buffers do not overlap.
void ckpt_cast(enum ckpt_dtype from, enum ckpt_dtype to, const void *elements, size_t count, void *into);
