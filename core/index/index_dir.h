// The directory of the index: opening it where LMDB may be, and moving a damaged file out of the way. For index*.c only.
// These are plain system calls and not those of core/base/sys.h: the index is a cache, nothing of it needs to survive.
// Threads: any. All block on the disk. Errors: -errno.
#pragma once

#include <stdbool.h>

#define CKPT_INDEX_DATA "data.mdb"
#define CKPT_INDEX_LOCK "lock.mdb"
#define CKPT_INDEX_BAD "index.bad"

// Opens the directory; makes it unless readonly. -ENOENT; -EMEDIUMTYPE on a network filesystem or FUSE.
int ckpt_index_dir_open(const char *path, bool readonly, int *ret_fd);
// Renames the data to CKPT_INDEX_BAD, over an older one, and forgets the locks.
int ckpt_index_dir_set_aside(int dirfd);

// Marks the directory as in use by this process: -EBUSY when it is. A child of fork() starts without claims.
struct ckpt_index_claim;
int ckpt_index_dir_claim(int dirfd, struct ckpt_index_claim **ret_claim);
void ckpt_index_dir_release(struct ckpt_index_claim *claim); // NULL is fine
