// Which backend is for which URL.
#include "backends/backends.h"
#include "backends/s3.h"
#include "core/base/util.h"
#include "core/objects/stack.h"

#include <stdio.h>

static int open_directory(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects)
{
	if (at->options && *at->options) {
		if (at->why)
			snprintf(at->why, CKPT_OBJECTS_WHY_MAX, "a directory has no option '%.200s'", *at->options);
		return -EINVAL;
	}
	return ckpt_local_open(at->dirfd, at->writable, ret_objects);
}

static int open_s3(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects)
{
	struct ckpt_objects *s3;
	int rc = ckpt_s3_open(at, &s3);

	if (rc)
		return rc;
	rc = ckpt_retry_new(s3, ret_objects);
	if (rc)
		ckpt_objects_close(s3);
	return rc;
}

const struct ckpt_scheme ckpt_schemes[] = {
	{"s3", open_s3},
	{"", open_directory},
	{0},
};
