// The header of a .npy file (NumPy's numpy/lib/format.py, version 1.0), for elements in C order and little-endian.
//
// Elements of types that NumPy does not have are opaque: bfloat16 is <V2, the 8-bit floats are <V1; `.view(ml_dtypes...)` of what is loaded
// gives the numbers. Threads: any. Nothing blocks.
#pragma once

#include "core/array/array.h"

#define CKPT_NPY_WRITTEN_MAX (CKPT_ARRAY_DIMS_MAX * 22 + 256)

// The bytes that it has, a multiple of 64. 0: there is no such header.
size_t ckpt_npy_header(enum ckpt_dtype dtype, unsigned ndim, const uint64_t *shape, uint8_t out[CKPT_NPY_WRITTEN_MAX]);
