// Files without some of their arrays, with all else that is in them.
//
// Threads: any. Blocks as source and output do. Memory: a run of bytes, and the header as JSON values.
// Errors: -EBADMSG: the file is not what its format says; -EINTR: *stop; -ENOMEM; those of source and output.
#pragma once

#include "core/base/source.h"

#include <jansson.h>
#include <stdbool.h>

struct ckpt_drop {
	bool (*drops)(void *arg, const char *name);
	void *arg;
	const volatile int *stop; // NULL: never
};

// A .safetensors file, to an empty one. The arrays that stay, and __metadata__, are as they were; their bytes follow each other in the same order.
int ckpt_drop_safetensors(const struct ckpt_drop *d, const struct ckpt_source *from, int to);
// A *.index.json of Hugging Face's, whose metadata.total_size counts dropped_bytes less.
int ckpt_drop_index(const struct ckpt_drop *d, const struct ckpt_source *from, uint64_t dropped_bytes, int to);

// .metadata of torch.distributed.checkpoint. All other values in it stay, whatever they are. -EBADMSG also: they cannot.
int ckpt_drop_dcp(const struct ckpt_drop *d, const struct ckpt_source *from, int to);

// The file of torch.save(), to an empty one. All other values and members stay as they are. -EBADMSG: *ret_why, malloc'ed, says why not; NULL where
// nothing more is known. *ret_why is NULL before.
int ckpt_drop_torch(const struct ckpt_drop *d, const struct ckpt_source *from, int to, char **ret_why);

#define CKPT_ORBAX_FOLDER "array_metadatas"
// JSON that names arrays by their folders (drop_tree.c): drops() is asked with these, from the step on. path: of the file. *ret_changed false:
// nothing in it is dropped, and nothing was written.
int ckpt_drop_folders(const struct ckpt_drop *d, const char *path, const struct ckpt_source *from, int to,
		      bool *ret_changed);

// An object of JSON, for these functions.
int ckpt_drop_read_json(const struct ckpt_source *from, uint64_t offset, size_t len, json_t **ret_json);
