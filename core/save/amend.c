#include "core/save/amend.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/record/event.h"
#include "core/record/manifest.h"
#include "core/record/metadata.h"
#include "core/save/amend_left.h"
#include "core/save/edit.h"
#include "core/save/pin.h"
#include "core/save/scan.h"
#include "core/save/share.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/save/session.h"
#include "core/step/errlog.h"
#include "core/step/removal.h"
#include "core/step/store.h"
#include "core/step/successor.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define DONE 1 // nothing is to be done: an act before did it

static void complain(struct ckpt_step *step, const char *path, int error, const char *what)
{
	ckpt_errlog_add(step->store->errlog, step->name, error,
			"the step is unchanged; remove the cause, then try again",
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

// In dirfd, the session's, it is called raw, in the step name. was: the entry that it takes the place of, or NULL.
static int add_from_disk(struct ckpt_edit *d, uint32_t parent, int dirfd, const char *raw, const char *name,
			 const struct ckpt_entry *was)
{
	CLEANUP_FD int fd = -1;
	char target[PATH_MAX];
	struct ckpt_entry e;
	struct statx stx;
	uint32_t handle;
	int rc;

	if (statx(dirfd, raw, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
		return -errno;
	if (!S_ISLNK(stx.stx_mode)) {
		fd = ckpt_sys.open(dirfd, raw, O_RDONLY | O_NONBLOCK, 0);
		rc = fd < 0 ? fd : make_durable(dirfd, fd);
		if (rc == -EIO && fd >= 0) // the next fsync would not say so again
			ckpt_stage_synced(d->step, ckpt_store_ino(&stx), 0, 0, rc);
		if (!rc && statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx))
			rc = -errno;
	} else {
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
		.raw_path = raw,
		.mtime_s = stx.stx_mtime.tv_sec,
		.mtime_ns = stx.stx_mtime.tv_nsec,
	};
	if (e.type == CKPT_ENTRY_FILE &&
	    (ckpt_stage_has_failed(d->step, e.ino) || ckpt_stage_has_failed(d->step, ckpt_store_ino(&stx))))
		return -EIO; // a fsync of the client's has said so
	if (e.type == CKPT_ENTRY_FILE) {
		e.bytes = stx.stx_size;
		e.content = CKPT_CONTENT_RAW; // an empty one, too: its raw file is not at its path
		rc = ckpt_manifest_writer_session(d->w, d->step->session, &e.session);
	} else if (e.type == CKPT_ENTRY_SYMLINK) {
		rc = read_target(dirfd, raw, target, sizeof(target));
		e.target = target;
		e.bytes = strlen(target);
	}
	if (!rc)
		rc = ckpt_manifest_writer_add(d->w, parent, &e, &handle);
	return rc || fd < 0 ? rc : ckpt_scan_xattrs(d->w, handle, fd);
}

// What an evaluation found is known once it is written: steps are chosen by it.
static int learn_metrics(struct ckpt_edit *d, const char *path, int dirfd, const char *file)
{
	if (strcmp(path, CKPT_METRICS_FILE))
		return 0;
	return ckpt_metadata_of_metrics(dirfd, file, d->step->store->errlog, d->step->name, &d->says);
}

// What has this name in the version is what stands on the disk: an act before has added it, and its answer was lost.
static int check_added(struct ckpt_edit *d, int dirfd, const char *raw, uint32_t index)
{
	struct ckpt_entry e;
	struct statx stx;

	ckpt_manifest_entry(d->m, index, &e);
	if (!d->adopted || statx(dirfd, raw, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx) ||
	    ckpt_store_ino(&stx) != e.ino)
		return -EEXIST;
	return DONE;
}

// The name was free when the file was made: another node has put a file there meanwhile, which stays in the version before.
static bool may_replace(const struct ckpt_edit *d, uint32_t there)
{
	struct ckpt_said said;
	struct ckpt_entry e;

	ckpt_manifest_entry(d->m, there, &e);
	return e.type == CKPT_ENTRY_FILE && !ckpt_step_said(d->step->store, d->step->session, &said) && said.pulled;
}

static int replace_others(struct ckpt_edit *d, int dirfd, const char *raw, const char *path, uint32_t there)
{
	struct ckpt_entry was;
	int rc = ckpt_edit_copy(d, there);

	ckpt_manifest_entry(d->m, there, &was);
	if (!rc)
		rc = add_from_disk(d, d->handles[was.parent], dirfd, raw, was.name, NULL);
	return rc ? rc : learn_metrics(d, path, dirfd, raw);
}

static int find_parent(struct ckpt_edit *d, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX] = "";

	if (slash && (size_t)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path) >= sizeof(folder))
		return -ENAMETOOLONG;
	*ret_name = slash ? slash + 1 : path;
	return ckpt_manifest_lookup(d->m, folder, &d->parent);
}

static int add(struct ckpt_edit *d, const char *path, const char *raw)
{
	CLEANUP_FD int dirfd = ckpt_session_open(d->step);
	const char *name;
	struct stat st;
	uint32_t there;
	int rc = dirfd < 0 ? dirfd : find_parent(d, path, &name);

	if (rc)
		return rc;
	rc = ckpt_manifest_child(d->m, d->parent, name, &there);
	if (!rc)
		rc = check_added(d, dirfd, raw, there);
	if (rc == -EEXIST && may_replace(d, there))
		return replace_others(d, dirfd, raw, path, there);
	if (rc != -ENOENT)
		return rc;
	d->dirs_in_parent = !fstatat(dirfd, raw, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode);
	rc = ckpt_edit_copy(d, 0);
	if (!rc)
		rc = add_from_disk(d, d->handles[d->parent], dirfd, raw, name, NULL);
	return rc ? rc : learn_metrics(d, path, dirfd, raw);
}

static int add_over(struct ckpt_edit *d, const char *path, const char *raw)
{
	CLEANUP_FD int dirfd = ckpt_session_open(d->step);
	const char *name;
	struct ckpt_entry was;
	uint32_t there = 0;
	int rc = dirfd < 0 ? dirfd : find_parent(d, path, &name);

	if (rc)
		return rc;
	rc = ckpt_manifest_child(d->m, d->parent, name, &there);
	if (rc && rc != -ENOENT)
		return rc;
	if (!rc) {
		ckpt_manifest_entry(d->m, there, &was);
		if (was.type == CKPT_ENTRY_DIR)
			return -EISDIR;
		if (check_added(d, dirfd, raw, there) == DONE)
			return DONE;
	}
	rc = ckpt_edit_copy(d, there);
	if (!rc)
		rc = add_from_disk(d, d->handles[d->parent], dirfd, raw, name, NULL);
	return rc ? rc : learn_metrics(d, path, dirfd, raw);
}

static int replace(struct ckpt_edit *d, const char *path, const char *raw)
{
	CLEANUP_FD int dirfd = ckpt_session_open(d->step);
	struct ckpt_entry was;
	uint32_t index;
	int rc = dirfd < 0 ? dirfd : ckpt_manifest_lookup(d->m, path, &index);

	if (rc)
		return rc;
	ckpt_manifest_entry(d->m, index, &was);
	if (was.raw_path && !strcmp(was.raw_path, raw))
		return DONE;
	rc = was.type == CKPT_ENTRY_FILE ? ckpt_edit_copy(d, index) : -EEXIST;
	if (!rc)
		rc = add_from_disk(d, d->handles[was.parent], dirfd, raw, was.name, &was);
	return rc ? rc : learn_metrics(d, path, dirfd, raw);
}

static int take_out(struct ckpt_edit *d, const char *path, const char *raw __attribute__((unused)))
{
	struct ckpt_entry e;
	uint32_t index;
	int rc = ckpt_manifest_lookup(d->m, path, &index);

	if (rc)
		return rc == -ENOENT && d->adopted ? DONE : rc;
	if (!index)
		return -EINVAL;
	ckpt_manifest_entry(d->m, index, &e);
	d->parent = e.parent;
	d->dirs_in_parent = e.type == CKPT_ENTRY_DIR ? -1 : 0;
	return ckpt_edit_copy(d, index);
}

// --- The acts -----------------------------------------------------------------------------------------------------------

typedef int edit_fn(struct ckpt_edit *d, const char *path, const char *raw);

static int try(struct ckpt_step *step, edit_fn *change, const char *path, const char *raw, bool *adopted)
{
	struct ckpt_edit d = {.step = step, .event = CKPT_EVENT_AMEND, .attributes = true, .frees = change == take_out};
	int rc = ckpt_edit_begin(&d, adopted);

	if (!rc && change == take_out && ckpt_pin_is(step)) {
		ckpt_pin_tell(step);
		rc = -EPERM;
	}
	if (!rc)
		rc = change(&d, path, raw);
	if (!rc)
		rc = ckpt_edit_put(&d);
	ckpt_edit_done(&d);
	return rc == DONE ? 0 : rc;
}

static int try_some(struct ckpt_step *step, edit_fn *change, const char *path, const char *raw)
{
	bool adopted = false;
	int rc = -EAGAIN;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++) {
		rc = try(step, change, path, raw, &adopted);
		adopted |= rc == -EAGAIN;
	}
	return rc;
}

