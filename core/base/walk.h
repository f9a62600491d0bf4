// A walk over a tree on the disk, for who only wants to look: each entry once, a directory before what is in it, in no order. What is
// renamed or removed meanwhile, and what may not be entered, is left out; no symlink is followed.
// Threads: any. Blocks on the disk.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

// stx: of name in dirfd, the basic statistics. Anything but 0 ends the walk, and is its result.
typedef int ckpt_walk_fn(void *arg, int dirfd, const char *name, const struct statx *stx);

// name itself is the first. 0; -ENOENT, -EACCES: that is not there, or may not be entered; -errno of the disk; what fn returned,
// where -ENOENT says no more than that this entry is gone.
int ckpt_walk(int dirfd, const char *name, ckpt_walk_fn *fn, void *arg);
