// The name of a view (ARRAYS.md section 3 of the design): a comma-separated list of KEY=VALUE.
//
//	only=GLOB, not=GLOB      which arrays; may be repeated
//	only=@FILE, not=@FILE    the same, as a list of globs in a JSON file of the step
//	unroll=A                 a slice for each index of axis A, without that axis
//	shard=IofN, axis=A       part I of N, counted from 1, of axis A; without axis=A that is 0
//	dtype=T                  floating arrays as this type
//	rename=FILE              {OLD: NEW}, a JSON file of the step
//	prefix=P                 in front of each name
//
// Values have the escapes of names of arrays: %XX is a byte. A comma, a slash, and "@" at the beginning of a glob need them; all other bytes
// may stand for themselves.
//
// Every byte is from outside. Ownership: the caller's; no pointer leads out of it, but it cannot be copied. Threads: any. Nothing blocks.
#pragma once

#include "core/array/array.h"

#define CKPT_VIEW_NAME_MAX 255 // bytes
#define CKPT_VIEW_GLOBS_MAX 48 // of one kind: shorter ones than "not=a," say nothing
#define CKPT_VIEW_SHARDS_MAX UINT32_MAX
#define CKPT_VIEW_WHY_MAX 320

// A failure, for users: the fault, and what would be right. Both are UTF-8 without control bytes where the reader of a name made them.
struct ckpt_view_why {
	char why[CKPT_VIEW_WHY_MAX], hint[CKPT_VIEW_WHY_MAX];
};

struct ckpt_view_spec {
	const char *only[CKPT_VIEW_GLOBS_MAX + 1], *not [CKPT_VIEW_GLOBS_MAX + 1]; // NULL behind the last one
	const char *only_file, *not_file, *rename_file;                            // paths in the step; NULL: none
	const char *prefix;                                                        // NULL: none
	enum ckpt_dtype dtype;                                                     // NONE: their own
	uint64_t shard, shards;                                                    // 1 .. shards; 0: all
	unsigned axis;                                                             // of the shards
	bool unroll;
	unsigned unroll_axis;
	char text[CKPT_VIEW_NAME_MAX + 1]; // the values
};

// 0; -EINVAL: ret_why says what is wrong.
int ckpt_view_spec_parse(const char *name, struct ckpt_view_spec *ret_spec, struct ckpt_view_why *ret_why);

// "3of8", and an axis: parts of it. False: they are none.
bool ckpt_view_shard_parse(const char *text, uint64_t *ret_shard, uint64_t *ret_shards);
bool ckpt_view_axis_parse(const char *text, unsigned *ret_axis);
// "bf16" or "bfloat16"; NONE: it is no floating type.
enum ckpt_dtype ckpt_view_dtype(const char *name);

__attribute__((format(printf, 2, 3))) void ckpt_view_wrong(struct ckpt_view_why *why, const char *text, ...);