// The file that was made for one step, in the directory of another. ret_raw: what it is called there.
static int move_raw(struct ckpt_step *step, const char *raw, struct ckpt_step *to, char ret_raw[CKPT_AMENDING_RAW_MAX])
{
	CLEANUP_FD int from_fd = ckpt_session_open(step), to_fd = ckpt_session_open(to);
	int rc = from_fd < 0 ? from_fd : to_fd < 0 ? to_fd : ckpt_amending_raw_name(ret_raw);

	return rc ? rc : ckpt_sys.rename(from_fd, raw, to_fd, ret_raw, RENAME_NOREPLACE);
}

struct handing {
	struct ckpt_step *from, *to;
};

static int hand_on(void *arg, const char *raw, char ret_raw[CKPT_AMENDING_RAW_MAX])
{
	const struct handing *h = arg;

	return move_raw(h->from, raw, h->to, ret_raw);
}

void ckpt_amend_hand_on(struct ckpt_step *step, struct ckpt_step *to)
{
	struct handing h = {step, to};

	if (__atomic_load_n(&ckpt_amending_of(step)->pending_files, __ATOMIC_RELAXED))
		(void)ckpt_amending_hand_on(step, to, hand_on, &h); // the close of one that stays finds its way
}

static void move_back(struct ckpt_step *step, const char *raw, struct ckpt_step *to, const char *there)
{
	CLEANUP_FD int to_fd = ckpt_session_open(step), from_fd = ckpt_session_open(to);

	if (to_fd >= 0 && from_fd >= 0)
		(void)ckpt_sys.rename(from_fd, there, to_fd, raw, RENAME_NOREPLACE);
}

