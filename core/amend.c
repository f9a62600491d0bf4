#include "core/amend.h"

#include "core/errlog.h"
#include "core/hash.h"
#include "core/manifest.h"
#include "core/pin.h"
#include "core/remove.h"
#include "core/scan.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/trash.h"
#include "core/stage.h"
#include "core/util.h"
#include "core/uuid.h"
#include "core/version.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

struct ckpt_pending_file {
	struct ckpt_pending_file *next;
	char path[];
};

// --- Pending files ------------------------------------------------------------------------------------------------------

static struct ckpt_pending_file **slot_locked(struct ckpt_step *step, const char *path)
{
	struct ckpt_pending_file **slot = &step->pending_files;

	while (*slot && strcmp((*slot)->path, path))
		slot = &(*slot)->next;
	return slot;
}

bool ckpt_amend_is_pending(struct ckpt_step *step, const char *path)
{
	if (!__atomic_load_n(&step->pending_files, __ATOMIC_RELAXED)) // nearly always
		return false;
	LOCK_SCOPE(&step->lock);

	return *slot_locked(step, path);
}

int ckpt_amend_begin(struct ckpt_step *step, const char *path)
{
	struct ckpt_pending_file *f = calloc(1, sizeof(*f) + strlen(path) + 1);

	if (!f)
		return -ENOMEM;
	strcpy(f->path, path);
	LOCK_SCOPE(&step->lock);
	f->next = step->pending_files;
	__atomic_store_n(&step->pending_files, f, __ATOMIC_RELAXED);
	return 0;
}

void ckpt_amend_forget(struct ckpt_step *step, const char *path)
{
	LOCK_SCOPE(&step->lock);
	struct ckpt_pending_file **slot = slot_locked(step, path), *f = *slot;

	if (f)
		*slot = f->next;
	free(f);
}

int ckpt_amend_rename(struct ckpt_step *step, const char *path, const char *to)
{
	int rc = ckpt_amend_begin(step, to);

	if (!rc)
		ckpt_amend_forget(step, path);
	return rc;
}

void ckpt_amend_forget_all(struct ckpt_step *step)
{
	while (step->pending_files) {
		struct ckpt_pending_file *f = step->pending_files;

		step->pending_files = f->next;
		free(f);
	}
}

static bool is_in_version(struct ckpt_step *step, const char *path, int *ret_error)
{
	struct ckpt_manifest *m;
	uint32_t index;

	*ret_error = ckpt_step_manifest(step, &m);
	if (*ret_error)
		return false;
	bool there = !ckpt_manifest_lookup(m, path, &index);

	ckpt_manifest_unref(m);
	return there;
}

// What else stands there is of somebody who died, or of an amend that failed.
int ckpt_amend_clear(struct ckpt_step *step, int dirfd, const char *path)
{
	const char *slash = strrchr(path, '/');
	char aside[64];
	uint64_t salt;
	int rc;

	if (ckpt_amend_is_pending(step, path) || is_in_version(step, path, &rc))
		return -EEXIST;
	if (!rc)
		rc = ckpt_sys.random(&salt, sizeof(salt));
	if (rc)
		return rc;
	snprintf(aside, sizeof(aside), CKPT_TRASH_COPY "%016llx-stray", (unsigned long long)salt);
	rc = ckpt_sys.rename(dirfd, slash ? slash + 1 : path, step->store->trash_fd, aside, 0);
	if (!rc)
		ckpt_trash_remove_behind(step->store->trash, aside);
	return rc == -ENOENT ? 0 : rc;
}

int ckpt_amend_move(struct ckpt_step *step, int dirfd)
{
	char path[CKPT_UUID_LEN + 1 + PATH_MAX];
	int rc = 0;

	for (;;) {
		struct ckpt_pending_file *f;

		pthread_mutex_lock(&step->lock);
		f = step->pending_files;
		if (f)
			__atomic_store_n(&step->pending_files, f->next, __ATOMIC_RELAXED);
		pthread_mutex_unlock(&step->lock);
		if (!f)
			return rc;
		snprintf(path, sizeof(path), "%s/%s", step->session, f->path);
		if (!rc)
			rc = ckpt_sys.rename(step->store->sessions_fd, path, dirfd, f->path, RENAME_NOREPLACE);
		rc = rc == -ENOENT ? 0 : rc;
		free(f);
	}
}

