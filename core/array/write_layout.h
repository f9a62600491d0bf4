// A layout as formats make it, between write.c and write_*.c: files one behind the other, each from its first byte to its last.
//
// A failed allocation is remembered (rc), so that formats need not look at each call. Threads: one. Nothing blocks.
#pragma once

#include "core/array/buffer.h"
#include "core/array/write.h"

#define CKPT_LAYOUT_TEXT SIZE_MAX // instead of an array

struct ckpt_layout_part {
	uint64_t offset, bytes; // in the file
	size_t array;           // or CKPT_LAYOUT_TEXT
	uint64_t first;         // of the array's bytes, or of the text
	size_t sum;             // the CRC that these bytes belong to and this number less one; 0: none
};

// A CRC-32 of bytes that are not known yet. It is put into two places: the file, in front of those bytes, and text that comes behind them.
struct ckpt_layout_sum {
	uint32_t value;
	uint64_t in_file;
	size_t in_text;
};

struct ckpt_layout_file {
	size_t path; // in paths
	uint64_t bytes;
	size_t part_end; // the parts of the file end here
};

struct ckpt_layout {
	const struct ckpt_write_plan *plan;
	struct ckpt_buffer text, paths;
	struct ckpt_layout_file *files;
	size_t file_count, file_cap;
	struct ckpt_layout_part *parts;
	size_t part_count, part_cap;
	struct ckpt_layout_sum *sums;
	size_t sum_count, sum_cap;
	int rc; // -ENOMEM, or -ENOTSUP with:
	char *why;
};

struct ckpt_write_format {
	const char *name;
	const char *(*dtype)(enum ckpt_dtype dtype); // as the format calls it; NULL: it has no such type
	bool shards;                                 // it can be written with shard_bytes
	bool is_text;                                // names are UTF-8
	void (*make)(struct ckpt_layout *l);
};

extern const struct ckpt_write_format ckpt_write_safetensors, ckpt_write_npy, ckpt_write_npz, ckpt_write_torch,
	ckpt_write_dcp, ckpt_write_zarr3, ckpt_write_orbax, ckpt_write_raw;

// The format cannot have this plan; array: NULL, or the one that it is about.
__attribute__((format(printf, 3, 4))) void
ckpt_layout_refuse(struct ckpt_layout *l, const struct ckpt_write_array *array, const char *why, ...);
__attribute__((format(printf, 2, 3))) void ckpt_layout_file(struct ckpt_layout *l, const char *path, ...);
uint64_t ckpt_layout_at(const struct ckpt_layout *l); // bytes of the file so far
void ckpt_layout_add(struct ckpt_layout *l, const void *bytes, size_t len);
void ckpt_layout_add_buffer(struct ckpt_layout *l, struct ckpt_buffer *b); // and frees it
// sum: of ckpt_layout_sum(), or 0.
void ckpt_layout_add_array(struct ckpt_layout *l, size_t array, uint64_t first, uint64_t bytes, size_t sum);
void ckpt_layout_skip(struct ckpt_layout *l, uint64_t bytes); // zeros
// A sum that begins with `value`, and is at in_file of this file.
size_t ckpt_layout_sum(struct ckpt_layout *l, uint32_t value, uint64_t in_file);
// The next four bytes are the sum.
void ckpt_layout_add_sum(struct ckpt_layout *l, size_t sum);

uint64_t ckpt_write_elements(const struct ckpt_write_array *a);
uint64_t ckpt_write_bytes(const struct ckpt_write_array *a);

// Arrays in shards of shard_bytes at most, in the order of the plan; a larger one is alone.
struct ckpt_shards {
	size_t *ends; // of the arrays of each shard
	size_t count;
	uint64_t bytes; // of all
};
void ckpt_shards_make(struct ckpt_layout *l, struct ckpt_shards *ret_shards);
void ckpt_shards_done(struct ckpt_shards *s);
// The index of Hugging Face: files are called by `name`, whose numbers are the shard's and that of all.
void ckpt_shards_index(struct ckpt_layout *l, const struct ckpt_shards *s, const char *path, const char *name,
		       const char *end);
