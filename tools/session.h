// The unfinished steps of a store, as the rows of `ckptfs sessions`, and the one that a word of the user means.
//
// Ownership: *ret_rows is the caller's, rows are borrowed from it. Threads: one. Reading blocks on the disk, or on the process that
// has the store mounted. Failures are said on stderr here, once; the functions that can fail return 0 or an exit status.
#pragma once

#include <jansson.h>

int ckpt_sessions_read(const char *store, json_t **ret_rows);
// By its id or its name; of several of one name the staged one is meant.
int ckpt_sessions_find(const json_t *rows, const char *word, const char *store, json_t **ret_row);
// A field of a row that is text; NULL: null, or absent.
const char *ckpt_session_text(const json_t *row, const char *key);
