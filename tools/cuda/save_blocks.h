// The files of a save, cut into blocks of the size of a pool's buffer: which bytes each has, and which arrays it waits for.
//
// A block holds text, ranges of arrays, and zeros between them. So 10,000 small arrays are a few large writes, and each write begins at
// a multiple of a page. Ownership: the caller's. Threads: one, for what changes it. Nothing blocks.
#pragma once

#include "tools/cuda/ckptfs_cuda.h"

#include "core/array/write.h"
#include "core/array/write_layout.h"

struct ckpt_save_file {
	const char *path;
	uint64_t bytes;
	size_t part_first, part_end; // of the layout
	size_t block_first, block_end;
	bool is_text; // it says of others what they hold: it comes behind them
};

struct ckpt_save_block {
	size_t file;
	uint64_t offset, bytes;      // in the file
	size_t part_first, part_end; // that have a byte of it
	size_t sum_first;            // in sums: one for each of its parts
	size_t missing;              // ranges of arrays that were not given yet
};

struct ckpt_save_blocks {
	struct ckpt_write_plan plan;
	struct ckpt_write_array *arrays;
	char *texts;      // of the arrays
	uint64_t *shapes; // of the arrays
	size_t *by_name;  // indices of arrays
	struct ckpt_layout *layout;
	uint64_t block_bytes;
	struct ckpt_save_file *files;
	struct ckpt_save_block *blocks;
	size_t block_count;
	size_t array_blocks;            // blocks of files that are not text
	size_t *part_file;              // of each part
	size_t *array_part, *part_next; // parts of an array, as a list; SIZE_MAX: the end
	uint32_t *sums;                 // CRC-32 of the bytes of each pair of block and part; NULL: the format has none
};

// {0} is the empty one. why: CKPT_CUDA_WHY_MAX bytes. -ENOENT, -ENOTSUP, -EINVAL, -ENOMEM.
int ckpt_save_blocks_init(struct ckpt_save_blocks *b, const struct ckpt_cuda_plan *plan, uint64_t block_bytes,
			  char *why);
void ckpt_save_blocks_done(struct ckpt_save_blocks *b);
// -ENOENT.
int ckpt_save_blocks_find(const struct ckpt_save_blocks *b, const char *name, size_t *ret_array);
// The array was given: ready() is called for each block that waits for nothing any more.
void ckpt_save_blocks_give(struct ckpt_save_blocks *b, size_t array, void (*ready)(void *arg, size_t block), void *arg);

// The bytes that a block has of one of its parts.
struct ckpt_save_range {
	uint64_t at;    // in the block
	uint64_t first; // of the part
	size_t bytes;
};
struct ckpt_save_range ckpt_save_blocks_range(const struct ckpt_save_blocks *b, const struct ckpt_save_block *block,
					      size_t part);

// The sums of all arrays, from those of the blocks, put into the text; put() is called for each of their two places in files.
int ckpt_save_blocks_sums(struct ckpt_save_blocks *b,
			  int (*put)(void *arg, size_t file, uint64_t offset, const uint8_t bytes[4]), void *arg);
