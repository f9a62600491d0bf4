// Arrays as files of a format: the counterpart of catalog.h.
//
//	ckpt_layout_new()   which files there will be, and where in them the bytes of each array lie; nothing is written
//	ckpt_write_new()    writes them; then, as long as ckpt_write_wants() says so, ckpt_write_put() with the bytes that it
//	                    wants; ckpt_write_end(); ckpt_write_free()
//
// Formats (their readers have the sources of the rules, see catalog.h):
//
//	safetensors  model.safetensors; shards are model-00001-of-00002.safetensors and model.safetensors.index.json
//	npy          NAME.npy for each array
//	npz          model.npz: stored members
//	torch        model.pt, a dictionary of tensors, as torch.save() has it; shards are pytorch_model-00001-of-00002.bin and
//	             pytorch_model.bin.index.json
//	dcp          .metadata and __0_0.distcp: torch.distributed.checkpoint, a state_dict without folders; shards are __0_N.distcp
//	zarr3        a group with an array of zarr version 3 for each name; shard_bytes bounds a chunk
//	orbax        the same with the metadata of orbax-checkpoint, without OCDBT; a "." in a name makes a dictionary
//	raw          arrays.bin, the bytes of all arrays, and arrays.json; shards are arrays-00001-of-00002.bin
//
// Sizes and offsets are known before any element is. A file that says of others what they hold comes behind them: a directory without it is
// not taken for a checkpoint.
//
// Ownership: layouts and writers are the caller's. A layout keeps the arrays of the plan, which live as long, as it does for the writer.
// Threads: one for a writer. Blocks as the output does. Memory: that of headers and directories.
#pragma once

#include "core/array/array.h"
#include "core/array/write_target.h"

#define CKPT_WRITE_WHY_MAX 384
#define CKPT_WRITE_CHUNK_BYTES (UINT64_C(128) << 20) // of zarr, where nothing else is asked for

#define CKPT_WRITE_NO_SOURCE UINT64_MAX

// An array to write. Its bytes are in C order and native order of bytes.
struct ckpt_write_array {
	const char *name; // no other of the plan has it
	const char *path; // the same for a file or a folder; no other has it either
	enum ckpt_dtype dtype;
	unsigned ndim;
	const uint64_t *shape;
};

struct ckpt_write_plan {
	const struct ckpt_write_array *arrays;
	size_t count;
	uint64_t shard_bytes; // 0: one file, or the format's own size
	// Of each array: the place of its bytes in a file that they may be copied from, or CKPT_WRITE_NO_SOURCE. safetensors puts arrays so that
	// blocks of the disk can be shared with it. NULL: of none.
	const uint64_t *sources;
};

struct ckpt_layout;

// The formats, in the order of the list above; NULL: there is no further one.
const char *ckpt_write_format(size_t i);
// -ENOENT: there is no such format. -ENOTSUP: it cannot have this plan; why says which array, and which rule. -ENOMEM.
int ckpt_layout_new(const char *format, const struct ckpt_write_plan *plan, char why[CKPT_WRITE_WHY_MAX],
		    struct ckpt_layout **ret_layout);
void ckpt_layout_free(struct ckpt_layout *l);            // NULL is fine
uint64_t ckpt_layout_bytes(const struct ckpt_layout *l); // of all files
size_t ckpt_layout_files(const struct ckpt_layout *l);
// The parts of the first file, in its order: text, or with text NULL so many bytes of an array of the plan from its first one on. Text lives as
// long as the layout. Ends with what fn answers, unless 0.
int ckpt_layout_each(const struct ckpt_layout *l,
		     int (*fn)(void *arg, uint64_t offset, const void *text, size_t array, uint64_t bytes), void *arg);

struct ckpt_writer;

// The layout is used up: it can be written once.
int ckpt_write_new(struct ckpt_layout *l, const struct ckpt_write_target *target, struct ckpt_writer **ret_writer);
void ckpt_write_free(struct ckpt_writer *w); // NULL is fine; a file that is not whole is closed as such

// A range of bytes of an array of the plan. Ranges of an array come in their order.
struct ckpt_write_range {
	size_t array;
	uint64_t first, bytes;
};
// The range that is written next. False: all are written, or *ret_error says what failed.
bool ckpt_write_wants(struct ckpt_writer *w, struct ckpt_write_range *ret_range, int *ret_error);
// So many bytes of the range's beginning, not more than it has.
int ckpt_write_put(struct ckpt_writer *w, const void *bytes, size_t len);
// The same, of bytes of a file on a disk. -EOPNOTSUPP, and nothing has happened: they have to be put.
int ckpt_write_copy(struct ckpt_writer *w, int from_fd, uint64_t from, uint64_t len);
// The format has sums of the bytes of arrays: none of them can be copied.
bool ckpt_layout_has_sums(const struct ckpt_layout *l);
// The first range of an array at or behind *part, which counts from 0 and is moved on; in the order of _wants(). False: there is none.
bool ckpt_layout_next(const struct ckpt_layout *l, size_t *part, struct ckpt_write_range *ret_range);
// The path of the file that failed, or is being written; NULL: none is.
const char *ckpt_write_path(const struct ckpt_writer *w);
