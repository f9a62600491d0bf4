// Open files below .arrays and .views: index.json, arrays as files of NumPy, and model.safetensors of a view.
//
//	ckpt_array_pool_new() for a mount; ckpt_array_file_open(), _read() as often as wanted, _close(); ckpt_array_pool_free()
//
// An array whose pieces have to be decoded keeps what it has open between reads, so that the next one goes on from there. The pool bounds
// that memory over all files: those that were not read for longest let go of theirs, and start again at their next read. While the files
// that are being read hold as much as the pool may hold, _read() of another one waits for one of them.
//
// Ownership: a file has a reference to its set; the pool is freed after its files. Threads: any, several at once. Blocks: as the files of
// the step do, and as above.
// Errors: those of gather.h.
#pragma once

#include "core/view/array_dir.h"

#define CKPT_ARRAY_POOL_BYTES ((size_t)160 << 20)

struct ckpt_array_pool;
struct ckpt_array_file;

struct ckpt_array_pool *ckpt_array_pool_new(size_t bytes_max); // NULL: no memory
void ckpt_array_pool_free(struct ckpt_array_pool *p);          // NULL is fine
size_t ckpt_array_pool_held(struct ckpt_array_pool *p);        // of memory, by its files, as of their last reads

// at: an array or the index, of the tree. -ENOMEM; -EFBIG, -ENOTSUP as gather.h.
int ckpt_array_file_open(struct ckpt_array_pool *p, struct ckpt_array_dir *set, uint32_t at,
			 struct ckpt_array_file **ret_file);
void ckpt_array_file_close(struct ckpt_array_file *f); // NULL is fine
struct ckpt_array_dir *ckpt_array_file_set(const struct ckpt_array_file *f);
uint32_t ckpt_array_file_at(const struct ckpt_array_file *f);
uint64_t ckpt_array_file_bytes(const struct ckpt_array_file *f);
// Reading may wait for a store, for another reader's memory, or take long: it is decoded, or files of the step are in packs.
bool ckpt_array_file_waits(const struct ckpt_array_file *f);
// The place of these bytes in one raw file, if they lie there as they are. The descriptor lives as long as the file is open. False: they do not.
bool ckpt_array_file_raw(const struct ckpt_array_file *f, uint64_t offset, int *ret_fd, uint64_t *ret_at);
// As pread(2).
ssize_t ckpt_array_file_read(struct ckpt_array_file *f, void *buf, size_t len, uint64_t offset);
