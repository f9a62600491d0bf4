// .arrays/index.json: the arrays of a step as one JSON document, a row (array_row.h) a line, and behind them a row for each fault of a file
// whose arrays are not there. It is never in memory as a whole: rows are made as they are read. Its size is known from the beginning.
//
// Ownership: the caller's; the catalog lives as long. Threads: one reader at a time, as the row that was made last is kept. Blocks: never
// on I/O. Memory: 8 bytes for each array, and the text of the longest row.
#pragma once

#include "core/array/catalog.h"

#include <sys/types.h>

struct ckpt_array_index;

int ckpt_array_index_new(const struct ckpt_catalog *c, struct ckpt_array_index **ret_index); // 0, -ENOMEM
void ckpt_array_index_free(struct ckpt_array_index *x);                                      // NULL is fine
uint64_t ckpt_array_index_bytes(const struct ckpt_array_index *x);
ssize_t ckpt_array_index_read(struct ckpt_array_index *x, void *buf, size_t len, uint64_t offset); // as pread(2)
