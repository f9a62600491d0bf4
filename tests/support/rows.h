// An index for tests, with manifests whose bytes follow from their number, so that each can be checked by itself. They
// have 400 bytes, in a leaf of the tree, or CKPT_ROW_BYTES_MAX, in pages of their own.
//
// What must not fail ends the test. Threads: any, on one index.
#pragma once

#include "tests/support/suite.h"

#include "core/index/index.h"

enum { CKPT_ROW_BYTES_MAX = 3000 };

// Where an index can be made; nothing is there yet. ret_dir has PATH_MAX bytes.
void ckpt_rows_dir(char *ret_dir);
// The path of a file in it. ret_path has PATH_MAX bytes.
void ckpt_rows_path(const char *dir, const char *name, char *ret_path);
// A new index of CKPT_SAMPLE_STORE with rows 0 to count - 1, open.
struct ckpt_index *ckpt_rows_make(const char *dir, uint32_t count);

int ckpt_row_put(struct ckpt_index *to, uint32_t i);
// 0: the manifest is there and right; -ENOENT; -EBADMSG. Any other answer ends the test.
int ckpt_row_check(struct ckpt_index *from, uint32_t i);
// How many manifests there are, or -errno.
int ckpt_rows_count(struct ckpt_index *from);
