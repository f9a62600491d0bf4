// A folder that is absent or empty gets its files all at once, or none: they are written under another name beside it, and are on the disk before
// the folder has them.
//
// Threads: one. Blocks on the disk. Failures are said on stderr here, once, but for those of fill, which says them itself.
#pragma once

// fill writes below fd. 0, or its exit status.
int ckpt_whole_folder(const char *dir, int (*fill)(void *arg, int fd), void *arg);
