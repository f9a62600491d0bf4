// Where a store's objects are: a stack of layers made of its URL.
//
// core knows no backend by name. Those that are built in register themselves by a table, which the linker finds.
#pragma once

#include "core/objects/objects.h"

struct ckpt_objects_at {
	const char *url; // "NAME://..."; NULL: the directory
	int dirfd;       // the store's directory, borrowed during the call
	bool writable;
	const char *const *options; // "key=value" or "key", NULL behind the last; NULL: none
	char *why;                  // of a failure, for people: takes CKPT_OBJECTS_WHY_MAX bytes; NULL: nobody asks
};

struct ckpt_scheme {
	const char *name; // of "NAME://..."; "": a directory
	int (*open)(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects);
};

// Those that are built in (backends/schemes.c); the last one has no name.
extern const struct ckpt_scheme ckpt_schemes[];

// -EPROTONOSUPPORT: no backend is for this URL; -EINVAL: an option that it does not have, or not with this value, which at->why
// names; else as the backend's own open. Blocks on the disk or the network.
int ckpt_objects_open(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects);
