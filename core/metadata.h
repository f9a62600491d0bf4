// The metadata that a finalize marker carries: JSON of a small, known form.
//
//   { "temporary": bool, "extras": object, "metrics": object of numbers, "world_size": integer >= 1 }
//
// All fields may be absent; others are refused, because a misspelt field would be lost in silence.
// Threads: any. Nothing blocks.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// text is empty (white space counts as empty) or one such object, at most CKPT_METADATA_BYTES_MAX bytes. *ret_json is
// its canonical form (sorted, compact), malloc'ed, or NULL for empty. -EINVAL and -EFBIG: *ret_why says what is wrong
// and where (malloc'ed, may be NULL). -ENOMEM.
int ckpt_metadata_parse(const char *text, size_t len, char **ret_json, char **ret_why);
int ckpt_metadata_temporary(const char *json, bool *ret_temporary); // of a canonical form; NULL: false. 0, -ENOMEM
