// Whether the mount that was asked for can be made, looked at before anything of it exists; and in words why not.
//
// Calling sequence: mount_check_point(), mount_check_store(); mount_explain_open() when the store cannot be opened then.
// Threads: one, before there are others. Blocks: on the disk. Errors: -errno, with words in mount_outcome.
#pragma once

#include "fs/options.h"

// How the start ended. One for the process, as there is one mount; the daemon hands it to its parent.
struct mount_outcome {
	int rc;
	char why[512], hint[512];
};
extern struct mount_outcome mount_outcome;

// Fills in mount_outcome and returns rc. hint: NULL where there is nothing to do.
__attribute__((format(printf, 3, 4))) int mount_fail(int rc, const char *hint, const char *why, ...);

// The mount point, and what the daemon writes outside of the store. *ret_absolute is malloc'ed.
int mount_check_point(const struct ckpt_mount *m, char **ret_absolute);
// The store, which is made if it is absent or empty.
int mount_check_store(const struct ckpt_mount *m, const char *mountpoint);
// Says why ckpt_store_open() failed with rc, which it returns.
int mount_explain_open(const struct ckpt_mount *m, int rc);
