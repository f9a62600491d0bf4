// An array of a catalog as JSON, with the fields that `ckptfs arrays --json` and .arrays/index.json promise:
//
//	{"name", "tree", "dtype", "shape", "bytes", "format", "pieces": [{"file", "offset", "bytes", "start", "extent"[, "codecs"]}],
//	 "why", "digest"}
//
// dtype as ml_dtypes and NumPy name it, null where it is not known; bytes of its elements; why: it cannot be read, or null. A
// name that is not UTF-8 has U+FFFD where it is not. digest: of its elements (core/array/array_digest.h), 64 hex digits, or null where nobody has
// read them.
//
// Memory: a row as text takes as much as it is long; as a value, several times as much where the array has many pieces.
// Threads: any. Nothing blocks. NULL: no memory.
#pragma once

#include "core/array/catalog.h"

#include <jansson.h>

// A text that grows; {0} is the empty one. Reused, it keeps its memory. It has no NUL behind it.
struct ckpt_row_text {
	char *at;
	size_t len, cap;
};
int ckpt_row_text_add(struct ckpt_row_text *t, const char *bytes, size_t len); // 0, -ENOMEM
void ckpt_row_text_done(struct ckpt_row_text *t);

// The row is added to the text, in one line without its end. 0, -ENOMEM.
int ckpt_array_row_text(const struct ckpt_catalog *c, size_t i, struct ckpt_row_text *t);
// The same of a fault of the catalog: what a file has in it that is in no row.
//
//	{"name": null, "tree": null, "file", "field", "why"}
int ckpt_array_fault_text(const struct ckpt_catalog *c, size_t i, struct ckpt_row_text *t);
json_t *ckpt_array_row(const struct ckpt_catalog *c, size_t i);
json_t *ckpt_array_head(const struct ckpt_catalog *c, size_t i); // the same, where "pieces" is their number
uint64_t ckpt_array_bytes(const struct ckpt_catalog_array *a);   // INT64_MAX: more than a number has
