#include "core/array/write_folder.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>

struct file {
	int fd;
	char path[];
};

static int make_folders(int dirfd, char *path)
{
	int rc = 0;

	for (char *slash = strchr(path, '/'); slash && !rc; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		rc = ckpt_sys.mkdir(dirfd, path, 0777);
		*slash = '/';
		if (rc == -EEXIST)
			rc = 0;
	}
	return rc;
}

static int create(void *arg, const char *path, uint64_t bytes, void **ret_file)
{
	int dirfd = *(const int *)arg, rc;
	size_t len = strlen(path) + 1;
	struct file *f = malloc(sizeof(*f) + len);

	if (!f)
		return -ENOMEM;
	memcpy(f->path, path, len);
	rc = make_folders(dirfd, f->path);
	if (!rc)
		rc = f->fd = ckpt_sys.open(dirfd, path, O_WRONLY | O_CREAT | O_EXCL, 0666);
	if (rc < 0) {
		free(f);
		return rc;
	}
	*ret_file = f;
	rc = ckpt_sys.ftruncate(f->fd, (off_t)bytes);
	if (rc) {
		ckpt_sys.close(f->fd);
		ckpt_sys.unlink(dirfd, path, 0);
		free(f);
	}
	return rc;
}

static int write_at(void *arg __attribute__((unused)), void *file, const void *bytes, size_t len, uint64_t offset)
{
	ssize_t n = ckpt_sys.pwrite(((struct file *)file)->fd, bytes, len, (off_t)offset);

	return n < 0 ? (int)n : 0;
}

static int copy(void *arg __attribute__((unused)), void *file, int from_fd, uint64_t from, uint64_t len,
		uint64_t offset)
{
	return ckpt_sys.copy_range(from_fd, from, ((struct file *)file)->fd, offset, len);
}

static int close_file(void *arg, void *file, bool whole)
{
	struct file *f = file;
	int rc = ckpt_sys.close(f->fd);

	if (!whole || rc)
		ckpt_sys.unlink(*(const int *)arg, f->path, 0);
	free(f);
	return rc;
}

struct ckpt_write_target ckpt_write_folder(const int *fd)
{
	return (struct ckpt_write_target){create, write_at, close_file, (void *)fd, copy};
}