// An edit of it, by another node, has its place by now: the act is one on that. Where it fails, the file is where it was.
static int try_successor(struct ckpt_step *step, edit_fn *change, const char *path, const char *raw)
{
	struct ckpt_step *to = ckpt_successor_find(step);
	char there[CKPT_AMENDING_RAW_MAX];
	int rc = !to ? -ESTALE : raw ? move_raw(step, raw, to, there) : 0;

	if (!rc) {
		rc = try_some(to, change, path, raw ? there : NULL);
		if (rc && rc != -EIO && raw) // that one may be in place
			move_back(step, raw, to, there);
	}
	ckpt_step_unref(to);
	return rc;
}

static int act(struct ckpt_step *step, edit_fn *change, const char *path, const char *raw, const char *what)
{
	LOCK_SCOPE(&step->store->acts_lock);
	int rc = try_some(step, change, path, raw);

	if (rc == -ESTALE && ckpt_step_state(step) == CKPT_STEP_DELETED)
		rc = try_successor(step, change, path, raw);
	if (rc && rc != -ESTALE && rc != -ENOENT && rc != -EINVAL && rc != -EPERM)
		complain(step, path, rc, what);
	return rc == -EAGAIN ? -EIO : rc;
}

// What is made durable with the lock held, for which all other acts on steps wait, is sent to the disk before. Whether it came there
// says fsync.
static void send_to_disk(const struct ckpt_step *step, const char *file)
{
	char path[CKPT_UUID_LEN + 1 + PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", step->session, file);
	CLEANUP_FD int fd = ckpt_sys.open(step->store->sessions_fd, path, O_RDONLY | O_NONBLOCK, 0);

	if (fd >= 0)
		sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

int ckpt_amend_add_raw(struct ckpt_step *step, const char *path, const char *raw)
{
	send_to_disk(step, raw);
	return act(step, add, path, raw, "added to the step");
}

int ckpt_amend_add_over(struct ckpt_step *step, const char *path, const char *raw)
{
	send_to_disk(step, raw);
	return act(step, add_over, path, raw, "added to the step");
}

int ckpt_amend_add(struct ckpt_step *step, const char *path)
{
	char raw[PATH_MAX];

	return ckpt_amend_add_raw(step, path, ckpt_amending_raw_of(step, path, raw, sizeof(raw)) ? raw : path);
}

int ckpt_amend_replace(struct ckpt_step *step, const char *path, const char *raw)
{
	send_to_disk(step, raw);
	return act(step, replace, path, raw, "written again");
}

int ckpt_amend_remove(struct ckpt_step *step, const char *path)
{
	return act(step, take_out, path, NULL, "removed from the step");
}

// --- Several at once ------------------------------------------------------------------------------------------------------

struct changing {
	const struct ckpt_amend_change *changes;
	size_t count;
	uint32_t *at; // by change: the index of the entry in the manifest
	bool *gone;   // by index
};

static bool is_gone(void *arg, uint32_t index)
{
	return ((const struct changing *)arg)->gone[index];
}

static bool is_as_seen(const struct ckpt_amend_change *c, const struct ckpt_entry *e)
{
	return e->type == CKPT_ENTRY_DIR ? !c->raw
					 : e->ino == c->ino && e->bytes == c->bytes && e->mtime_s == c->mtime_s &&
						   e->mtime_ns == c->mtime_ns;
}

// DONE: an act before has done all of it, and its answer was lost.
static int find_changes(struct ckpt_edit *d, struct changing *c)
{
	size_t done = 0;

	for (size_t i = 0; i < c->count; i++) {
		const struct ckpt_amend_change *change = &c->changes[i];
		struct ckpt_entry e;
		int rc = ckpt_manifest_lookup(d->m, change->path, &c->at[i]);

		if (rc == -ENOENT && d->adopted && !change->raw) {
			done++;
			continue;
		}
		if (rc)
			return rc == -ENOENT || rc == -ENOTDIR ? -ESTALE : rc;
		if (!c->at[i])
			return -EINVAL;
		ckpt_manifest_entry(d->m, c->at[i], &e);
		if (e.raw_path && change->raw && !strcmp(e.raw_path, change->raw)) {
			done++;
			continue;
		}
		ckpt_attributes_apply(d->step, d->m, &e);
		if (!is_as_seen(change, &e))
			return -ESTALE;
		c->gone[c->at[i]] = true;
	}
	return done == c->count ? DONE : done ? -ESTALE : 0;
}

// The attributes of the file that it takes the place of, those too that are in no version yet; and the time of now.
static int give_attributes(struct ckpt_edit *d, uint32_t index, int dirfd, const char *raw)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, raw, O_RDWR | O_NONBLOCK, 0);
	int rc = fd < 0 ? fd : ckpt_share_attributes(d->step, d->m, index, fd);

	return !rc && futimens(fd, NULL) ? -errno : rc;
}

