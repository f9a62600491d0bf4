// Threads that opened a file for reading and were told ESTALE, because its name leads to another file by now.
//
// The kernel looks the name up again then, but once only (Linux, fs/namei.c, do_file_open: LOOKUP_REVAL). A name that is replaced
// all the time may be replaced once more before the open comes. On a disk what was found can be opened all the same: its dentry
// holds it. So what such a thread finds is kept open for it until it opens it.
//
// And those that open a file of a committed step for writing: to them the name leads to the file's twin (unwritten.h).
//
// Threads: any. Nothing blocks, but an open on the disk for who was told.
#pragma once

#include "fs/fs.h"

struct look_again *look_again_new(void);
void look_again_free(struct look_again *t);

// An unknown thread (0) is not remembered.
void look_again_told(struct ckpt_fs *fs, pid_t tid);
// It was, and has not looked yet: it reaches the file by no name.
bool look_again_is_told(struct ckpt_fs *fs, pid_t tid);
// The same of who opened n for writing. False: it cannot be led to another node, since nobody knows who it is, or it was told
// already and has not looked: it reached the file by no name.
bool look_again_told_writer(struct ckpt_fs *fs, pid_t tid, struct node *n);
// It looked a name up and found that, or finds the twin of it now. True: look the name up once more. It looked for what it writes, and
//   the file is shared (copy_up.h), as one is that was moved out of a step: a copy has the name now;
//   or the file has lost the name to its copy meanwhile.
bool look_again_found(struct ckpt_fs *fs, pid_t tid, const struct node *dir, const char *name,
		      struct fuse_entry_param *found);
void look_again_done(struct ckpt_fs *fs, pid_t tid); // it found what it opens
// It opens n: the descriptor that was kept for it, which is the caller's; -1: none. Nothing is kept for it any more.
int look_again_take(struct ckpt_fs *fs, pid_t tid, struct node *n);
