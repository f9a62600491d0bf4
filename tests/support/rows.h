// An index for tests, with rows whose content follows from their number, so that each can be checked by itself: a
// version and its manifest, of 100 bytes or CKPT_ROW_MANIFEST_BYTES, in the leaf or in pages of its own.
//
// What must not fail ends the test. Threads: any, on one index.
#pragma once

#include "tests/support/suite.h"

#include "core/index/index.h"

enum { CKPT_ROW_MANIFEST_BYTES = 3000 };

// Where an index can be made; nothing is there yet. ret_dir has PATH_MAX bytes.
void ckpt_rows_dir(char *ret_dir);
// The path of a file in it. ret_path has PATH_MAX bytes.
void ckpt_rows_path(const char *dir, const char *name, char *ret_path);
// A new index of CKPT_SAMPLE_STORE with rows 0 to count - 1, open.
struct ckpt_index *ckpt_rows_make(const char *dir, uint32_t count);

void ckpt_row_of(uint32_t i, char ret_key[CKPT_STEP_KEY_MAX], struct ckpt_summary *ret_summary,
		 uint8_t ret_manifest[CKPT_ROW_MANIFEST_BYTES]);
int ckpt_row_put(struct ckpt_index *to, uint32_t i);
// 0: the row is there and right; -ENOENT; -ENODATA, it is there without its manifest; -EBADMSG. Anything else ends the
// test.
int ckpt_row_check(struct ckpt_index *from, uint32_t i);
// What the index has of one version: 0; -ENOENT; -EBADMSG, damage was met before it.
int ckpt_rows_get(struct ckpt_index *from, const char *key, uint32_t version, struct ckpt_summary *ret_summary);
// How many versions there are, or -errno.
int ckpt_rows_count(struct ckpt_index *from);
