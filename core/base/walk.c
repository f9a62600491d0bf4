#include "core/base/walk.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <dirent.h>

static int walk_at(int dirfd, const char *name, int depth, ckpt_walk_fn *fn, void *arg);

static bool is_passed_over(int error)
{
	return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -EACCES;
}

// dirfd is taken.
static int walk_below(int dirfd, int depth, ckpt_walk_fn *fn, void *arg)
{
	DIR *dir = fdopendir(dirfd);
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		close(dirfd);
		return rc;
	}
	while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d) {
		rc = walk_at(dirfd, d->d_name, depth, fn, arg);
		rc = rc == -ENOENT ? 0 : rc;
	}
	closedir(dir);
	return rc;
}

static int walk_at(int dirfd, const char *name, int depth, ckpt_walk_fn *fn, void *arg)
{
	struct statx stx;
	int fd, rc;

	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &stx))
		return depth && is_passed_over(-errno) ? 0 : -errno;
	rc = fn(arg, dirfd, name, &stx);
	if (rc || !S_ISDIR(stx.stx_mode) || depth > CKPT_DEPTH_MAX)
		return rc;
	fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return depth && is_passed_over(fd) ? 0 : fd;
	return walk_below(fd, depth + 1, fn, arg);
}

int ckpt_walk(int dirfd, const char *name, ckpt_walk_fn *fn, void *arg)
{
	return walk_at(dirfd, name, 0, fn, arg);
}
