// A name of a copy is MADE (in trash/) by ckpt_copy_make, PLACED by ckpt_copy_place, which exchanges it with the leftover's
// file, and MADE again by ckpt_copy_undo. The list is empty after undo and keep.
//
// Invariants:
//  1. The leftover's inode always has a name, in the step or in trash/, until ckpt_copy_keep: its writer can be given it
//     back at any moment.
//  2. A copy that is in the step is on disk, content first.
#include "core/save/copy.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/clone.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

struct copy_name {
	char *path;      // in the step
	uint64_t of_ino; // the leftover's file
	uint64_t ino;    // the copy
	bool placed;
};

struct touched_dir {
	char *path;
	struct timespec mtime; // before the exchange
};

struct ckpt_copies {
	uint64_t salt;
	struct copy_name *names;
	size_t name_count, name_cap;
	struct touched_dir *dirs;
	size_t dir_count, dir_cap;
};

// Where name number i is while it is not in the step; when it is, the leftover's file.
static void aside(const struct ckpt_copies *c, size_t i, char ret_name[64])
{
	snprintf(ret_name, 64, CKPT_TRASH_COPY "%016llx-%zu", (unsigned long long)c->salt, i);
}

// --- Making -----------------------------------------------------------------------------------------------------------

static int make_first(struct ckpt_step *step, const char *name, int fd, const struct statx *stx)
{
	CLEANUP_FD int copy = ckpt_sys.open(step->store->trash_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);

	return copy < 0 ? copy : ckpt_clone_file(fd, copy, stx, true);
}

static int list_new(struct ckpt_step *step)
{
	struct ckpt_copies *c = calloc(1, sizeof(*c));
	int rc = c ? ckpt_sys.random(&c->salt, sizeof(c->salt)) : -ENOMEM;

	if (rc)
		free(c);
	else
		ckpt_copying_of(step)->copies = c;
	return rc;
}

static int list_add(struct ckpt_copies *c, const char *path, uint64_t of_ino)
{
	int rc = ckpt_grow((void **)&c->names, &c->name_cap, c->name_count + 1, sizeof(*c->names));
	char *copy = rc ? NULL : strdup(path);

	if (!copy)
		return -ENOMEM;
	c->names[c->name_count++] = (struct copy_name){.path = copy, .of_ino = of_ino};
	return 0;
}

int ckpt_copy_make(struct ckpt_step *step, const char *path, int fd, const struct statx *stx, int *ret_fd)
{
	const struct ckpt_copying *copying = ckpt_copying_of(step);
	int trash_fd = step->store->trash_fd, rc = copying->copies ? 0 : list_new(step), copy;
	char name[64], first[64];
	struct statx there;
	size_t i, n;

	if (!rc)
		rc = list_add(copying->copies, path, ckpt_store_ino(stx));
	if (rc)
		return rc;
	n = copying->copies->name_count - 1;
	for (i = 0; copying->copies->names[i].of_ino != ckpt_store_ino(stx); i++)
		;
	aside(copying->copies, n, name);
	aside(copying->copies, i, first);
	rc = i < n ? ckpt_sys.link(trash_fd, first, trash_fd, name) : make_first(step, name, fd, stx);
	copy = rc ? rc : ckpt_sys.open(trash_fd, name, O_RDONLY, 0);
	if (copy < 0)
		return copy;
	if (statx(copy, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &there)) {
		rc = -errno;
		ckpt_sys.close(copy);
		return rc;
	}
	copying->copies->names[n].ino = ckpt_store_ino(&there);
	*ret_fd = copy;
	return 0;
}

int ckpt_copy_sync(struct ckpt_step *step, const char **ret_path)
{
	struct ckpt_copies *c = ckpt_copying_of(step)->copies;

	for (size_t i = 0; c && i < c->name_count; i++) {
		char name[64];
		int rc;

		aside(c, i, name);
		CLEANUP_FD int fd = ckpt_sys.open(step->store->trash_fd, name, O_RDONLY, 0);
		rc = fd < 0 ? fd : ckpt_sys.fsync(fd);
		if (rc) {
			*ret_path = c->names[i].path;
			return rc;
		}
	}
	return 0;
}

// --- Placing ----------------------------------------------------------------------------------------------------------

static int dir_of(struct ckpt_step *step, const char *path, char **ret_path, int *ret_fd)
{
	const char *slash = strrchr(path, '/');
	char *parent = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	int fd = parent ? ckpt_sys.open(step->dirfd, parent, O_RDONLY | O_DIRECTORY, 0) : -ENOMEM;

	if (fd < 0) {
		free(parent);
		return fd;
	}
	*ret_path = parent;
	*ret_fd = fd;
	return 0;
}

