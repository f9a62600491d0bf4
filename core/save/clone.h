// Files made from others, with all that belongs to them: by sharing the bytes on disk where it can (reflink), else by copying.
// Threads: any. Blocks on the disk, for as long as the bytes take.
#pragma once

#include <stdbool.h>

struct statx;

// ours: extended attributes of ours go along, too; else only those of clients do.
// Content, owner (as root), mode, times and extended attributes of `from`, which is like stx, into the empty file `to`.
// -EBUSY: it changed meanwhile; -ENOSPC, ...
int ckpt_clone_file(int from, int to, const struct statx *stx, bool ours);
// All of it but the content; of directories, too.
int ckpt_clone_attributes(int from, int to, const struct statx *stx, bool ours);
