#include "core/cold/sparse.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <string.h>

#define HOLE_BYTES ((size_t)64 << 10)

static bool is_zero(const uint8_t *data, size_t len)
{
	return !*data && !memcmp(data, data + 1, len - 1);
}

static int write_all(int fd, const uint8_t *data, size_t len, uint64_t offset)
{
	ssize_t n = 0;

	for (size_t done = 0; done < len && n >= 0; done += (size_t)MAX(n, 0)) {
		n = ckpt_sys.pwrite(fd, data + done, len - done, (off_t)(offset + done));
		n = n ? n : -EIO;
	}
	return (int)MIN(n, 0);
}

int ckpt_sparse_write(int fd, const uint8_t *data, size_t len, uint64_t offset)
{
	int rc = 0;

	for (size_t done = 0, part; done < len && !rc; done += part) {
		part = MIN(len - done, HOLE_BYTES);
		if (!is_zero(data + done, part))
			rc = write_all(fd, data + done, part, offset + done);
	}
	return rc;
}
