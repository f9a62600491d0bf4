// An array of a catalog as JSON, with the fields that `ckptfs arrays --json` and .arrays/index.json promise:
//
//	{"name", "tree", "dtype", "shape", "bytes", "format", "pieces": [{"file", "offset", "bytes", "start", "extent"[, "codecs"]}],
//	 "why"}
//
// dtype as ml_dtypes and NumPy name it, null where it is not known; bytes of its elements; why: it cannot be read, or null. A
// name that is not UTF-8 has U+FFFD where it is not.
//
// Threads: any. Nothing blocks. NULL: no memory.
#pragma once

#include "core/array/catalog.h"

#include <jansson.h>

json_t *ckpt_array_row(const struct ckpt_catalog *c, size_t i);
const char *ckpt_array_dtype(enum ckpt_dtype dtype); // "bfloat16"; NULL: not known
uint64_t ckpt_array_bytes(const struct ckpt_catalog_array *a);