static int put_changes(struct ckpt_edit *d, struct changing *c)
{
	CLEANUP_FD int dirfd = ckpt_session_open(d->step);
	int rc = dirfd < 0 ? dirfd : ckpt_edit_copy(d, 0);

	for (size_t i = 0; i < c->count && !rc; i++) {
		struct ckpt_entry was;

		ckpt_manifest_entry(d->m, c->at[i], &was);
		if (c->changes[i].raw && d->handles[was.parent] == CKPT_EDIT_GONE)
			return -EINVAL;
		if (c->changes[i].raw)
			rc = give_attributes(d, c->at[i], dirfd, c->changes[i].raw);
		if (c->changes[i].raw && !rc) // one of several links becomes a file of its own
			rc = add_from_disk(d, d->handles[was.parent], dirfd, c->changes[i].raw, was.name,
					   was.nlink > 1 ? NULL : &was);
	}
	return rc;
}

static int try_all(struct ckpt_step *step, struct changing *c, bool *adopted)
{
	struct ckpt_edit d = {.step = step,
			      .event = CKPT_EVENT_AMEND,
			      .attributes = true,
			      .needs_files = true,
			      .leaves_out = is_gone,
			      .arg = c};
	int rc = ckpt_edit_begin(&d, adopted);

	if (!rc && ckpt_removal_hides(step))
		rc = -EBUSY;
	if (!rc && ckpt_pin_is(step)) {
		ckpt_pin_tell(step);
		rc = -EPERM;
	}
	free(c->gone);
	c->gone = rc ? NULL : ckpt_calloc(ckpt_manifest_count(d.m), sizeof(*c->gone));
	if (!rc && !c->gone)
		rc = -ENOMEM;
	if (!rc)
		rc = find_changes(&d, c);
	if (!rc)
		rc = put_changes(&d, c);
	if (!rc)
		rc = ckpt_edit_put(&d);
	ckpt_edit_done(&d);
	return rc == DONE ? 0 : rc;
}

int ckpt_amend_change_all(struct ckpt_step *step, const struct ckpt_amend_change *changes, size_t count)
{
	struct changing c = {.changes = changes, .count = count, .at = ckpt_calloc(MAX(count, 1u), sizeof(uint32_t))};
	bool adopted = false;
	int rc = c.at ? -EAGAIN : -ENOMEM;

	for (size_t i = 0; i < count; i++)
		if (changes[i].raw)
			send_to_disk(step, changes[i].raw);
	{
		LOCK_SCOPE(&step->store->acts_lock);

		for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++) {
			rc = try_all(step, &c, &adopted);
			adopted |= rc == -EAGAIN;
		}
		if (rc != -EAGAIN && !ckpt_amending_settle_locked(step) && ckpt_step_state(step) == CKPT_STEP_COMMITTED)
			ckpt_amend_left_remove(step);
	}
	if (rc && rc != -ESTALE && rc != -EINVAL && rc != -EPERM && rc != -ENODATA)
		complain(step, count == 1 ? changes->path : "several files", rc, "changed");
	free(c.at);
	free(c.gone);
	return rc == -EAGAIN ? -EIO : rc;
}
