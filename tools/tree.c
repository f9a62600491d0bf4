#include "tools/tree.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/name.h"
#include "core/save/clone.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct linked { // a file that has several names, by its first
	dev_t dev;
	ino_t ino;
	char path[];
};

struct walk {
	struct ckpt_tree *t;
	int to;      // the top that is copied to
	void *links; // of tsearch(3)
	int (*each)(struct walk *w, int from, int to, const struct dirent *d, const char *path,
		    const struct statx *stx);
	uint64_t bytes;
};

static int by_file(const void *a, const void *b)
{
	const struct linked *x = a, *y = b;

	return x->ino != y->ino ? (x->ino > y->ino) - (x->ino < y->ino) : (x->dev > y->dev) - (x->dev < y->dev);
}

static void blame(struct ckpt_tree *t, const char *path)
{
	if (!t->blamed)
		t->blamed = strdup(path);
}

static int walk_dir(struct walk *w, int from, int to, const char *path);

// Names are those of the directory as it was read; what has gone since is passed over.
static int walk_one(struct walk *w, int from, int to, const struct dirent *d, const char *path)
{
	struct statx stx;
	int rc;

	if (w->t->stop && *w->t->stop)
		return -EINTR;
	if (statx(from, d->d_name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &stx))
		rc = errno == ENOENT ? 0 : -errno;
	else
		rc = w->each(w, from, to, d, path, &stx);
	if (rc)
		blame(w->t, path);
	return rc;
}

static int walk_dir(struct walk *w, int from, int to, const char *path)
{
	int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (!rc && (errno = 0, d = readdir(dir))) {
		char below[PATH_MAX];

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
		    (!*path && w->t->skip && !strcmp(d->d_name, w->t->skip)))
			continue;
		rc = snprintf(below, sizeof(below), "%s%s%s", path, *path ? "/" : "", d->d_name) >= (int)sizeof(below)
			     ? -ENAMETOOLONG
			     : walk_one(w, from, to, d, below);
	}
	if (!rc)
		rc = -errno;
	closedir(dir);
	return rc;
}

// --- Counting -----------------------------------------------------------------------------------------------------------

static int count_one(struct walk *w, int from, int to, const struct dirent *d, const char *path,
		     const struct statx *stx)
{
	CLEANUP_FD int fd = -1;

	if (S_ISREG(stx->stx_mode))
		w->bytes += stx->stx_size;
	if (!S_ISDIR(stx->stx_mode))
		return 0;
	fd = openat(from, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : walk_dir(w, fd, to, path);
}

uint64_t ckpt_tree_bytes(int dirfd)
{
	struct ckpt_tree t = {0};
	struct walk w = {.t = &t, .each = count_one};
	int rc = walk_dir(&w, dirfd, -1, "");

	free(t.blamed);
	return rc ? 0 : w.bytes;
}

// --- Copying ------------------------------------------------------------------------------------------------------------

// 1: it has another name already, and this one was linked to that.
static int link_again(struct walk *w, int to, const char *name, const char *path, const struct statx *stx)
{
	struct linked *l = malloc(sizeof(*l) + strlen(path) + 1);
	void *found;

	if (!l)
		return -ENOMEM;
	l->dev = makedev(stx->stx_dev_major, stx->stx_dev_minor);
	l->ino = stx->stx_ino;
	strcpy(l->path, path);
	found = tsearch(l, &w->links, by_file);
	if (!found) {
		free(l);
		return -ENOMEM;
	}
	if (*(struct linked **)found == l)
		return 0;
	free(l);
	return linkat(w->to, (*(struct linked **)found)->path, to, name, 0) ? -errno : 1;
}

static int copy_file(struct walk *w, int from, int to, const char *name, const char *path, const struct statx *stx)
{
	int rc = stx->stx_nlink > 1 ? link_again(w, to, name, path, stx) : 0;
	CLEANUP_FD int in = -1;
	CLEANUP_FD int out = -1;

	if (rc)
		return MIN(rc, 0);
	in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (in < 0)
		return -errno;
	out = openat(to, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	rc = ckpt_clone_file(in, out, stx, false);
	w->t->files += !rc;
	w->t->bytes += rc ? 0 : stx->stx_size;
	if (w->t->progress)
		w->t->progress(w->t->bytes);
	return rc;
}

static int copy_symlink(int from, int to, const char *name, const struct statx *stx)
{
	struct timespec times[2] = {{0, UTIME_OMIT}, {stx->stx_mtime.tv_sec, stx->stx_mtime.tv_nsec}};
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (symlinkat(target, to, name))
		return -errno;
	if (geteuid() == 0 && fchownat(to, name, stx->stx_uid, stx->stx_gid, AT_SYMLINK_NOFOLLOW))
		return -errno;
	return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static bool is_target(const struct walk *w, const struct statx *stx)
{
	struct stat st;

	return !fstat(w->to, &st) && st.st_ino == stx->stx_ino &&
	       st.st_dev == makedev(stx->stx_dev_major, stx->stx_dev_minor);
}

static int copy_dir(struct walk *w, int from, int to, const char *name, const char *path, const struct statx *stx)
{
	if (is_target(w, stx))
		return -EINVAL; // the folder holds the very store
	CLEANUP_FD int in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP_FD int out = -1;
	int rc;

	if (in < 0 || mkdirat(to, name, 0700))
		return -errno;
	out = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (out < 0)
		return -errno;
	rc = walk_dir(w, in, out, path);
	return rc ? rc : ckpt_clone_attributes(in, out, stx, false);
}

static int copy_one(struct walk *w, int from, int to, const struct dirent *d, const char *path, const struct statx *stx)
{
	int rc = ckpt_name_check(d->d_name, strlen(d->d_name));

	if (rc)
		return rc;
	if (S_ISREG(stx->stx_mode))
		return copy_file(w, from, to, d->d_name, path, stx);
	if (S_ISDIR(stx->stx_mode))
		return copy_dir(w, from, to, d->d_name, path, stx);
	return S_ISLNK(stx->stx_mode) ? copy_symlink(from, to, d->d_name, stx) : -EINVAL;
}

int ckpt_tree_copy(struct ckpt_tree *t, int from, int to)
{
	struct walk w = {.t = t, .to = to, .each = copy_one};
	struct statx stx;
	int rc = statx(from, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx) ? -errno : walk_dir(&w, from, to, "");

	if (!rc)
		rc = ckpt_clone_attributes(from, to, &stx, false);
	tdestroy(w.links, free);
	return rc;
}
