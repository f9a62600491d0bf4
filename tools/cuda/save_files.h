// The files of a save: made, written in blocks from several threads, durable when they are closed.
//
// Threads: create() one at a time; write() any; close() one, when all writes of the file have ended. All block. 0 or -errno.
#pragma once

#include "tools/cuda/save_blocks.h"

#include <stdbool.h>

struct ckpt_save_open {
	int fd; // -1: it is not open
	bool direct;
};

// flags: CKPT_CUDA_BUFFERED, CKPT_CUDA_DIRECT. Folders above it are made; -EEXIST: it is there.
int ckpt_save_file_create(int dirfd, const struct ckpt_save_file *f, unsigned flags, struct ckpt_save_open *ret_open);
// buffer has room for bytes up to a multiple of CKPT_POOL_ALIGN, and zeros behind them.
int ckpt_save_file_write(struct ckpt_save_open *o, unsigned flags, const void *buffer, uint64_t bytes, uint64_t offset);
// A file of text, on disk with its name before it is closed, as its close is what a mount acts upon. One that fails is removed.
int ckpt_save_file_put(int dirfd, const char *path, const char *text);
// Its length is that of f, and all of it is on disk, with its name. whole: false: it is closed only.
int ckpt_save_file_close(int dirfd, const struct ckpt_save_file *f, struct ckpt_save_open *o, bool whole);
