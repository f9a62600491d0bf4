#include "core/step/folders.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/store_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define DEPTH_MAX 64

static int add(struct ckpt_folders *f, const char *id, const char *path)
{
	int rc = ckpt_grow((void **)&f->at, &f->cap, f->count + 1, sizeof(*f->at));
	char *copy = rc ? NULL : strdup(path);

	if (!copy)
		return -ENOMEM;
	snprintf(f->at[f->count].id, sizeof(f->at[f->count].id), "%s", id);
	f->at[f->count++].path = copy;
	return 0;
}

// Their ids are attributes of the directories. One that is not ours to read has none.
static int add_folder(struct ckpt_store *s, struct ckpt_folders *f, int dirfd, const char *path)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	int rc = ckpt_store_folder_id(s, dirfd, false, id);

	if (rc)
		return rc == -ENOENT || rc == -EACCES ? 0 : rc;
	return add(f, id, path);
}

static int walk(struct ckpt_store *s, struct ckpt_folders *f, int dirfd, const char *path, int depth);

static int walk_below(struct ckpt_store *s, struct ckpt_folders *f, int dirfd, const struct dirent *d, const char *path,
		      int depth)
{
	CLEANUP_FREE char *below = NULL;
	int fd;

	if (d->d_type != DT_DIR && d->d_type != DT_UNKNOWN)
		return 0;
	fd = openat(dirfd, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) // it was removed or replaced meanwhile, or is not ours to read
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EACCES ? 0 : -errno;
	if (asprintf(&below, "%s%s%s", path, *path ? "/" : "", d->d_name) < 0) {
		below = NULL;
		close(fd);
		return -ENOMEM;
	}
	return walk(s, f, fd, below, depth);
}

// dirfd is taken.
static int walk(struct ckpt_store *s, struct ckpt_folders *f, int dirfd, const char *path, int depth)
{
	DIR *dir = fdopendir(dirfd);
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		close(dirfd);
		return rc;
	}
	if (*path)
		rc = add_folder(s, f, dirfd, path);
	while (!rc && depth < DEPTH_MAX && !(rc = ckpt_sys.readdir(dir, &d)) && d)
		rc = walk_below(s, f, dirfd, d, path, depth + 1);
	closedir(dir);
	return rc;
}

static int any_in_folders(struct ckpt_store *s, bool *ret_any)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list(s, NULL, ~0u, &steps, &count);

	if (rc)
		return rc;
	*ret_any = false;
	ckpt_lock_take(&s->lock);
	for (size_t i = 0; i < count && !*ret_any; i++)
		*ret_any = steps[i]->folder_id[0];
	ckpt_lock_drop(&s->lock);
	ckpt_step_list_free(steps, count);
	return 0;
}

