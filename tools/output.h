// What the program says: the answer on stdout, as a table or as one JSON document; failures, progress and messages on
// stderr.
//
// Calling sequence: verbs call what they need, in any order; main() ends with ckpt_output_finish(), which completes what
// --json promises and notices a stdout that could not be written.
// Ownership: ckpt_output_json() takes its document; tables copy what they are given. Threads: one. Everything may block
// on the terminal or pipe behind it.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How the verb was asked to speak; ckpt_verb_parse() sets it.
struct ckpt_output {
	bool json, quiet;
	int verbose;
};
extern struct ckpt_output ckpt_output;

// "ckptfs: WHAT: WHY" and, where hint is not NULL, "hint: HINT". Returns 1, the exit status of failure.
__attribute__((format(printf, 3, 4))) int ckpt_fail(const char *what, const char *hint, const char *why, ...);
// The same with the text of -errno; where hint is NULL, with what is known of that errno.
int ckpt_fail_errno(const char *what, const char *hint, int error);
// Wrong usage: the same form; returns CKPT_EXIT_USAGE.
__attribute__((format(printf, 3, 4))) int ckpt_usage(const char *what, const char *hint, const char *why, ...);
// Before something is destroyed: a terminal is asked, elsewhere --yes must have said so. 0, or an exit status.
__attribute__((format(printf, 3, 4))) int ckpt_confirm(const char *what, bool yes, const char *question, ...);
// What the process that has the store mounted said: 0, or its refusal, told as our own.
int ckpt_answer_fail(const char *what, const char *answer);
// A line for people on stderr: not with --quiet; verbose ones only with -v.
__attribute__((format(printf, 1, 2))) void ckpt_note(const char *text, ...);
__attribute__((format(printf, 1, 2))) void ckpt_note_verbose(const char *text, ...);

// The one document of --json.
void ckpt_output_json(json_t *document);
// The exit status after all: prints {"ok":true} or {"error","hint"} where --json has had no document, flushes stdout.
int ckpt_output_finish(int status);

// A JSON string of any bytes: what is not UTF-8 becomes U+FFFD; NULL becomes null.
json_t *ckpt_json_text(const char *text);
// RFC 3339 UTC with nanoseconds; 0 becomes null.
json_t *ckpt_json_time(int64_t time_ns);

// A table for people. Columns are added first, then rows of as many cells.
struct ckpt_table;
enum ckpt_align { CKPT_LEFT, CKPT_RIGHT };
struct ckpt_table *ckpt_table_new(void); // never NULL: without memory the process ends
void ckpt_table_column(struct ckpt_table *t, const char *title, enum ckpt_align align);
void ckpt_table_row(struct ckpt_table *t, const char *const *cells);
void ckpt_table_print(struct ckpt_table *t); // and frees it

// True when stderr or stdout is a terminal that may be coloured.
bool ckpt_output_colour(int fd);

// Ends the process when an allocation for its own words failed: nothing else could be said.
void *ckpt_need(void *memory);
__attribute__((format(printf, 1, 2))) char *ckpt_text(const char *format, ...); // malloc'ed, never NULL
