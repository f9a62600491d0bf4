#include "core/save/draft.h"

#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/save/limit.h"
#include "core/save/stage.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define PATH_SHOWN_MAX 500

// --- Begin ------------------------------------------------------------------------------------------------------------

// Takes origin; NULL: it could not be made.
static int origin_set(int fd, json_t *origin)
{
	CLEANUP_FREE char *text = ckpt_json_dump(origin, JSON_COMPACT);

	return text ? ckpt_sys.fsetxattr(fd, CKPT_ORIGIN_XATTR, text, strlen(text), 0) : -ENOMEM;
}

// It is for people, and an attribute has little room. malloc'ed; NULL: no memory.
static char *path_shown(const char *path)
{
	size_t len = strlen(path);

	return ckpt_name_clean(path + (len > PATH_SHOWN_MAX ? len - PATH_SHOWN_MAX : 0));
}

static int origin_write(int fd, const struct ckpt_draft_origin *o)
{
	CLEANUP_FREE char *path = path_shown(o->path);

	if (!path)
		return -ENOMEM;
	ckpt_json_begin();
	return origin_set(fd, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:I}", "folder", o->folder_id, "name",
					o->name, "began_ns", (json_int_t)ckpt_sys.now_ns(), "uid", (json_int_t)o->uid,
					"gid", (json_int_t)o->gid, "pid", (json_int_t)o->pid, "file", path,
					"file_folder", (json_int_t)o->folder));
}

// Whoever wrote it may look at it once it is left over. A folder of the tree that gives its group on to new files does so
// through the session.
static int give_session(int fd, const struct ckpt_draft_origin *o)
{
	struct stat folder;

	if (geteuid() == 0 && o->uid && fchown(fd, o->uid, o->gid))
		return -errno;
	if (o->folder_fd >= 0 && !fstat(o->folder_fd, &folder) && (folder.st_mode & S_ISGID))
		return fchown(fd, (uid_t)-1, folder.st_gid) || fchmod(fd, 0700 | S_ISGID) ? -errno : 0;
	return 0;
}

static void enter(struct ckpt_draft *d)
{
	LOCK_SCOPE(&d->store->lock);

	d->at = &ckpt_drafts_of(d->store)->first;
	d->next = *d->at;
	if (d->next)
		d->next->at = &d->next;
	*d->at = d;
}

static void leave(struct ckpt_draft *d)
{
	LOCK_SCOPE(&d->store->lock);

	if (!d->at)
		return;
	*d->at = d->next;
	if (d->next)
		d->next->at = d->at;
	d->at = NULL;
	ckpt_limit_freed(*ckpt_limit_of(d->store));
}

int ckpt_draft_begin(struct ckpt_store *s, const struct ckpt_draft_origin *origin, struct ckpt_draft *ret_draft)
{
	struct ckpt_draft d = {.store = s, .dirfd = -1};
	int rc = ckpt_uuid_make(d.session);

	snprintf(d.name, sizeof(d.name), "%s", origin->name);
	if (!rc)
		rc = ckpt_sys.mkdir(s->sessions_fd, d.session, 0700);
	if (rc)
		return rc;
	d.dirfd = ckpt_sys.open(s->sessions_fd, d.session, O_RDONLY | O_DIRECTORY, 0);
	rc = MIN(d.dirfd, 0);
	if (!rc)
		rc = origin_write(d.dirfd, origin);
	if (!rc)
		rc = give_session(d.dirfd, origin);
	if (rc) {
		ckpt_draft_drop(&d);
		return rc;
	}
	*ret_draft = d;
	enter(ret_draft);
	return 0;
}

// --- Publish ----------------------------------------------------------------------------------------------------------

int ckpt_draft_write_out(const struct ckpt_draft *d, int fd)
{
	(void)d;
	return ckpt_sys.fdatasync(fd);
}

int ckpt_draft_publish(const struct ckpt_draft *d, int to_dirfd, const char *to_name)
{
	return ckpt_sys.rename(d->dirfd, d->name, to_dirfd, to_name, 0);
}

void ckpt_draft_close(struct ckpt_draft *d)
{
	if (d->dirfd < 0)
		return;
	leave(d);
	ckpt_sys.close(TAKE_FD(d->dirfd));
}

int ckpt_draft_published(struct ckpt_draft *d, int to_dirfd, bool durable)
{
	int rc = durable ? ckpt_sys.fsync(to_dirfd) : 0;

	ckpt_draft_close(d);
	(void)ckpt_sys.unlink(d->store->sessions_fd, d->session, AT_REMOVEDIR); // else the next open does it
	return rc;
}

void ckpt_draft_drop(struct ckpt_draft *d)
{
	if (d->dirfd >= 0)
		(void)ckpt_sys.unlink(d->dirfd, d->name, 0);
	ckpt_draft_close(d);
	(void)ckpt_sys.unlink(d->store->sessions_fd, d->session, AT_REMOVEDIR);
}

// --- Left over --------------------------------------------------------------------------------------------------------

int ckpt_draft_leave(struct ckpt_draft *d)
{
	json_t *origin;

	(void)ckpt_stage_origin(d->dirfd, &origin);
	if (json_object_set_new(origin, "told", json_true()) == 0)
		(void)origin_set(d->dirfd, json_incref(origin)); // else the next open tells of it again
	json_decref(origin);
	ckpt_draft_close(d);
	return ckpt_stage_load_left(d->store, d->session);
}

