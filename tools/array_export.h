// The arrays of a step that a verb writes anew, and how: what export and derive have in common.
//
// Calling sequence: ckpt_array_export_begin(); options; ckpt_array_export_read(), _plan(), _write(); _done(). Threads: one. Blocks on the disk or
// the store. Failures are said on stderr, once; calls return 0 or an exit status.
#pragma once

#include "core/view/array_rules.h"
#include "core/view/export.h"
#include "core/view/step_arrays.h"
#include "tools/listing.h"

#include <jansson.h>

enum { CKPT_KEY_FORMAT = 'f', CKPT_KEY_SHARD = 0x100, CKPT_KEY_ONLY, CKPT_KEY_NOT, CKPT_KEY_DTYPE, CKPT_KEY_PARTIAL };

// Rows of an argp_option table.
#define CKPT_ARRAY_EXPORT_OPTIONS                                                                                      \
	{"format", CKPT_KEY_FORMAT, "FORMAT", 0, "safetensors, npy, npz, torch, dcp, zarr3 or orbax", 0},              \
		{"shard-bytes",                                                                                        \
		 CKPT_KEY_SHARD,                                                                                       \
		 "SIZE",                                                                                               \
		 0,                                                                                                    \
		 "at most so much of arrays in a file: shards with an index, or chunks of zarr3 and orbax. A larger "  \
		 "array is alone",                                                                                     \
		 0},                                                                                                   \
		{"only", CKPT_KEY_ONLY, "GLOB", 0, "only arrays whose names match; may be repeated", 0},               \
		{"not", CKPT_KEY_NOT, "GLOB", 0, "no array whose name matches; may be repeated", 0},                   \
		{"partial", CKPT_KEY_PARTIAL, NULL, 0, "leave out files that are damaged or of no known format", 0},   \
	{                                                                                                              \
		"dtype", CKPT_KEY_DTYPE, "TYPE", 0,                                                                    \
			"floating arrays as float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2 or their " \
			"fnuz forms",                                                                                  \
			0                                                                                              \
	}

struct ckpt_globs {
	const char **at; // behind the last one: NULL
	size_t count, cap;
};

struct ckpt_array_export {
	struct ckpt_export of;
	struct ckpt_globs only, not ;
	const char *word;                     // the step, as the user called it
	const struct ckpt_array_rules *rules; // the caller's; NULL: the arrays are written as they are
	const char *rules_word;               // the file that they are from
	struct ckpt_step_arrays *arrays;
	json_t *left_out;
};

void ckpt_array_export_begin(struct ckpt_array_export *x);
void ckpt_array_export_done(struct ckpt_array_export *x); // before the listing is closed; a second time is fine
// An option of the table: 0, or wrong usage.
int ckpt_array_export_option(struct ckpt_array_export *x, int key, char *arg);
// The arrays of a step, or of the files below a path in it.
int ckpt_array_export_read(struct ckpt_array_export *x, const struct ckpt_listing *l, const struct ckpt_operand *o,
			   const char *word);
// Chooses and names, and applies the rules; where no format was asked for, it is that of the arrays, if they have one that is written here, else safetensors.
int ckpt_array_export_plan(struct ckpt_array_export *x);
// The files, into a directory that has none of them.
int ckpt_array_export_write(struct ckpt_array_export *x, int dirfd);
