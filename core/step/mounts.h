// The ckptfs mounts of this machine, as /proc/self/mountinfo has them: type fuse.ckptfs, source = the store's path.
// Reads the kernel's table only, so that a mount whose process is gone or hangs does not matter here.
// Threads: any. Errors: -errno of the table, -ENOMEM. The results own their strings; texts that are returned are malloc'ed, and
// NULL without memory.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ckpt_mounted {
	char *mountpoint; // absolute
	char *store;      // absolute
	char *root;       // what of the mount is seen there: "/" but for bind mounts
	char *device;     // "MAJOR:MINOR"
	bool readonly;
};

struct ckpt_mounts {
	struct ckpt_mounted *at;
	size_t count;
};

int ckpt_mounts_read(struct ckpt_mounts *ret_mounts);
void ckpt_mounts_done(struct ckpt_mounts *mounts);
// The mount that path (absolute, without "..") is in: the innermost, and of those on one point the last. NULL: none.
// *ret_inside is what follows the mount point, without a leading slash; it points into path.
const struct ckpt_mounted *ckpt_mounts_find(const struct ckpt_mounts *mounts, const char *path,
					    const char **ret_inside);
// What a path in a mount is called from the root of its store, "" for the root itself; inside is as find() says it.
char *ckpt_mounted_name(const struct ckpt_mounted *mounted, const char *inside);
// The way back: where a name of this store is seen, in `first` where it can be (NULL: no wish; it may be of another
// store), else in any mount of it, one that writes before others. 0 and NULL: it is seen nowhere here.
int ckpt_mounts_path(const struct ckpt_mounts *mounts, const char *store, const struct ckpt_mounted *first,
		     const char *name, char **ret_path);
