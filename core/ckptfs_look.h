// Between the files of the library: an open store, a look at what it has now, and the inside of a set of arrays.
#pragma once

#include "core/array/gather.h"
#include "core/array/names.h"
#include "core/request/resolve.h"

struct ckpt {
	char *directory;
	char *mountpoint; // by which it was opened, or NULL
};

// The store as it is at this moment, open for reading.
struct ckpt_look {
	struct ckpt_view view;
	struct ckpt_folders folders;
	struct ckpt_mounts mounts;
};

// 0, or errors of ckpt_store_open(). Blocks on the disk.
int ckpt_look_begin(const struct ckpt *c, struct ckpt_look *ret_look);
void ckpt_look_end(struct ckpt_look *l);

struct ckpt_array_set;

const struct ckpt_catalog *ckpt_array_set_catalog(const struct ckpt_array_set *set);
const struct ckpt_names *ckpt_array_set_names(const struct ckpt_array_set *set);
// The reader of array i, for one thread until it is given back. Errors of ckpt_gather_new().
int ckpt_array_set_take(struct ckpt_array_set *set, size_t i, struct ckpt_gather **ret_gather);
void ckpt_array_set_give(struct ckpt_array_set *set, size_t i, struct ckpt_gather *g);
// One that was given back and is kept for the next call goes, with what it holds.
void ckpt_array_set_forget(struct ckpt_array_set *set);
