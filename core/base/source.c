#include "core/base/source.h"

#include "core/base/sys.h"

#include <errno.h>

static int read_file(void *arg, uint64_t offset, void *buf, size_t len)
{
	ssize_t n = ckpt_sys.pread((int)(intptr_t)arg, buf, len, (off_t)offset);

	return n < 0 ? (int)n : (size_t)n < len ? -ENODATA : 0;
}

struct ckpt_source ckpt_source_file(int fd, uint64_t bytes)
{
	return (struct ckpt_source){.bytes = bytes, .read = read_file, .arg = (void *)(intptr_t)fd};
}

int ckpt_source_read(const struct ckpt_source *s, uint64_t offset, void *buf, size_t len)
{
	int rc;

	if (offset > s->bytes || len > s->bytes - offset)
		return -EINVAL;
	rc = len ? s->read(s->arg, offset, buf, len) : 0;
	return rc == -EINVAL ? -EIO : rc;
}
