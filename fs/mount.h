// Mounting a store and serving it until it is unmounted: the one door of fs/.
//
// Calling sequence: fill in struct ckpt_mount, call ckpt_mount_run() once per process, before any thread exists.
// Blocks: with foreground until unmounted; else it forks, and the parent returns once the mount answers.
#pragma once

#include "core/store/store.h"

#include <stdbool.h>

struct ckpt_mount {
	const char *store; // a directory; made into a store when absent or empty, unless readonly
	const char *mountpoint;
	struct ckpt_settings settings; // borrowed
	bool readonly;
	bool allow_other;
	bool nonempty; // the mount point may have entries, which the mount hides
	bool no_passthrough;
	bool no_io_uring;
	bool foreground;
	bool default_owner; // uid and gid below replace the owners that clients see
	bool default_umask; // umask below is taken from the modes that clients see
	uid_t uid;
	gid_t gid;
	mode_t umask;
	const char *log;       // a file, "syslog", "-" (stderr); NULL: stderr in the foreground, else syslog
	const char *on_commit; // a program to run after each commit (hook.h), or NULL
	const char *log_level; // error, warn, info, debug; NULL: info
};

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

// What the build and this machine can do, for doctor and --version.
struct ckpt_mount_abilities {
	const char *libfuse; // version at build
	bool passthrough_built, io_uring_built;
	bool device;                 // /dev/fuse can be opened
	bool passthrough;            // the kernel offers it and we may use it
	bool io_uring;               // the kernel's switch is on
	const char *passthrough_why; // one line when it is not
	const char *io_uring_why;
};
void ckpt_mount_abilities(struct ckpt_mount_abilities *ret);
