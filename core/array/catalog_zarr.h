// Arrays of zarr, for what has them elsewhere than in directories.
#pragma once

#include "core/array/catalog_format.h"

// The bytes of a key below the array.
struct ckpt_zarr_value {
	const char *file; // in the step
	uint64_t offset, bytes;
	const uint8_t *data; // as that of a piece
};

struct ckpt_zarr_place {
	const char *tree, *name; // of the array
	const char *format;      // of its row, static
	const char *json;        // its metadata
	size_t json_len;
	// Metadata that breaks a rule makes a row with that reason; else the file that is read is refused.
	bool is_inside;
	// Some of its chunks are elsewhere: what is not here is a gap, not the fill value.
	bool is_part;
	// 1: its writer leaves out no chunk, and a missing one is a gap; 0; or an error. It is asked of arrays whose fill value is null.
	// NULL: 0.
	int (*is_whole)(void *arg);
	// Calls fn for each key below the array, in any order, without the array's own part of it; ends with what it answers
	// unless 0.
	int (*each)(void *arg, int (*fn)(void *fn_arg, const char *key, const struct ckpt_zarr_value *value),
		    void *fn_arg);
	void *arg;
};

// 0; -EINVAL after ckpt_catalog_refuse(); -ENOMEM; what each() and the sources of shards say. May block. version: 2 or 3.
int ckpt_catalog_read_zarr(struct ckpt_catalog_reading *r, int version, const struct ckpt_zarr_place *place);
