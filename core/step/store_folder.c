// The ids of folders that hold steps: an attribute of the folder in the plain tree, which the keys of its steps begin with.
#include "core/step/store_folder.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/walk.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define FOLDER_XATTR "user.ckptfs.folder"

struct ckpt_synced_folder {
	struct ckpt_synced_folder *next;
	char id[CKPT_FOLDER_ID_LEN + 1];
};

static bool folder_is_synced(struct ckpt_store *s, const char *id)
{
	LOCK_SCOPE(&s->lock);
	const struct ckpt_synced_folder *f = ckpt_synced_folders_of(s)->first;

	while (f && strcmp(f->id, id))
		f = f->next;
	return f;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

// The folder itself, and its name in each folder above it, up to the top of the plain tree.
static int sync_upwards(struct ckpt_store *s, int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	struct stat top, here;

	if (fstat(s->tree_fd, &top))
		rc = -errno;
	for (int depth = 0; !rc && depth < PATH_MAX / 2; depth++) {
		int above;

		rc = fd < 0 || fstat(fd, &here) ? -errno : ckpt_sys.fsync(fd);
		if (rc || is_same(&here, &top))
			break;
		above = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ckpt_sys.close(fd);
		fd = above;
	}
	if (fd >= 0)
		ckpt_sys.close(fd);
	return rc;
}

// The steps of a folder are found through its id: that and the folders above must be on disk before the first of them.
// That it can be read says nothing: who wrote it may have failed to sync it, or is about to.
static int folder_sync(struct ckpt_store *s, int dirfd, const char *id)
{
	struct ckpt_synced_folder *f;
	int rc = folder_is_synced(s, id) ? 0 : sync_upwards(s, dirfd);

	if (rc || folder_is_synced(s, id) || !(f = malloc(sizeof(*f))))
		return rc; // not remembered: it is done once more
	memcpy(f->id, id, sizeof(f->id));
	ckpt_lock_take(&s->lock);
	f->next = ckpt_synced_folders_of(s)->first;
	ckpt_synced_folders_of(s)->first = f;
	ckpt_lock_drop(&s->lock);
	return 0;
}

// 0; -ENOENT it has none, or none of ours. A failure is not that: who took it for none would lose the folder's steps from sight.
static int folder_read(int dirfd, char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	char path[32];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", dirfd);
	n = getxattr(path, FOLDER_XATTR, ret_id, CKPT_FOLDER_ID_LEN);
	if (n < 0)
		return errno == ENODATA || errno == ERANGE || errno == EOPNOTSUPP ? -ENOENT : -errno;
	ret_id[CKPT_FOLDER_ID_LEN] = '\0';
	return n == CKPT_FOLDER_ID_LEN && *ret_id && ckpt_name_is_folder_id(ret_id) ? 0 : -ENOENT;
}

struct other {
	const char *id;
	ino_t ino;
};

static int look_at_other(void *arg, int dirfd, const char *name, const struct statx *stx)
{
	const struct other *o = arg;
	char has[CKPT_FOLDER_ID_LEN + 1];
	int fd;
	bool is;

	if (!S_ISDIR(stx->stx_mode) || stx->stx_ino == o->ino)
		return 0;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	is = fd >= 0 && !folder_read(fd, has) && !strcmp(has, o->id);
	if (fd >= 0)
		close(fd);
	return is;
}

// 1: another folder has it, one that was renamed since. 0; -errno.
static int is_taken(struct ckpt_store *s, const char *id, ino_t ino)
{
	struct other other = {id, ino};

	return ckpt_walk(s->tree_fd, ".", look_at_other, &other);
}

static int random_id(char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	uint8_t bytes[CKPT_FOLDER_ID_LEN / 2];
	int rc = ckpt_sys.random(bytes, sizeof(bytes));

	if (!rc)
		ckpt_hex(bytes, sizeof(bytes), ret_id);
	return rc;
}

static int name_of(int dirfd, char ret_path[PATH_MAX], const char **ret_name)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, ret_path, PATH_MAX - 1);
	if (n < 0)
		return -errno;
	ret_path[n] = '\0';
	*ret_name = strrchr(ret_path, '/');
	*ret_name = *ret_name ? *ret_name + 1 : ret_path;
	return 0;
}

