// What the build and this machine can do, for doctor and --version. Threads: any. Looks at /dev/fuse and /sys.
#pragma once

#include <stdbool.h>

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
