// The place that files are written to: a directory, a staged step, memory.
//
// Each operation but copy is required, and may block. 0 or -errno; the writer ends with the first error.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_write_target {
	// A new file of so many bytes, all zero, and the folders above it. *ret_file is for the calls below.
	int (*create)(void *arg, const char *path, uint64_t bytes, void **ret_file);
	// All of these bytes. Mostly one behind the other; a few are written over later.
	int (*write)(void *arg, void *file, const void *bytes, size_t len, uint64_t offset);
	// whole: every byte was written. The file is gone from the hands of the caller, also after an error.
	int (*close)(void *arg, void *file, bool whole);
	void *arg;
	// As write, of bytes of a file on a disk. -ENODATA: it ends before. NULL: all bytes come by write.
	int (*copy)(void *arg, void *file, int from_fd, uint64_t from, uint64_t len, uint64_t offset);
};