int ckpt_draft_move(struct ckpt_draft *d, const char *path, const char *name, uint64_t folder)
{
	CLEANUP_FREE char *shown = path_shown(path);
	json_t *origin = NULL;
	int rc = shown ? ckpt_stage_origin(d->dirfd, &origin) : -ENOMEM;

	ckpt_json_begin();
	if (!rc && (!origin || json_object_set_new(origin, "name", json_string(name)) ||
		    json_object_set_new(origin, "file", json_string(shown)) ||
		    json_object_set_new(origin, "file_folder", json_integer((json_int_t)folder))))
		rc = -ENOMEM;
	if (!rc && strcmp(d->name, name))
		rc = ckpt_sys.rename(d->dirfd, d->name, d->dirfd, name, RENAME_NOREPLACE);
	if (!rc) {
		snprintf(d->name, sizeof(d->name), "%s", name);
		rc = origin_set(d->dirfd, json_incref(origin));
	}
	json_decref(origin);
	return rc;
}

struct wanted {
	uint64_t folder;
	int64_t born_ns;
	const char *name;
	struct ckpt_step *found;
};

static int look_for(void *arg, struct ckpt_step *left)
{
	const struct ckpt_staging *staged = ckpt_staging_of(left);
	struct wanted *w = arg;

	if (staged->is_file && staged->file_folder == w->folder && staged->began_ns >= w->born_ns &&
	    !strcmp(left->name, w->name) && (!w->found || ckpt_staging_of(w->found)->began_ns < staged->began_ns))
		w->found = left;
	return 0;
}

struct ckpt_step *ckpt_draft_find(struct ckpt_store *s, uint64_t folder, int64_t born_ns, const char *name)
{
	struct wanted w = {.folder = folder, .born_ns = born_ns, .name = name};

	LOCK_SCOPE(&s->lock);
	(void)ckpt_step_each_left_locked(s, look_for, &w);
	return w.found ? ckpt_step_ref(w.found) : NULL;
}

char *ckpt_draft_path(struct ckpt_step *left)
{
	CLEANUP_FD int dirfd = ckpt_sys.open(left->store->sessions_fd, left->session, O_RDONLY | O_DIRECTORY, 0);
	const char *path;
	char *copy;
	json_t *origin;

	if (dirfd < 0 || ckpt_stage_origin(dirfd, &origin))
		return NULL;
	path = json_string_value(json_object_get(origin, "file"));
	copy = path ? strdup(path) : NULL;
	json_decref(origin);
	return copy;
}

int ckpt_draft_view(struct ckpt_step *left, struct ckpt_draft *ret_draft)
{
	struct ckpt_draft d = {.store = left->store, .dirfd = -1};

	memcpy(d.session, left->session, sizeof(d.session));
	snprintf(d.name, sizeof(d.name), "%s", left->name);
	d.dirfd = ckpt_sys.open(d.store->sessions_fd, d.session, O_RDONLY | O_DIRECTORY, 0);
	if (d.dirfd < 0)
		return d.dirfd == -ENOENT ? -ESTALE : d.dirfd;
	*ret_draft = d;
	return 0;
}

int ckpt_draft_retake(struct ckpt_step *left, struct ckpt_draft *d)
{
	int rc = ckpt_stage_retake(left);

	if (!rc)
		enter(d);
	return rc;
}

// 1, 0; -ENOMEM ...
static int holds_nothing(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int rc;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	rc = ckpt_sys.readdir(dir, &e);
	closedir(dir);
	return rc ? rc : !e;
}

static void tell(struct ckpt_store *s, int dirfd, json_t *origin, const char *path)
{
	ckpt_errlog_add(s->errlog, path, 0, "see `ckptfs sessions`; it is kept as a left-over session",
			"new content of this file was not completed: the old file is unchanged");
	if (json_object_set_new(origin, "told", json_true()) == 0)
		(void)origin_set(dirfd, json_incref(origin));
}

int ckpt_draft_is_empty(struct ckpt_store *s, const char *session)
{
	CLEANUP_FD int dirfd = ckpt_sys.open(s->sessions_fd, session, O_RDONLY | O_DIRECTORY, 0);
	json_t *origin;
	const char *path;
	bool silent;
	int empty, rc;

	if (dirfd < 0)
		return 0;
	rc = ckpt_stage_origin(dirfd, &origin);
	if (rc)
		return rc;
	path = json_string_value(json_object_get(origin, "file"));
	// It may have died before it said what it is.
	silent = fgetxattr(dirfd, CKPT_ORIGIN_XATTR, NULL, 0) < 0 && errno == ENODATA;
	empty = path || silent ? holds_nothing(dirfd) : 0;
	if (empty > 0 && s->writable)
		(void)ckpt_sys.unlink(s->sessions_fd, session, AT_REMOVEDIR);
	else if (!empty && path && s->writable && !json_is_true(json_object_get(origin, "told")))
		tell(s, dirfd, origin, path);
	json_decref(origin);
	return empty;
}

struct ckpt_part ckpt_drafts_part = {.bytes = sizeof(struct ckpt_drafts)};
