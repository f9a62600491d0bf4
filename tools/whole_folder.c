#include "tools/whole_folder.h"

#include "core/base/util.h"
#include "tools/output.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#define HINT "give a folder that is absent or empty"

static int remove_one(const char *path, const struct stat *st __attribute__((unused)), int type,
		      struct FTW *ftw __attribute__((unused)))
{
	return (type == FTW_DP ? rmdir : unlink)(path);
}

// Before the work, so that none is in vain. rename() says it again.
static int check_empty(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	int others = 0, rc = d || errno == ENOENT ? 0 : -errno;

	while (d && !others && (e = readdir(d)))
		others = strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	if (d)
		closedir(d);
	return others ? -ENOTEMPTY : rc;
}

int ckpt_whole_folder(const char *dir, int (*fill)(void *arg, int fd), void *arg)
{
	CLEANUP_FREE char *partial = ckpt_text("%s.ckptfs-%d", dir, (int)getpid());
	CLEANUP_FD int to = -1;
	CLEANUP_FD int above = -1;
	int rc = check_empty(dir);

	if (rc)
		return ckpt_fail_errno(dir, HINT, rc);
	if (mkdir(partial, 0700))
		return errno == ENOENT
			       ? ckpt_fail_errno(dir, "make the folder that it is in first: `mkdir -p`", -ENOENT)
			       : ckpt_fail_errno(partial, NULL, -errno);
	to = open(partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = to < 0 ? ckpt_fail_errno(partial, NULL, -errno) : fill(arg, to);
	above = rc ? -1 : openat(to, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!rc && (above < 0 || syncfs(to)))
		rc = ckpt_fail_errno(partial, NULL, -errno);
	if (!rc && rename(partial, dir))
		rc = ckpt_fail_errno(dir, HINT, -errno);
	if (!rc && fsync(above))
		rc = ckpt_fail_errno(dir, "it was copied, but may be lost in a power cut", -errno);
	if (rc)
		nftw(partial, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	return rc;
}
