// Conditions on rows and their order, for `ls --where` and `--sort`.
//
//   expression = condition { "and" condition }
//   condition  = field ( "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" ) value
//   field      = a field of the JSON row, or extras.NAME, metrics.NAME (deeper with more dots); else NAME is metrics.NAME
//   value      = word | "text" | 'text'
//
// Numbers are compared as numbers, bytes also as sizes (64MiB), times as times, all else as text. A field that a row
// lacks or that is null makes every condition false but !=. Threads: any. Nothing blocks.
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct ckpt_where;

// fields: what rows have, ending in NULL. -EINVAL: *ret_why says what is wrong and where (malloc'ed).
int ckpt_where_parse(const char *text, const char *const *fields, struct ckpt_where **ret_where, char **ret_why);
void ckpt_where_free(struct ckpt_where *w); // NULL is fine
bool ckpt_where_holds(const struct ckpt_where *w, const json_t *row);

// The field that key names, malloc'ed; NULL: none, and *ret_hint (malloc'ed) is what to write instead.
char *ckpt_where_field(const char *key, const char *const *fields, char **ret_hint);
// Whether the field is one of a step's metadata, which costs reading its record; and whether one of those that w (or NULL) asks is.
bool ckpt_where_is_metadata(const char *field);
bool ckpt_where_asks_metadata(const struct ckpt_where *w);
// Whether one of them has this metric, which was called by its name alone; where there are none, whether the name is near to none of
// the fields. And one of w (NULL: nothing) for which that is not so, or NULL.
bool ckpt_where_is_there(const json_t *rows, const char *metric, const char *const *fields);
const char *ckpt_where_missing(const struct ckpt_where *w, const json_t *rows, const char *const *fields);
// The rows of an array in the order of this field: numbers by size, texts by name with numbers in them by value (step-2
// before step-10), null last; equal ones stay as they are. NULL key: as they are. reverse: the other way round.
void ckpt_where_sort(json_t *rows, const char *key, bool reverse);