// Remembers the directory of a name, unless it is that of the name before.
static int touch_dir(struct ckpt_step *step, const char *path)
{
	struct ckpt_copies *c = ckpt_copying_of(step)->copies;
	CLEANUP_FREE char *parent = NULL;
	CLEANUP_FD int fd = -1;
	struct stat st;
	int rc = dir_of(step, path, &parent, &fd);

	if (rc)
		return rc;
	if (c->dir_count && !strcmp(c->dirs[c->dir_count - 1].path, parent))
		return 0;
	if (fstat(fd, &st))
		return -errno;
	rc = ckpt_grow((void **)&c->dirs, &c->dir_cap, c->dir_count + 1, sizeof(*c->dirs));
	if (rc)
		return rc;
	c->dirs[c->dir_count++] = (struct touched_dir){.path = TAKE_PTR(parent), .mtime = st.st_mtim};
	return 0;
}

int ckpt_copy_place(struct ckpt_step *step)
{
	struct ckpt_copies *c = ckpt_copying_of(step)->copies;
	int rc = 0;

	for (size_t i = 0; c && i < c->name_count && !rc; i++) {
		char name[64];

		aside(c, i, name);
		rc = touch_dir(step, c->names[i].path);
		if (!rc)
			rc = ckpt_sys.rename(step->store->trash_fd, name, step->dirfd, c->names[i].path,
					     RENAME_EXCHANGE);
		c->names[i].placed = !rc;
	}
	for (size_t i = 0; c && i < c->dir_count && !rc; i++) {
		CLEANUP_FD int fd = ckpt_sys.open(step->dirfd, c->dirs[i].path, O_RDONLY | O_DIRECTORY, 0);

		rc = fd < 0 ? fd : ckpt_sys.fsync(fd);
	}
	return rc;
}

// --- The end of it ----------------------------------------------------------------------------------------------------

// 0: the leftover's file is back, or its name is another's by now.
static int put_back(struct ckpt_step *step, struct copy_name *n, const char *name)
{
	struct statx there;
	int rc;

	if (statx(step->dirfd, n->path, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &there))
		rc = errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	else if (ckpt_store_ino(&there) != n->ino)
		rc = 0;
	else
		rc = ckpt_sys.rename(step->store->trash_fd, name, step->dirfd, n->path, RENAME_EXCHANGE);
	if (!rc)
		n->placed = false;
	return rc;
}

// As if nothing had been. A crash must not find the copy in the step and the leftover's file in the trash, if a client
// has fsynced that since; what cannot be done of this is no reason to say that the file is not back.
static void mend_dirs(struct ckpt_step *step)
{
	struct ckpt_copies *c = ckpt_copying_of(step)->copies;

	for (size_t i = c->dir_count; i-- > 0;) {
		CLEANUP_FD int fd = ckpt_sys.open(step->dirfd, c->dirs[i].path, O_RDONLY | O_DIRECTORY, 0);
		struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, c->dirs[i].mtime};

		if (fd < 0)
			continue;
		(void)futimens(fd, times);
		(void)ckpt_sys.fsync(fd);
	}
}

static void remove_aside(struct ckpt_step *step)
{
	char name[64];

	for (size_t i = 0; i < ckpt_copying_of(step)->copies->name_count; i++) {
		aside(ckpt_copying_of(step)->copies, i, name);
		(void)ckpt_sys.unlink(step->store->trash_fd, name, 0); // else at the next start
	}
	ckpt_copy_forget(step);
}

int ckpt_copy_undo(struct ckpt_step *step)
{
	struct ckpt_copies *c = ckpt_copying_of(step)->copies;
	int first = 0;

	for (size_t i = 0; c && i < c->name_count; i++) {
		char name[64];
		int rc;

		if (!c->names[i].placed)
			continue;
		aside(c, i, name);
		rc = put_back(step, &c->names[i], name);
		first = first ? first : rc;
	}
	if (!c || first)
		return first;
	mend_dirs(step);
	remove_aside(step);
	return 0;
}

void ckpt_copy_keep(struct ckpt_step *step)
{
	if (ckpt_copying_of(step)->copies)
		remove_aside(step);
}

void ckpt_copy_forget(struct ckpt_step *step)
{
	struct ckpt_copies *c = TAKE_PTR(ckpt_copying_of(step)->copies);

	if (!c)
		return;
	for (size_t i = 0; i < c->name_count; i++)
		free(c->names[i].path);
	for (size_t i = 0; i < c->dir_count; i++)
		free(c->dirs[i].path);
	free(c->names);
	free(c->dirs);
	free(c);
}

static void copying_done(void *step)
{
	ckpt_copy_forget(step);
}

struct ckpt_part ckpt_copying_part = {.bytes = sizeof(struct ckpt_copying), .done = copying_done};
