// Mounting a store and serving it until it is unmounted: the one door of fs/.
//
// Calling sequence: fill in struct ckpt_mount, call ckpt_mount_run() once per process, before any thread exists.
// Blocks: with foreground until unmounted; else it forks, and the parent returns once the mount answers.
#pragma once

#include "fs/options.h"

// 0: unmounted cleanly (foreground) or mounted (background). -errno with one line in *ret_why and, where there is
// something to do, one in *ret_hint (malloc'ed, or NULL).
int ckpt_mount_run(const struct ckpt_mount *m, char **ret_why, char **ret_hint);

// The same for somebody who is the kernel: a test. He hands requests, INIT first, to fuse_session_process_buf() of (*ret_fs)->se
// (fs.h) and takes the answers by io, on any thread; fd is closed at the end. m is borrowed, its store exists. What is open he
// releases before the end. Any number of them, one after the other. 0, -errno.
struct ckpt_fs;
struct fuse_custom_io;
int ckpt_mount_without_kernel(const struct ckpt_mount *m, const struct fuse_custom_io *io, int fd,
			      struct ckpt_fs **ret_fs);
void ckpt_mount_without_kernel_end(struct ckpt_fs *fs); // NULL is fine
