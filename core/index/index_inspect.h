// The look at an index before this process maps it: what is there, is it sound, and is it ours. In a child, since LMDB
// on a damaged file may die of it; there index_check.c sees every page before LMDB follows it, then every key is
// read. The values of manifests, chunks and packs are checked when they are read. For index.c only.
// Threads: plain functions. Blocks on the disk, for at most a minute. It writes nothing.
#pragma once

#include <stdint.h>

// What is in dirfd, the directory at path. 0: there is a sound index of this store. -ENOENT: none. -EBADMSG: damaged, or
// not ours. -EACCES, -ENOMEM, -EIO. map_bytes: the address space that the child takes.
int ckpt_index_inspect(int dirfd, const char *path, const char *store_id, uint64_t map_bytes);