static int folder_make(struct ckpt_store *s, int dirfd, const struct ckpt_folder_ids *ids,
		       char ret_id[CKPT_FOLDER_ID_LEN + 1]);

static int id_above(struct ckpt_store *s, int dirfd, char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	CLEANUP_FD int above = openat(dirfd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat top, st;
	int rc;

	*ret_id = '\0';
	if (above < 0 || fstat(s->tree_fd, &top) || fstat(above, &st))
		return -errno;
	if (is_same(&top, &st))
		return 0;
	rc = folder_read(above, ret_id);
	return rc == -ENOENT ? folder_make(s, above, NULL, ret_id) : rc;
}

// Two nodes that make the same folder give it the same id: so what each of them saves there is in one folder.
static int derive(struct ckpt_store *s, int dirfd, const struct ckpt_folder_ids *ids,
		  char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	char above[CKPT_FOLDER_ID_LEN + 1], path[PATH_MAX];
	uint8_t sha256[CKPT_SHA256_LEN];
	struct ckpt_sha256 sum;
	const char *name = "";
	struct stat st;
	int rc = id_above(s, dirfd, above);

	if (!rc)
		rc = name_of(dirfd, path, &name);
	if (rc)
		return rc;
	ckpt_sha256_begin(&sum);
	ckpt_sha256_add(&sum, s->id, strlen(s->id));
	ckpt_sha256_add(&sum, above, strlen(above));
	ckpt_sha256_add(&sum, "/", 1);
	ckpt_sha256_add(&sum, name, strlen(name));
	ckpt_sha256_end(&sum, sha256);
	ckpt_hex(sha256, CKPT_FOLDER_ID_LEN / 2, ret_id);
	if (fstat(dirfd, &st))
		return -errno;
	rc = ids ? ids->has(ids->arg, ret_id) : is_taken(s, ret_id, st.st_ino);
	return rc < 0 ? rc : rc ? random_id(ret_id) : 0;
}

int ckpt_store_folder_set(int dirfd, const char *id)
{
	return ckpt_sys.fsetxattr(dirfd, FOLDER_XATTR, id, CKPT_FOLDER_ID_LEN, 0);
}

// A new id, unless another thread was quicker; what is no id of ours is replaced.
static int folder_make(struct ckpt_store *s, int dirfd, const struct ckpt_folder_ids *ids,
		       char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	CLEANUP_FD int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char id[CKPT_FOLDER_ID_LEN + 1];
	int rc = fd < 0 ? -errno : derive(s, fd, ids, id);

	if (rc)
		return rc;
	rc = ckpt_sys.fsetxattr(fd, FOLDER_XATTR, id, CKPT_FOLDER_ID_LEN, XATTR_CREATE);
	if (rc == -EEXIST) {
		rc = folder_read(dirfd, ret_id);
		if (rc != -ENOENT)
			return rc;
		rc = ckpt_sys.fsetxattr(fd, FOLDER_XATTR, id, CKPT_FOLDER_ID_LEN, XATTR_REPLACE);
	}
	memcpy(ret_id, id, sizeof(id));
	return rc;
}

int ckpt_store_folder_make(struct ckpt_store *s, int dirfd, const struct ckpt_folder_ids *ids, char *ret_id)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	int rc = folder_read(dirfd, id);

	if (rc == -ENOENT)
		rc = folder_make(s, dirfd, ids, id);
	if (!rc)
		rc = folder_sync(s, dirfd, id);
	if (!rc)
		memcpy(ret_id, id, sizeof(id));
	return rc;
}

int ckpt_store_folder_id(struct ckpt_store *s, int dirfd, bool make, char *ret_id)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	int rc = make ? ckpt_store_folder_make(s, dirfd, NULL, id) : folder_read(dirfd, id);

	if (!rc)
		memcpy(ret_id, id, sizeof(id));
	return rc;
}

static void synced_folders_done(void *store)
{
	for (struct ckpt_synced_folder *f; (f = ckpt_synced_folders_of(store)->first);) {
		ckpt_synced_folders_of(store)->first = f->next;
		free(f);
	}
}

struct ckpt_part ckpt_synced_folders_part = {.bytes = sizeof(struct ckpt_synced_folders), .done = synced_folders_done};
