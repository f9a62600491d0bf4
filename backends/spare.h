// Spare files: room that a full disk still has for the acts that free some. Each holds an inode and CKPT_SPARE_BYTES of blocks, as
// tmp/spare-N of a local store.
//
// Calling sequence: ckpt_spare_fill() when the store is opened, and again whenever there may be room; when a disk is full,
// ckpt_spare_take() for a file to write into, and ckpt_spare_drop() for what else the act needs: a name, a block of a directory.
// Several processes may do so at once: each file is taken by one of them.
// Ownership: tmp_fd stays the caller's. Threads: any. All calls block on the disk. No spare survives a power cut for certain; the
// next fill makes it again.
#pragma once

#include <stdbool.h>

#define CKPT_SPARE_COUNT 12
#define CKPT_SPARE_BYTES (32 << 10)
#define CKPT_SPARE_PREFIX "spare-"

// Makes those that are missing, as far as the disk has room. True: all are there.
bool ckpt_spare_fill(int tmp_fd);
// Gives the name to a spare file and opens it for writing; its content is without meaning. -ENOSPC: there is none any more.
int ckpt_spare_take(int tmp_fd, const char *name);
// Gives the room of one back to the disk. False: there is none any more.
bool ckpt_spare_drop(int tmp_fd);
bool ckpt_spare_is(const char *name);