// --- A manifest, changed ------------------------------------------------------------------------------------------------

struct edit {
	struct ckpt_step *step;
	struct ckpt_manifest *m; // of the version of before
	struct ckpt_manifest_writer *w;
	uint32_t *handles; // in w, by index in m; GONE: left out
	// The result.
	struct ckpt_manifest *next;
	void *data;
	size_t len;
	uint32_t dirs_at_top; // as many more
};

#define GONE UINT32_MAX

static int copy_entry(struct edit *d, uint32_t index, uint32_t removed)
{
	const void *value;
	struct ckpt_entry e;
	const char *name, *session;
	size_t len;
	int rc = 0;

	ckpt_manifest_entry(d->m, index, &e);
	d->handles[index] = GONE;
	if (index && (index == removed || d->handles[e.parent] == GONE))
		return 0;
	session = e.content == CKPT_CONTENT_RAW ? ckpt_manifest_session(d->m, e.session) : NULL;
	if (session)
		rc = ckpt_manifest_writer_session(d->w, session, &e.session);
	if (!rc)
		rc = ckpt_manifest_writer_add(d->w, index ? d->handles[e.parent] : 0, &e, &d->handles[index]);
	for (uint32_t i = 0; !rc && ckpt_manifest_xattr(d->m, &e, i, &name, &value, &len); i++)
		rc = ckpt_manifest_writer_xattr(d->w, d->handles[index], name, value, len);
	return rc;
}

static int copy_all(struct edit *d, uint32_t removed)
{
	uint32_t count = ckpt_manifest_count(d->m);
	int rc = ckpt_manifest_writer_new(&d->w);

	d->handles = calloc(count, sizeof(*d->handles));
	if (!rc && !d->handles)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = copy_entry(d, i, removed);
	return rc;
}

static int finish_edit(struct edit *d)
{
	void *copy;
	int rc = ckpt_manifest_writer_finish(d->w, &d->data, &d->len);

	if (rc)
		return rc;
	copy = malloc(d->len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, d->data, d->len);
	return ckpt_manifest_parse(copy, d->len, &d->next); // what cannot be read back is not put
}

static void edit_done(struct edit *d)
{
	ckpt_manifest_writer_free(d->w);
	ckpt_manifest_unref(d->m);
	ckpt_manifest_unref(d->next);
	free(d->handles);
	free(d->data);
}

// --- The version --------------------------------------------------------------------------------------------------------

static int set_manifest(void *arg, struct ckpt_record *r)
{
	struct edit *d = arg;
	char key[2 + 64 + 1] = "m/";
	int rc = 0;

	free(TAKE_PTR(r->manifest));
	r->manifest_len = 0;
	memcpy(r->summary.manifest_sha256, ckpt_manifest_sha256(d->next), 32);
	r->summary.manifest_bytes = d->len;
	ckpt_manifest_totals(d->next, &r->summary.files, &r->summary.bytes);
	r->summary.dir_nlink += d->dirs_at_top;
	snprintf(r->summary.event, sizeof(r->summary.event), "amend");
	if (d->len > CKPT_MANIFEST_EMBED_MAX) {
		ckpt_hex(r->summary.manifest_sha256, 32, key + 2);
		rc = ckpt_backend_put(d->step->store->backend, key, d->data, d->len, NULL);
		return rc == -EEXIST ? 0 : rc; // the same bytes: the key is their digest
	}
	r->manifest = malloc(d->len);
	if (!r->manifest)
		return -ENOMEM;
	memcpy(r->manifest, d->data, d->len);
	r->manifest_len = d->len;
	return 0;
}

