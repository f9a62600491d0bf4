#include "tools/cuda/save_files.h"

#include "tools/cuda/pool.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>

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

static int set_direct(int fd, bool direct)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	flags = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
	return fcntl(fd, F_SETFL, flags) ? -errno : 0;
}

int ckpt_save_file_create(int dirfd, const struct ckpt_save_file *f, unsigned flags, struct ckpt_save_open *ret_open)
{
	CLEANUP_FREE char *path = strdup(f->path);
	CLEANUP_FD int fd = -1;
	int rc = path ? make_folders(dirfd, path) : -ENOMEM;
	bool direct = false;

	if (!rc) {
		rc = ckpt_sys.open(dirfd, f->path, O_WRONLY | O_CREAT | O_EXCL, 0666);
		if (rc >= 0) {
			fd = rc;
			rc = 0;
		}
	}
	if (!rc && !(flags & CKPT_CUDA_BUFFERED) && !f->is_text) {
		rc = set_direct(fd, true);
		direct = !rc;
		if (rc && !(flags & CKPT_CUDA_DIRECT))
			rc = 0;
	}
	if (!rc)
		*ret_open = (struct ckpt_save_open){TAKE_FD(fd), direct};
	return rc;
}

int ckpt_save_file_write(struct ckpt_save_open *o, unsigned flags, const void *buffer, uint64_t bytes, uint64_t offset)
{
	uint64_t whole = (bytes + CKPT_POOL_ALIGN - 1) / CKPT_POOL_ALIGN * CKPT_POOL_ALIGN;
	ssize_t n = bytes ? ckpt_sys.pwrite(o->fd, buffer, o->direct ? whole : bytes, (off_t)offset) : 0;

	// A disk of larger sectors takes other offsets only. Other threads may write with either flag.
	if (n == -EINVAL && o->direct && !(flags & CKPT_CUDA_DIRECT) && !set_direct(o->fd, false))
		n = ckpt_sys.pwrite(o->fd, buffer, whole, (off_t)offset);
	return n < 0 ? (int)n : 0;
}

static int sync_folder(int dirfd, const char *folder)
{
	int fd = ckpt_sys.open(dirfd, folder, O_RDONLY | O_DIRECTORY, 0), rc;

	if (fd < 0)
		return fd;
	rc = ckpt_sys.fsync(fd);
	ckpt_sys.close(fd);
	return rc;
}

// A name is on disk when its folder is: that of the file, and those of the folders above it.
static int sync_folders(int dirfd, const char *path)
{
	CLEANUP_FREE char *folder = strdup(path);
	int rc = folder ? 0 : -ENOMEM;

	for (char *slash; !rc && (slash = strrchr(folder, '/'));) {
		*slash = '\0';
		rc = sync_folder(dirfd, folder);
	}
	return rc ? rc : sync_folder(dirfd, ".");
}

int ckpt_save_file_close(int dirfd, const struct ckpt_save_file *f, struct ckpt_save_open *o, bool whole)
{
	int rc = 0, closed;

	if (o->fd < 0)
		return 0;
	if (whole && o->direct)
		rc = ckpt_sys.ftruncate(o->fd, (off_t)f->bytes);
	if (whole && !rc)
		rc = ckpt_sys.fdatasync(o->fd);
	closed = ckpt_sys.close(o->fd);
	o->fd = -1;
	if (whole && !rc)
		rc = closed ? closed : sync_folders(dirfd, f->path);
	return rc;
}

int ckpt_save_file_put(int dirfd, const char *path, const char *text)
{
	int fd = ckpt_sys.open(dirfd, path, O_WRONLY | O_CREAT | O_EXCL, 0666), closed;
	ssize_t n = fd < 0 ? fd : ckpt_sys.pwrite(fd, text, strlen(text), 0);
	int rc = n < 0 ? (int)n : ckpt_sys.fdatasync(fd);

	if (!rc)
		rc = sync_folders(dirfd, path);
	if (fd < 0)
		return rc;
	if (rc)
		(void)ckpt_sys.unlink(dirfd, path, 0);
	closed = ckpt_sys.close(fd);
	if (!rc && closed)
		(void)ckpt_sys.unlink(dirfd, path, 0);
	return rc ? rc : closed;
}
