// Which backend is for which URL.
#include "backends/backends.h"
#include "backends/s3.h"
#include "core/base/util.h"
#include "core/objects/stack.h"

#include <fcntl.h>
#include <stdio.h>

static int check_no_options(const struct ckpt_objects_at *at)
{
	if (!at->options || !*at->options)
		return 0;
	if (at->why)
		snprintf(at->why, CKPT_OBJECTS_WHY_MAX, "a directory has no option '%.200s'", *at->options);
	return -EINVAL;
}

static int open_directory(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects)
{
	int rc = check_no_options(at);

	return rc ? rc : ckpt_local_open(at->dirfd, at->writable, ret_objects);
}

// A directory that several nodes share, which is there already.
static int open_file(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects)
{
	CLEANUP_FD int dirfd = -1;
	int rc = check_no_options(at);

	if (rc)
		return rc;
	dirfd = open(at->url + strlen("file://"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd < 0 ? -errno : ckpt_local_open(dirfd, at->writable, ret_objects);
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
	{"file", open_file},
	{"", open_directory},
	{0},
};
