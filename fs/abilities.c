// What a mount can make use of on this machine; the door is in mount.h.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "fs/abilities.h"

#include <fcntl.h>

static bool uring_is_switched_on(void)
{
	char answer = 'N';
	CLEANUP_FD int fd = open("/sys/module/fuse/parameters/enable_uring", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && read(fd, &answer, 1) == 1 && answer == 'Y';
}

void ckpt_mount_abilities(struct ckpt_mount_abilities *ret)
{
	CLEANUP_FD int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	*ret = (struct ckpt_mount_abilities){
		.libfuse = CKPT_LIBFUSE_VERSION,
		.passthrough_built = CKPT_WITH_PASSTHROUGH,
		.io_uring_built = CKPT_FUSE_URING,
		.device = fd >= 0,
	};
	ret->passthrough_why = !ret->device                     ? "/dev/fuse cannot be opened"
			       : !ckpt_kernel_is_at_least(6, 9) ? "the kernel is older than Linux 6.9"
			       : geteuid() != 0 ? "only root may hand files to the kernel (CAP_SYS_ADMIN)"
						: NULL;
	ret->passthrough = !ret->passthrough_why;
	ret->io_uring_why = !ret->io_uring_built              ? "libfuse was built without it"
			    : !ckpt_kernel_is_at_least(6, 14) ? "the kernel is older than Linux 6.14"
			    : !uring_is_switched_on() ? "it is off: echo Y > /sys/module/fuse/parameters/enable_uring"
						      : NULL;
	ret->io_uring = !ret->io_uring_why;
}
