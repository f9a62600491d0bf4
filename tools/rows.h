// Steps, files, stores and sessions as JSON objects with the fields that the command line promises. Tables for people
// are made of the same rows, so that both say the same.
//
// Each function returns a new reference, never NULL. What cannot be read is null, and said by nobody but `verify`.
// Threads: one. Everything may block on the disk.
#pragma once

#include "tools/listing.h"

#include <jansson.h>

// A committed or deleted step, as `ls` has it. metadata: also read extras and metrics, which costs reading the record.
json_t *ckpt_row_step(const struct ckpt_listing *l, struct ckpt_step *step, bool metadata);
// The same with "profile", "event", "versions".
json_t *ckpt_row_step_full(const struct ckpt_listing *l, struct ckpt_step *step);
// The version whose record says the most of its files (core/step/older.h).
json_t *ckpt_row_version(const struct ckpt_listing *l, const struct ckpt_at_version *at);
// The same of the deleted step i of a ckpt_deleted_list, under the name that it has in the trash.
json_t *ckpt_row_deleted(const struct ckpt_listing *l, struct ckpt_step *const *steps, size_t i, bool metadata);
// A staged step as `ls` has it, of a row of `sessions`.
json_t *ckpt_row_staged(const json_t *session);
// An entry of a manifest.
json_t *ckpt_row_file(const struct ckpt_manifest *m, uint32_t index);
json_t *ckpt_row_store(const struct ckpt_listing *l);

// All sessions: from the process that has the store mounted, else as they lie in the store. 0 or an exit status, said.
int ckpt_rows_sessions(const struct ckpt_listing *l, json_t **ret_rows);
// How many of them are staged, live or interrupted, in this folder ("": in all); 0 also where nobody says so within a second.
size_t ckpt_rows_staged_count(const struct ckpt_listing *l, const char *folder);
