#include "core/step/store_file.h"

#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

// A small file written whole: temp name, fsync, rename, fsync of the directory.
int ckpt_store_file_write(int dirfd, const char *name, const char *text)
{
	char temp[64];
	ssize_t n;
	int fd, rc;

	snprintf(temp, sizeof(temp), "%s.new", name);
	ckpt_sys.unlink(dirfd, temp, 0);
	fd = ckpt_sys.open(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (fd < 0)
		return fd;
	n = ckpt_sys.pwrite(fd, text, strlen(text), 0);
	rc = n < 0 ? (int)n : ckpt_sys.fsync(fd);
	ckpt_sys.close(fd);
	if (!rc)
		rc = ckpt_sys.rename(dirfd, temp, dirfd, name, 0);
	return rc ? rc : ckpt_sys.fsync(dirfd);
}

int ckpt_store_file_read(int dirfd, const char *name, json_t **ret_json)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
	CLEANUP_FREE char *text = malloc(CKPT_STORE_FILE_BYTES_MAX);
	struct stat st;
	ssize_t n;
	int rc;

	if (fd < 0)
		return fd;
	if (!text)
		return -ENOMEM;
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	n = ckpt_sys.pread(fd, text, CKPT_STORE_FILE_BYTES_MAX, 0);
	if (n < 0)
		return (int)n;
	rc = ckpt_json_load(text, (size_t)n, JSON_REJECT_DUPLICATES, NULL, ret_json);
	return rc == -EINVAL ? -EBADMSG : rc;
}
