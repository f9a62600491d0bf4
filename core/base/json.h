// JSON as text: read from a disk or a client, and written, with jansson.
//
// jansson says of a text that it had no memory for that it is no JSON, or drops a part of it and says nothing. What is asked here
// knows better.
// Threads: any. Nothing blocks.
#pragma once

#include <jansson.h>
#include <stddef.h>

// flags and error (may be NULL) as json_loadb() has them. 0; -EINVAL: it is no JSON; -ENOMEM. *ret_json is the caller's, and NULL
// on failure.
int ckpt_json_load(const char *text, size_t len, size_t flags, json_error_t *error, json_t **ret_json);
// Before that: Python writes numbers that JSON does not have, NaN and Infinity. They become strings, empty ones, in place.
size_t ckpt_json_tame(char *text, size_t len); // how many there were
// What is made of parts between these two calls, as malloc'ed text; takes json. NULL: no memory, for the parts (json may be NULL)
// or the text.
void ckpt_json_begin(void);
char *ckpt_json_dump(json_t *json, size_t flags);
