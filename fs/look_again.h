// Threads that opened a file for reading and were told ESTALE, because its name leads to another file by now.
//
// The kernel looks the name up again then, but once only (Linux, fs/namei.c, do_file_open: LOOKUP_REVAL). A name that is replaced
// all the time may be replaced once more before the open comes. On a disk what was found can be opened all the same: its dentry
// holds it. So what such a thread finds is kept open for it until it opens it.
//
// Threads: any. Nothing blocks, but an open on the disk for who was told.
#pragma once

#include "fs/fs.h"

struct look_again *look_again_new(void);
void look_again_free(struct look_again *t);

// Who is unknown (0) is not remembered.
void look_again_told(struct ckpt_fs *fs, pid_t tid);
// It looked a name up: that is what it finds.
void look_again_found(struct ckpt_fs *fs, pid_t tid, const struct fuse_entry_param *found);
// It opens n: the descriptor that was kept for it, which is the caller's; -1: none. Nothing is kept for it any more.
int look_again_take(struct ckpt_fs *fs, pid_t tid, struct node *n);
