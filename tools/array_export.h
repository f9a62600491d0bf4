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

enum {
	CKPT_KEY_FORMAT = 'f',
	CKPT_KEY_SHARD = 0x100,
	CKPT_KEY_ONLY,
	CKPT_KEY_NOT,
	CKPT_KEY_DTYPE,
	CKPT_KEY_PARTIAL,
	CKPT_KEY_PART,
	CKPT_KEY_AXIS,
	CKPT_KEY_UNROLL,
	CKPT_KEY_RENAME,
	CKPT_KEY_PREFIX
};

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

// The same of the options that make parts of arrays and give them other names, as views have them (core/view/array_choice.h).
#define CKPT_ARRAY_VIEW_OPTIONS                                                                                        \
	{"shard", CKPT_KEY_PART, "IofN", 0, "part I of N of each array, as torch.chunk cuts it", 0},                   \
		{"axis", CKPT_KEY_AXIS, "A", 0, "the axis of --shard; 0 without it. Arrays without it stay whole", 0}, \
		{"unroll",                                                                                             \
		 CKPT_KEY_UNROLL,                                                                                      \
		 "A",                                                                                                  \
		 0,                                                                                                    \
		 "an array for each slice of axis A, of arrays below `layers`, or of all where there is none: "        \
		 "layers_0, layers_1",                                                                                 \
		 0},                                                                                                   \
		{"rename", CKPT_KEY_RENAME, "FILE", 0, "other names: a JSON file {\"OLD\": \"NEW\"}", 0},              \
	{                                                                                                              \
		"prefix", CKPT_KEY_PREFIX, "TEXT", 0, "in front of each name", 0                                       \
	}

struct ckpt_globs {
	const char **at; // behind the last one: NULL
	size_t count, cap;
};

struct ckpt_array_export {
	struct ckpt_export of;
	struct ckpt_globs only, not ;
	const struct ckpt_array_rules *rules; // the caller's; NULL: the arrays are written as they are
	const char *rules_word;               // the file that they are from
	struct ckpt_choice_how how;
	bool axis;        // --axis is there
	json_t *renames;  // of --rename
	const char *word; // the step, as the user called it
	bool some_stay;   // arrays in files that stay as they are (of.skip), so that there may be nothing to write
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
// The same, of arrays that the caller has read, and whose owner it stays: those that the options choose; with skip, by array, all but these.
void ckpt_array_export_take(struct ckpt_array_export *x, const char *word, struct ckpt_step_arrays *arrays,
			    const bool *skip);
// They are chosen now; others are taken for the plan.
int ckpt_array_export_choose(struct ckpt_array_export *x);
// Chooses and names, and applies the rules; where no format was asked for, it is that of the arrays, if they have one that is written here, else safetensors.
int ckpt_array_export_plan(struct ckpt_array_export *x);
// The files, into a directory that has none of them.
int ckpt_array_export_write(struct ckpt_array_export *x, int dirfd);