int ckpt_folders_read(struct ckpt_store *s, struct ckpt_folders *ret_folders)
{
	struct ckpt_folders f = {0};
	bool any;
	int fd, rc = any_in_folders(s, &any);

	if (!rc && any) {
		fd = openat(s->tree_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = fd < 0 ? -errno : walk(s, &f, fd, "", 0);
	}
	if (rc) {
		ckpt_folders_done(&f);
		return rc;
	}
	*ret_folders = f;
	return 0;
}

void ckpt_folders_done(struct ckpt_folders *f)
{
	for (size_t i = 0; i < f->count; i++)
		free(f->at[i].path);
	free(f->at);
	*f = (struct ckpt_folders){0};
}

int ckpt_folders_id(const struct ckpt_folders *f, const char *path, size_t len, char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	const char *id = len ? NULL : "";

	for (size_t i = 0; i < f->count && !id; i++)
		if (strlen(f->at[i].path) == len && !memcmp(f->at[i].path, path, len))
			id = f->at[i].id;
	if (!id && path[0] == '?' && len == CKPT_FOLDER_ID_LEN + 1)
		id = path + 1;
	if (!id)
		return -ENOENT;
	snprintf(ret_id, CKPT_FOLDER_ID_LEN + 1, "%.*s", CKPT_FOLDER_ID_LEN, id);
	return 0;
}

char *ckpt_folders_name(const struct ckpt_folders *f, const char *folder_id, const char *name)
{
	char *text;

	if (!*folder_id)
		return strdup(name);
	for (size_t i = 0; i < f->count; i++)
		if (!strcmp(f->at[i].id, folder_id))
			return asprintf(&text, "%s/%s", f->at[i].path, name) < 0 ? NULL : text;
	return asprintf(&text, "?%s/%s", folder_id, name) < 0 ? NULL : text;
}

// "./1000" or "a/../1000" would be another place than it looks like.
static int check_path(const char *path)
{
	int rc = strcmp(path, CKPT_CONTROL_NAME) ? 0 : -EINVAL;

	for (const char *at = path; !rc; at++) {
		size_t len = strcspn(at, "/");

		rc = ckpt_name_check(at, len);
		at += len;
		if (!*at)
			break;
	}
	return rc;
}

int ckpt_folders_place_folder(struct ckpt_store *s, const char *path, char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	CLEANUP_FD int fd = -1;
	int rc = *path ? check_path(path) : 0;

	*ret_id = '\0';
	if (rc || !*path)
		return rc;
	fd = ckpt_sys.open(s->tree_fd, path, O_RDONLY | O_DIRECTORY, 0);
	return fd < 0 ? fd : ckpt_store_folder_id(s, fd, true, ret_id);
}

int ckpt_folders_place(struct ckpt_store *s, const char *path, char ret_id[CKPT_FOLDER_ID_LEN + 1],
		       const char **ret_name)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	CLEANUP_FREE char *folder = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	CLEANUP_FD int fd = -1;
	struct stat st;
	int rc = folder ? check_path(path) : -ENOMEM;

	if (rc)
		return rc;
	fd = ckpt_sys.open(s->tree_fd, folder, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	if (!fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return -EEXIST;
	*ret_id = '\0';
	*ret_name = name;
	return slash ? ckpt_store_folder_id(s, fd, true, ret_id) : 0;
}

// One on the way: `above` is open, and closed; the answer is open.
static int make_one(struct ckpt_store *s, int above, bool is_top, const char *name)
{
	char id[CKPT_FOLDER_ID_LEN + 1] = "";
	CLEANUP_FD int dirfd = above;
	int rc = is_top ? 0 : ckpt_store_folder_id(s, dirfd, false, id);
	struct ckpt_step *step = rc ? NULL : ckpt_step_find(s, id, name);

	ckpt_step_unref(step);
	if (step || (rc && rc != -ENOENT))
		return step ? -EEXIST : rc;
	rc = ckpt_sys.mkdir(dirfd, name, 0755);
	return rc && rc != -EEXIST ? rc : ckpt_sys.open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);
}

int ckpt_folders_make(struct ckpt_store *s, const char *path)
{
	const char *top = path;
	int rc = check_path(path), fd = rc ? -1 : ckpt_sys.open(s->tree_fd, ".", O_RDONLY | O_DIRECTORY, 0);

	rc = rc ? rc : MIN(fd, 0);
	for (const char *slash; !rc && (slash = strchr(path, '/')); path = slash + 1) {
		char name[CKPT_NAME_MAX + 1];

		snprintf(name, sizeof(name), "%.*s", (int)(slash - path), path);
		fd = make_one(s, TAKE_FD(fd), path == top, name);
		rc = MIN(fd, 0);
	}
	if (fd >= 0)
		ckpt_sys.close(fd);
	return rc;
}

int ckpt_folders_open(struct ckpt_store *s, const char *folder_id)
{
	struct ckpt_folders f;
	int rc = *folder_id ? ckpt_folders_read(s, &f) : 0, fd = -ENOENT;

	if (rc || !*folder_id)
		return rc ? rc : ckpt_sys.open(s->tree_fd, ".", O_RDONLY | O_DIRECTORY, 0);
	for (size_t i = 0; i < f.count && fd < 0; i++)
		if (!strcmp(f.at[i].id, folder_id))
			fd = ckpt_sys.open(s->tree_fd, f.at[i].path, O_RDONLY | O_DIRECTORY, 0);
	ckpt_folders_done(&f);
	return fd;
}

int ckpt_folders_back(struct ckpt_store *s, const char *folder_id, const char *name)
{
	CLEANUP_FD int fd = ckpt_folders_open(s, folder_id);
	struct stat st;

	if (fd < 0)
		return fd;
	return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) ? (errno == ENOENT ? 0 : -errno) : -EEXIST;
}
