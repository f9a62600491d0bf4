#include "core/save/clone.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/record/name.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

// What is not the user's belongs to the kernel or an administrator: it is kept where we may.
static bool may_be_left_out(const char *name, int error)
{
	return strncmp(name, "user.", 5) && (error == EPERM || error == EACCES || error == EOPNOTSUPP);
}

static int copy_xattr(int from, int to, const char *name, char *value)
{
	ssize_t len = fgetxattr(from, name, value, CKPT_XATTR_BYTES_MAX);
	int rc;

	if (len < 0)
		return errno == ENODATA || may_be_left_out(name, errno) ? 0 : -errno;
	rc = ckpt_sys.fsetxattr(to, name, value, (size_t)len, 0);
	return rc && may_be_left_out(name, -rc) ? 0 : rc;
}

static int copy_xattrs(int from, int to, bool ours)
{
	CLEANUP_FREE char *names = malloc(CKPT_XATTR_BYTES_MAX);
	CLEANUP_FREE char *value = malloc(CKPT_XATTR_BYTES_MAX);
	ssize_t len;
	int rc = 0;

	if (!names || !value)
		return -ENOMEM;
	len = flistxattr(from, names, CKPT_XATTR_BYTES_MAX);
	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *name = names; name < names + len && !rc; name += strlen(name) + 1)
		if (ours || strncmp(name, CKPT_OWN_XATTRS, strlen(CKPT_OWN_XATTRS)))
			rc = copy_xattr(from, to, name, value);
	return rc;
}

int ckpt_clone_attributes(int from, int to, const struct statx *stx, bool ours)
{
	struct timespec times[2] = {{stx->stx_atime.tv_sec, stx->stx_atime.tv_nsec},
				    {stx->stx_mtime.tv_sec, stx->stx_mtime.tv_nsec}};
	int rc;

	if (geteuid() == 0 && fchown(to, stx->stx_uid, stx->stx_gid))
		return -errno;
	rc = copy_xattrs(from, to, ours); // before the mode, which may forbid it
	if (!rc && fchmod(to, stx->stx_mode & 07777))
		rc = -errno;
	return !rc && futimens(to, times) ? -errno : rc;
}

static bool has_changed(int fd, const struct statx *stx)
{
	struct stat now;

	return fstat(fd, &now) || (uint64_t)now.st_size != stx->stx_size ||
	       now.st_mtim.tv_sec != stx->stx_mtime.tv_sec || now.st_mtim.tv_nsec != (long)stx->stx_mtime.tv_nsec;
}

int ckpt_clone_file(int from, int to, const struct statx *stx, bool ours)
{
	int rc = ckpt_sys.clone(from, to);

	if (!rc)
		rc = ckpt_clone_attributes(from, to, stx, ours);
	return !rc && has_changed(from, stx) ? -EBUSY : rc;
}
