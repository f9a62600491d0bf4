#include "backends/spare.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define NAME_MAX_BYTES sizeof(CKPT_SPARE_PREFIX "99")

static void name_of(unsigned i, char name[static NAME_MAX_BYTES])
{
	snprintf(name, NAME_MAX_BYTES, CKPT_SPARE_PREFIX "%u", i % 100);
}

bool ckpt_spare_is(const char *name)
{
	return !strncmp(name, CKPT_SPARE_PREFIX, strlen(CKPT_SPARE_PREFIX));
}

// After a power cut one may have no blocks, or some of them.
static bool is_whole(int tmp_fd, const char *name)
{
	struct stat st;

	return !fstatat(tmp_fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_blocks * 512 >= CKPT_SPARE_BYTES;
}

// Where the filesystem cannot promise blocks, bytes take them.
static int give_blocks(int fd)
{
	static const char zeroes[CKPT_SPARE_BYTES];

	if (!fallocate(fd, 0, 0, CKPT_SPARE_BYTES))
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	return (int)MIN(ckpt_sys.pwrite(fd, zeroes, sizeof(zeroes), 0), (ssize_t)0);
}

// Nobody takes one that is not whole: it has its name last. What a process that died has left under the other name, the next sweep
// of tmp/ removes.
static bool make(int tmp_fd, const char *name)
{
	char half[sizeof("new-") + NAME_MAX_BYTES];
	CLEANUP_FD int fd = -1;
	int rc;

	snprintf(half, sizeof(half), "new-%s", name);
	fd = ckpt_sys.open(tmp_fd, half, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return false;
	rc = give_blocks(fd);
	if (!rc)
		rc = ckpt_sys.rename(tmp_fd, half, tmp_fd, name, 0);
	if (rc)
		(void)ckpt_sys.unlink(tmp_fd, half, 0);
	return !rc;
}

bool ckpt_spare_fill(int tmp_fd)
{
	char name[NAME_MAX_BYTES];
	bool all = true;

	for (unsigned i = 0; i < CKPT_SPARE_COUNT && all; i++) {
		name_of(i, name);
		all = is_whole(tmp_fd, name) || make(tmp_fd, name);
	}
	return all;
}

// From the last on, so that a fill, which ends at the first that it cannot make, leaves no gap.
int ckpt_spare_take(int tmp_fd, const char *name)
{
	char spare[NAME_MAX_BYTES];
	int rc = -ENOENT;

	for (int i = CKPT_SPARE_COUNT; i-- > 0 && rc;) {
		name_of(i, spare);
		rc = ckpt_sys.rename(tmp_fd, spare, tmp_fd, name, RENAME_NOREPLACE);
	}
	return rc ? -ENOSPC : ckpt_sys.open(tmp_fd, name, O_WRONLY, 0);
}

bool ckpt_spare_drop(int tmp_fd)
{
	char spare[NAME_MAX_BYTES];
	int rc = -ENOENT;

	for (int i = CKPT_SPARE_COUNT; i-- > 0 && rc;) {
		name_of(i, spare);
		rc = ckpt_sys.unlink(tmp_fd, spare, 0);
	}
	return !rc;
}
