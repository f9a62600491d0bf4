// Between the files of the library: an open store, and a look at what it has now.
#pragma once

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
