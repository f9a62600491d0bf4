// Which store a path leads into, and to what there: through a mount of it on this machine, or below the store's own directory.
//
//   /ckpt/checkpoints/1000             where /ckpt is a mount of /data/run42     -> /data/run42, "checkpoints/1000"
//   /data/run42/checkpoints/1000       where /data/run42 is a store              -> the same
//
// Threads: any. Reads the mount table and looks at directories: a mount that hangs can make it wait.
#pragma once

#include "core/step/mounts.h"

struct ckpt_location {
	char *store;                      // the store's directory, absolute
	char *name;                       // from the root of the store; "" for the root
	const struct ckpt_mounted *mount; // the mount that the path is in, of `mounts`; or NULL
};

// path is absolute. 0; -ENOENT it leads into no store; -ENOMEM.
int ckpt_locate(const struct ckpt_mounts *mounts, const char *path, struct ckpt_location *ret_location);
void ckpt_location_done(struct ckpt_location *l);

// path made absolute, symlinks resolved as far as they can be; malloc'ed. NULL: errno is ENOMEM, or ENOENT, as the current directory,
// from which the path goes, is gone.
char *ckpt_locate_absolute(const char *path);