static int put(struct edit *d)
{
	struct ckpt_step *step = d->step;
	struct ckpt_summary next;
	bool changed;
	int rc = finish_edit(d);

	if (!rc)
		rc = ckpt_version_put(step, set_manifest, d, &next, &changed);
	if (rc)
		return rc;
	rc = ckpt_step_load(step->store, &next);
	if (!rc) {
		ckpt_step_keep_manifest(step, d->next);
		pthread_mutex_lock(&step->lock);
		ckpt_remove_forget_locked(step); // who is removing it finds that it is another
		pthread_mutex_unlock(&step->lock);
	}
	if (!rc && step->store->indexer)
		ckpt_indexer_put(step->store->indexer, step->key, &next,
				 d->len > CKPT_MANIFEST_EMBED_MAX ? TAKE_PTR(d->data) : NULL,
				 d->len > CKPT_MANIFEST_EMBED_MAX ? d->len : 0);
	return rc;
}

static void complain(struct ckpt_step *step, const char *path, int error, const char *what)
{
	ckpt_errlog_add(step->store->errlog, step->name, error,
			"the step is as it was; mend the cause, then do it again",
			error == -EIO ? "outcome unknown, or the data did not reach the disk: %s could not be %s"
				      : "%s could not be %s",
			path, what);
}

// --- Adding -------------------------------------------------------------------------------------------------------------

static int read_target(int dirfd, const char *name, char *buf, size_t cap)
{
	ssize_t n = readlinkat(dirfd, name, buf, cap - 1);

	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

// The directory is synced after the file: the name is there only with its content.
static int make_durable(int dirfd, int fd)
{
	int rc = fd < 0 ? 0 : ckpt_sys.fsync(fd);

	return rc ? rc : ckpt_sys.fsync(dirfd);
}

// In dirfd it is called file, in the step name. was: the entry that it takes the place of, or NULL.
static int add_from_disk(struct edit *d, uint32_t parent, int dirfd, const char *file, const char *name,
			 const struct ckpt_entry *was)
{
	CLEANUP_FD int fd = -1;
	char target[PATH_MAX];
	struct ckpt_entry e;
	struct statx stx;
	uint32_t handle;
	int rc = statx(dirfd, file, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx) ? -errno : 0;

	if (!rc && !S_ISLNK(stx.stx_mode)) {
		fd = ckpt_sys.open(dirfd, file, O_RDONLY | O_NONBLOCK, 0);
		rc = fd < 0 ? fd : make_durable(dirfd, fd);
		if (!rc && statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx))
			rc = -errno;
	} else if (!rc) {
		rc = make_durable(dirfd, -1);
	}
	if (rc)
		return rc;
	e = (struct ckpt_entry){
		.type = S_ISDIR(stx.stx_mode)   ? CKPT_ENTRY_DIR
			: S_ISLNK(stx.stx_mode) ? CKPT_ENTRY_SYMLINK
						: CKPT_ENTRY_FILE,
		.name = name,
		.mode = stx.stx_mode & 07777,
		.uid = stx.stx_uid,
		.gid = stx.stx_gid,
		.nlink = stx.stx_nlink,
		.ino = was ? was->ino : ckpt_store_ino(&stx),
		.raw_path = was ? file : NULL,
		.mtime_s = stx.stx_mtime.tv_sec,
		.mtime_ns = stx.stx_mtime.tv_nsec,
	};
	if (e.type == CKPT_ENTRY_FILE && ckpt_stage_has_failed(d->step, e.ino))
		return -EIO; // a fsync of the client's has said so
	if (e.type == CKPT_ENTRY_FILE) {
		e.bytes = stx.stx_size;
		e.content = e.bytes ? CKPT_CONTENT_RAW : CKPT_CONTENT_NONE;
		e.raw_path = e.bytes ? e.raw_path : NULL;
		rc = ckpt_manifest_writer_session(d->w, d->step->session, &e.session);
	} else if (e.type == CKPT_ENTRY_SYMLINK) {
		rc = read_target(dirfd, file, target, sizeof(target));
		e.target = target;
		e.bytes = strlen(target);
	}
	if (!rc)
		rc = ckpt_manifest_writer_add(d->w, parent, &e, &handle);
	return rc || fd < 0 ? rc : ckpt_scan_xattrs(d->w, handle, fd);
}

