// Hostile checkpoint files. The first byte says which name the rest has.

#include "tests/fuzz/replay.h"

#include "core/base/util.h"
#include "core/profile/format.h"

#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const char *const names[] = {"a.pt", "a.npz", "a.npy", "a.safetensors", "a.h5", "a.keras", "a.msgpack"};
	static int fd = -1;
	int rc;

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || !len || ftruncate(fd, 0) || pwrite(fd, data + 1, len - 1, 0) != (ssize_t)len - 1)
		return 0;
	rc = ckpt_format_check(fd, names[data[0] % ARRAY_LEN(names)]);
	if (rc && rc != -EINVAL && rc != -EAGAIN && rc != -ENODATA)
		abort();
	(void)ckpt_format_is_swmr(fd);
	return 0;
}
