// How a store is mounted: what the command line says.
#pragma once

#include "core/step/settings.h"

#include <stdbool.h>
#include <sys/types.h>

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
	const char *log; // a file, "syslog", "-" (stderr); NULL: stderr in the foreground, else syslog
	const char **
		remote_options; // of the object store, as core/objects/stack.h takes them, NULL behind the last; NULL: none were given
	const char *on_commit; // a program to run after each commit (hook.h), or NULL
	const char *log_level; // error, warn, info, debug; NULL: info
};