static int add(struct edit *d, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char inside[CKPT_UUID_LEN + 1 + PATH_MAX], folder[PATH_MAX] = "";
	CLEANUP_FD int dirfd = -1;
	uint32_t parent, there;
	int rc;

	if (slash)
		snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
	rc = ckpt_manifest_lookup(d->m, folder, &parent);
	if (!rc && !ckpt_manifest_child(d->m, parent, name, &there))
		rc = -EEXIST;
	if (rc)
		return rc;
	snprintf(inside, sizeof(inside), "%s%s%s", d->step->session, *folder ? "/" : "", folder);
	dirfd = ckpt_sys.open(d->step->store->sessions_fd, inside, O_RDONLY | O_DIRECTORY, 0);
	if (dirfd < 0)
		return dirfd;
	rc = copy_all(d, 0);
	if (!rc)
		rc = add_from_disk(d, d->handles[parent], dirfd, name, name, NULL);
	return rc;
}

int ckpt_amend_add(struct ckpt_step *step, const char *path)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct edit d = {.step = step};
	int rc = ckpt_step_state(step) == CKPT_STEP_COMMITTED ? ckpt_step_manifest(step, &d.m) : -ESTALE;

	if (!rc && ckpt_remove_hides(step))
		rc = -EBUSY; // it is being removed
	if (!rc)
		rc = add(&d, path);
	if (!rc)
		rc = put(&d);
	edit_done(&d);
	if (rc && rc != -ESTALE)
		complain(step, path, rc, "added to the step");
	return rc;
}

static int replace(struct edit *d, const char *path, const char *raw)
{
	CLEANUP_FD int dirfd = ckpt_sys.open(d->step->store->sessions_fd, d->step->session, O_RDONLY | O_DIRECTORY, 0);
	struct ckpt_entry was;
	uint32_t index;
	int rc = dirfd < 0 ? dirfd : ckpt_manifest_lookup(d->m, path, &index);

	if (rc)
		return rc;
	ckpt_manifest_entry(d->m, index, &was);
	rc = was.type == CKPT_ENTRY_FILE ? copy_all(d, index) : -EEXIST;
	return rc ? rc : add_from_disk(d, d->handles[was.parent], dirfd, raw, was.name, &was);
}

int ckpt_amend_replace(struct ckpt_step *step, const char *path, const char *raw)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct edit d = {.step = step};
	int rc = ckpt_step_state(step) == CKPT_STEP_COMMITTED ? ckpt_step_manifest(step, &d.m) : -ESTALE;

	if (!rc)
		rc = replace(&d, path, raw);
	if (!rc)
		rc = put(&d);
	edit_done(&d);
	if (rc && rc != -ESTALE)
		complain(step, path, rc, "written again");
	return rc;
}

// --- Removing -----------------------------------------------------------------------------------------------------------

int ckpt_amend_remove(struct ckpt_step *step, const char *path)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct edit d = {.step = step};
	uint32_t index = 0;
	int rc = ckpt_step_state(step) == CKPT_STEP_COMMITTED ? ckpt_step_manifest(step, &d.m) : -ESTALE;

	if (!rc && ckpt_pin_is(step)) {
		ckpt_pin_tell(step);
		edit_done(&d);
		return -EPERM;
	}
	if (!rc)
		rc = ckpt_manifest_lookup(d.m, path, &index);
	if (!rc && !index)
		rc = -EINVAL;
	if (!rc)
		rc = copy_all(&d, index);
	if (!rc)
		rc = put(&d);
	edit_done(&d);
	if (rc && rc != -ESTALE && rc != -ENOENT && rc != -EINVAL)
		complain(step, path, rc, "removed from the step");
	return rc;
}
