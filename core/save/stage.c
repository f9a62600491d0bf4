// Staged steps. The states are those of step.h; this file performs:
//   (none)     -> STAGED      begin
//   STAGED     -> GONE        abort, graft
//   LEFT       -> GONE        abort
// and opens and closes the gate: `changers` counts the changes under way, COMMITTING lets no new one in.
//
// A session's directory carries who began it, as an extended attribute, so that a daemon that finds it later can say
// what it is. The directory is opened before anything is written below it: that descriptor is the one that syncfs is
// asked through, because it reports write-out errors since its opening.
#include "core/save/stage.h"

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/proc.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/closed.h"
#include "core/base/uuid.h"
#include "core/save/limit.h"
#include "core/save/makers.h"
#include "core/save/share.h"
#include "core/step/reopened.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define ORIGIN_BYTES_MAX 2048
#define LOOK_NS INT64_C(1000000000) // at a commit that is waited for

// --- Who began it -----------------------------------------------------------------------------------------------------

static char *origin_text(struct ckpt_step *step, const struct ckpt_step_name *now)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);
	int64_t attempt_ns = __atomic_load_n(&staged->attempt_ns, __ATOMIC_RELAXED);
	json_t *origin;
	int rc;

	ckpt_json_begin();
	origin = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:I, s:b, s:b}", "folder", now->folder_id, "name",
			   now->name, "began_ns", (json_int_t)staged->began_ns, "uid", (json_int_t)staged->uid, "gid",
			   (json_int_t)staged->gid, "pid", (json_int_t)staged->pid, "add_only", (int)staged->add_only,
			   "reopens", (json_int_t)staged->from_version, "plain", (int)staged->from_plain, "by_client",
			   (int)staged->by_client);
	rc = origin ? 0 : -1;
	if (!rc && attempt_ns)
		rc = json_object_set_new(origin, "attempt_ns", json_integer(attempt_ns)) ||
		     json_object_set_new(origin, "boot_id", json_string(step->store->boot_id));
	if (rc) {
		json_decref(origin);
		return NULL;
	}
	return ckpt_json_dump(origin, JSON_COMPACT);
}

// A rename in between writes the new name, which must not be lost to the old one: the last look decides.
int ckpt_stage_write_origin(struct ckpt_step *step, int dirfd)
{
	struct ckpt_step_name now, then;
	int rc;

	ckpt_step_name(step, &now);
	do {
		CLEANUP_FREE char *text = origin_text(step, &now);

		if (!text)
			return -ENOMEM;
		rc = ckpt_sys.fsetxattr(dirfd, CKPT_ORIGIN_XATTR, text, strlen(text), 0);
		then = now;
		ckpt_step_name(step, &now);
	} while (!rc && (strcmp(then.name, now.name) || strcmp(then.folder_id, now.folder_id)));
	return rc;
}

static json_int_t integer_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

int ckpt_stage_origin(int dirfd, json_t **ret_origin)
{
	char text[ORIGIN_BYTES_MAX];
	ssize_t n = fgetxattr(dirfd, CKPT_ORIGIN_XATTR, text, sizeof(text));

	*ret_origin = NULL;
	if (n < 0)
		return errno == ENODATA ? 0 : -errno;
	return ckpt_json_load(text, (size_t)n, JSON_REJECT_DUPLICATES, NULL, ret_origin) == -ENOMEM ? -ENOMEM : 0;
}

int ckpt_stage_read_origin(struct ckpt_step *step)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);
	json_t *origin;
	const char *name, *folder;
	int rc = ckpt_stage_origin(step->dirfd, &origin);

	if (rc)
		return rc;
	name = json_string_value(json_object_get(origin, "name"));
	folder = json_string_value(json_object_get(origin, "folder"));
	if (name && folder && !ckpt_name_check(name, strlen(name)) && ckpt_name_is_folder_id(folder)) {
		snprintf(step->name, sizeof(step->name), "%s", name);
		snprintf(step->folder_id, sizeof(step->folder_id), "%s", folder);
		staged->began_ns = integer_of(origin, "began_ns");
		staged->uid = (uid_t)integer_of(origin, "uid");
		staged->gid = (gid_t)integer_of(origin, "gid");
		staged->pid = (pid_t)integer_of(origin, "pid");
		staged->add_only = json_is_true(json_object_get(origin, "add_only"));
		staged->from_version = (uint32_t)integer_of(origin, "reopens");
		staged->is_file = json_is_string(json_object_get(origin, "file"));
		staged->file_folder = (uint64_t)integer_of(origin, "file_folder");
		staged->from_plain = json_is_true(json_object_get(origin, "plain"));
		staged->by_client = json_is_true(json_object_get(origin, "by_client"));
		staged->attempt_ns = integer_of(origin, "attempt_ns");
	}
	json_decref(origin);
	return 0;
}

// --- What is known of files ------------------------------------------------------------------------------------------

// Open addressing; ino 0 is free. Files leave it only with the session.
struct ckpt_synced {
	size_t slot_count, used;
	struct synced_file {
		uint64_t ino;
		int64_t ctime_ns; // on disk as of this change; 0: not known to be
		bool failed;
	} slots[];
};

static struct synced_file *synced_slot(struct ckpt_synced *t, uint64_t ino)
{
	size_t at = (ino * UINT64_C(0x9e3779b97f4a7c15)) >> 20;

	for (;; at++) {
		struct synced_file *f = &t->slots[at & (t->slot_count - 1)];

		if (f->ino == ino || !f->ino)
			return f;
	}
}

static struct synced_file *synced_find(struct ckpt_step *step, uint64_t ino)
{
	struct synced_file *f;

	if (!ckpt_staging_of(step)->synced)
		return NULL;
	f = synced_slot(ckpt_staging_of(step)->synced, ino);
	return f->ino ? f : NULL;
}

// The slot for this file, made when missing; NULL without memory.
static struct synced_file *synced_make(struct ckpt_step *step, uint64_t ino)
{
	struct ckpt_synced *t = ckpt_staging_of(step)->synced;
	struct synced_file *f;

	if (!t || t->used * 2 >= t->slot_count) {
		size_t slots = t ? t->slot_count * 2 : 64;
		struct ckpt_synced *wider = calloc(1, sizeof(*wider) + slots * sizeof(wider->slots[0]));

		if (!wider)
			return NULL;
		wider->slot_count = slots;
		wider->used = t ? t->used : 0;
		for (size_t i = 0; t && i < t->slot_count; i++)
			if (t->slots[i].ino)
				*synced_slot(wider, t->slots[i].ino) = t->slots[i];
		free(t);
		t = ckpt_staging_of(step)->synced = wider;
	}
	f = synced_slot(t, ino);
	if (!f->ino) {
		f->ino = ino;
		t->used++;
	}
	return f;
}

// --- Begin, rename, graft, abort --------------------------------------------------------------------------------------

// The new directory gets its owner, mode and origin. It is nobody's until the step is in the table.
static int session_fill(struct ckpt_step *step, mode_t mode)
{
	step->dirfd = ckpt_sys.open(step->store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
	if (step->dirfd < 0)
		return step->dirfd;
	if (geteuid() == 0 && fchown(step->dirfd, ckpt_staging_of(step)->uid, ckpt_staging_of(step)->gid))
		return -errno;
	if (fchmod(step->dirfd, mode & 07777))
		return -errno;
	return ckpt_stage_write_origin(step, step->dirfd);
}

// By a descriptor of its own: a commit may close step->dirfd meanwhile.
static int sync_directory(struct ckpt_step *step)
{
	CLEANUP_FD int fd = ckpt_sys.open(step->store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);

	return fd < 0 ? fd : ckpt_sys.fsync(fd);
}

// A caller that comes while it is synced waits for the next turn, with all that come by then.
static int sync_sessions(struct ckpt_store *s)
{
	struct ckpt_sessions *all = ckpt_sessions_of(s);
	LOCK_SCOPE(&s->lock);
	uint64_t mine = ++all->wanted, wanted;
	int rc = 0;

	while (all->synced < mine && !rc) {
		if (all->syncing) {
			ckpt_lock_wait(&s->threads.ended, &s->lock);
			continue;
		}
		all->syncing = true;
		wanted = all->wanted;
		ckpt_lock_drop(&s->lock);
		rc = ckpt_sys.fsync(s->sessions_fd);
		ckpt_lock_take(&s->lock);
		all->syncing = false;
		all->synced =
			rc ? all->synced : MAX(all->synced, wanted); // those who waited for a failure see to themselves
		pthread_cond_broadcast(&s->threads.ended);
	}
	return rc;
}

struct ckpt_part ckpt_sessions_part = {.bytes = sizeof(struct ckpt_sessions)};

int ckpt_stage_make_durable(struct ckpt_step *step, bool with_directory)
{
	bool *durable = &ckpt_staging_of(step)->durable;
	int rc = 0;

	if (__atomic_load_n(durable, __ATOMIC_ACQUIRE))
		return 0;
	if (with_directory)
		rc = sync_directory(step);
	if (rc == -ENOENT)
		return 0; // it was dropped, or is part of another
	if (!rc)
		rc = sync_sessions(step->store);
	if (!rc)
		__atomic_store_n(durable, true, __ATOMIC_RELEASE);
	return rc;
}

int ckpt_stage_make_session(struct ckpt_step *step, mode_t mode)
{
	int rc = *step->session ? 0 : ckpt_uuid_make(step->session);

	if (!rc)
		rc = ckpt_sys.mkdir(step->store->sessions_fd, step->session, 0700);
	if (rc)
		return rc;
	rc = session_fill(step, mode);
	if (rc)
		ckpt_stage_drop_session(step);
	return rc;
}

void ckpt_stage_drop_session(struct ckpt_step *step)
{
	char name[CKPT_TRASH_SESSION_NAME];

	if (!ckpt_trash_take(step->store, step->session, name))
		ckpt_trash_remove_behind(*ckpt_trash_of(step->store), name);
}

static int fill_from(struct ckpt_step *step, struct ckpt_step *from)
{
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(from, &m);

	if (rc)
		return rc == -EBADMSG ? -EIO : rc;
	rc = ckpt_share_tree(from, m, step->dirfd);
	ckpt_manifest_unref(m);
	return rc;
}

static int insert(struct ckpt_step *fresh)
{
	char folder_id[sizeof(fresh->folder_id)], name[sizeof(fresh->name)];
	LOCK_SCOPE(&fresh->store->lock);

	memcpy(folder_id, fresh->folder_id, sizeof(folder_id));
	memcpy(name, fresh->name, sizeof(name));
	return ckpt_step_insert_locked(fresh, folder_id, name);
}

static int make(struct ckpt_step *fresh, mode_t mode, struct ckpt_step *from)
{
	int rc = ckpt_stage_make_session(fresh, mode);

	if (rc)
		return rc;
	rc = from ? fill_from(fresh, from) : 0;
	if (!rc)
		rc = insert(fresh);
	if (rc)
		ckpt_stage_drop_session(fresh);
	return rc;
}

// Takes fresh, which has its owner; it is nobody's before it is in the table.
static int begin(struct ckpt_step *fresh, mode_t mode, struct ckpt_step *from, struct ckpt_step **ret_step)
{
	struct ckpt_store *s = fresh->store;
	int rc = make(fresh, mode, from);

	if (rc)
		ckpt_step_unref(fresh);
	else
		*ret_step = fresh;
	s->calls.wake_looker(s);
	return rc;
}

int ckpt_stage_new(struct ckpt_store *s, const char *folder_id, const char *name, struct ckpt_step **ret_step)
{
	struct ckpt_step *taken, *step;
	int rc = ckpt_name_check(name, strlen(name));

	if (rc)
		return rc;
	taken = ckpt_step_find(s, folder_id, name);
	ckpt_step_unref(taken);
	rc = taken ? -EEXIST : ckpt_step_new(s, &step);
	if (rc)
		return rc;
	ckpt_step_set_state_locked(step, CKPT_STEP_STAGED);
	ckpt_staging_of(step)->ours = true;
	ckpt_staging_of(step)->began_ns = ckpt_sys.now_ns();
	snprintf(step->folder_id, sizeof(step->folder_id), "%s", folder_id);
	snprintf(step->name, sizeof(step->name), "%s", name);
	rc = ckpt_uuid_make(step->session);
	if (rc)
		ckpt_step_unref(step);
	else
		*ret_step = step;
	return rc;
}

// One that somebody begins, and not what takes the place of a committed step: that one is to end at the limit, too.
static int new_of(struct ckpt_store *s, const char *folder_id, const char *name, uid_t uid, struct ckpt_step **ret_step)
{
	struct ckpt_step *step;
	int rc = ckpt_stage_new(s, folder_id, name, &step);

	if (rc)
		return rc;
	ckpt_staging_of(step)->uid = uid;
	rc = ckpt_limit_ask(*ckpt_limit_of(s), uid, 0);
	if (rc)
		ckpt_step_unref(step);
	else
		*ret_step = step;
	return rc;
}

int ckpt_stage_begin(struct ckpt_store *s, const char *folder_id, const char *name, mode_t mode, uid_t uid, gid_t gid,
		     pid_t pid, struct ckpt_step **ret_step)
{
	struct ckpt_step *step;
	int rc;

	ckpt_stage_give_way(s, folder_id, name);
	rc = new_of(s, folder_id, name, uid, &step);
	if (rc)
		return rc;
	ckpt_staging_of(step)->gid = gid;
	ckpt_staging_of(step)->pid = pid;
	return begin(step, mode, NULL, ret_step);
}

int ckpt_stage_begin_by_client(struct ckpt_store *s, const char *folder_id, const char *name, mode_t mode, uid_t uid,
			       gid_t gid, pid_t tid, struct ckpt_step **ret_step)
{
	struct ckpt_step *step;
	int rc = new_of(s, folder_id, name, uid, &step);

	if (rc)
		return rc;
	ckpt_staging_of(step)->gid = gid;
	ckpt_staging_of(step)->pid = ckpt_proc_process(tid);
	ckpt_staging_of(step)->by_client = true;
	ckpt_makers_note(step, tid, true);
	return begin(step, mode, NULL, ret_step);
}

int ckpt_stage_begin_from(struct ckpt_store *s, const char *folder_id, const char *name, struct ckpt_step *from,
			  bool add_only, struct ckpt_step **ret_step)
{
	struct ckpt_step *step;
	int rc = new_of(s, folder_id, name, geteuid(), &step);

	if (rc)
		return rc;
	ckpt_staging_of(step)->gid = getegid();
	ckpt_staging_of(step)->add_only = add_only;
	return begin(step, 0755, from, ret_step);
}

// A change of the step as a whole: it holds the gate, so that a commit which begins now waits for its end, and then finds
// the step as it left it. 0; -EBUSY while committing, or while the outcome of a commit is unknown.
static int whole_enter(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	if (ckpt_staging_of(step)->outcome_unknown)
		return -EBUSY;
	switch (step->state) {
	case CKPT_STEP_STAGED:
	case CKPT_STEP_LEFT:
		ckpt_staging_of(step)->changers++;
		return 0;
	case CKPT_STEP_COMMITTED:
		return -EROFS;
	case CKPT_STEP_GONE:
		return -ESTALE;
	default:
		return -EBUSY;
	}
}

int ckpt_stage_rename(struct ckpt_step *step, const char *folder_id, const char *name)
{
	struct ckpt_store *s = step->store;
	char old_folder[sizeof(step->folder_id)], old_name[sizeof(step->name)];
	int rc = ckpt_name_check(name, strlen(name));

	if (!rc)
		rc = whole_enter(step);
	if (rc)
		return rc;
	ckpt_lock_take(&s->lock);
	memcpy(old_folder, step->folder_id, sizeof(old_folder));
	memcpy(old_name, step->name, sizeof(old_name));
	ckpt_step_erase_locked(step);
	rc = ckpt_step_insert_locked(step, folder_id, name);
	if (rc && ckpt_step_insert_locked(step, old_folder, old_name))
		abort(); // the name was ours a moment ago, under the same lock
	ckpt_lock_drop(&s->lock);
	// What the session says of itself serves only recovery: an old name there is a nuisance, no loss, and no reason to
	// call a rename failed that was done.
	if (!rc)
		(void)ckpt_stage_write_origin(step, step->dirfd);
	ckpt_stage_leave(step);
	return rc;
}

static void move_writers_locked(struct ckpt_step *from, struct ckpt_step *to)
{
	struct ckpt_writer *last = NULL;

	for (struct ckpt_writer *w = ckpt_staging_of(from)->writers; w; w = w->next) {
		__atomic_store_n(&w->step, ckpt_step_ref(to), __ATOMIC_RELEASE);
		ckpt_step_unref(from); // not the last: the caller's
		last = w;
	}
	if (!last)
		return;
	last->next = ckpt_staging_of(to)->writers;
	if (last->next)
		last->next->prev = last;
	ckpt_staging_of(to)->writers = ckpt_staging_of(from)->writers;
	ckpt_staging_of(from)->writers = NULL;
}

// A failure must be known wherever the file is. That it is on disk already need not be: the rename changed its ctime.
static void carry_locked(struct ckpt_step *to, const struct synced_file *f)
{
	struct synced_file *there = f->failed ? synced_make(to, f->ino) : synced_find(to, f->ino);

	if (there)
		*there = (struct synced_file){.ino = f->ino, .failed = f->failed};
	else
		ckpt_staging_of(to)->synced_lost |= f->failed;
}

void ckpt_stage_carry(struct ckpt_step *from, struct ckpt_step *to, uint64_t ino)
{
	struct synced_file *f;

	ckpt_lock_take_both(&from->lock, &to->lock);
	f = synced_find(from, ino);
	if (f)
		carry_locked(to, f);
	ckpt_staging_of(to)->synced_lost |= ckpt_staging_of(from)->synced_lost;
	ckpt_lock_drop(&from->lock);
	ckpt_lock_drop(&to->lock);
}

// Writers, and what is known of the files that clients have synced.
static void carry_all_locked(struct ckpt_step *from, struct ckpt_step *to)
{
	struct ckpt_staging *staged_from = ckpt_staging_of(from);

	move_writers_locked(from, to);
	ckpt_makers_move_locked(from, to);
	for (size_t i = 0; staged_from->synced && i < staged_from->synced->slot_count; i++)
		if (staged_from->synced->slots[i].ino)
			carry_locked(to, &staged_from->synced->slots[i]);
	ckpt_staging_of(to)->synced_lost |= staged_from->synced_lost;
}

// From here on `to` speaks for the files of `from`: what is said of them there goes on to it.
static void move_files(struct ckpt_step *from, struct ckpt_step *to)
{
	ckpt_lock_take_both(&from->lock, &to->lock);
	carry_all_locked(from, to);
	from->into = ckpt_step_ref(to);
	ckpt_lock_drop(&from->lock);
	ckpt_lock_drop(&to->lock);
}

void ckpt_stage_take_over(struct ckpt_step *from, struct ckpt_step *to)
{
	ckpt_lock_take_both(&from->lock, &to->lock);
	carry_all_locked(from, to);
	ckpt_lock_drop(&from->lock);
	ckpt_lock_drop(&to->lock);
}

void ckpt_stage_vanish(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	bool reopened;

	ckpt_lock_take(&s->lock);
	ckpt_step_erase_locked(step);
	reopened = ckpt_step_end_reopen_locked(step);
	ckpt_lock_drop(&s->lock);
	ckpt_lock_take(&step->lock);
	ckpt_step_set_state_locked(step, CKPT_STEP_GONE);
	ckpt_stage_forget(step, false);
	ckpt_limit_freed(*ckpt_limit_of(s));
	pthread_cond_broadcast(&step->changed);
	ckpt_lock_drop(&step->lock);
	if (reopened && !ckpt_reopen_of(step)->fresh && s->calls.renew)
		s->calls.renew(s->calls.renew_arg, step, step->base);
}

int ckpt_stage_retake(struct ckpt_step *step)
{
	int rc = ckpt_step_state(step) == CKPT_STEP_LEFT ? whole_enter(step) : -ESTALE;

	if (rc)
		return rc;
	ckpt_stage_vanish(step);
	ckpt_stage_leave(step);
	return 0;
}

int ckpt_stage_graft(struct ckpt_step *step, struct ckpt_step *into, int to_dirfd, const char *to_name)
{
	struct ckpt_store *s = step->store;
	int rc = whole_enter(step);

	if (rc)
		return rc;
	rc = ckpt_sys.rename(s->sessions_fd, step->session, to_dirfd, to_name, 0);
	if (!rc) {
		fremovexattr(step->dirfd, CKPT_ORIGIN_XATTR);
		move_files(step, into);
		ckpt_stage_vanish(step);
	}
	ckpt_stage_leave(step);
	return rc;
}

bool ckpt_stage_use(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	if (step->state != CKPT_STEP_LEFT)
		return false;
	ckpt_staging_of(step)->users++;
	return true;
}

void ckpt_stage_unuse(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	ckpt_staging_of(step)->users--;
}

static bool is_used(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return ckpt_staging_of(step)->users > 0 || ckpt_staging_of(step)->writers;
}

int ckpt_stage_abort(struct ckpt_step *step, bool unless_used)
{
	struct ckpt_store *s = step->store;
	char name[CKPT_TRASH_SESSION_NAME];
	int rc = whole_enter(step);

	if (!rc && unless_used && is_used(step)) {
		ckpt_stage_leave(step);
		rc = -EBUSY;
	}

	if (rc)
		return rc;
	rc = ckpt_trash_take(s, step->session, name);
	if (!rc) {
		ckpt_stage_vanish(step);
		ckpt_trash_remove_behind(*ckpt_trash_of(s), name);
		ckpt_log(CKPT_LOG_INFO, "dropped the unfinished save of %s", step->name);
	}
	ckpt_stage_leave(step);
	return rc;
}

int ckpt_stage_remove(struct ckpt_step *step)
{
	int rc = whole_enter(step);

	if (rc)
		return rc;
	rc = ckpt_sys.unlink(step->store->sessions_fd, step->session, AT_REMOVEDIR);
	if (!rc)
		ckpt_stage_vanish(step);
	ckpt_stage_leave(step);
	return rc == -EEXIST ? -ENOTEMPTY : rc;
}

// --- The gate ---------------------------------------------------------------------------------------------------------

// Waits for the running commit to end, or to stand still for commit_timeout.
int ckpt_stage_wait_locked(struct ckpt_step *step)
{
	while (step->state == CKPT_STEP_COMMITTING) {
		if (ckpt_sys.mono_ns() - __atomic_load_n(&ckpt_staging_of(step)->progress_ns, __ATOMIC_RELAXED) >
		    step->store->settings.commit_timeout_ns)
			return -EBUSY;
		ckpt_lock_wait_ns(&step->changed, &step->lock, LOOK_NS);
	}
	return 0;
}

int ckpt_stage_enter(struct ckpt_step *step, bool wait)
{
	LOCK_SCOPE(&step->lock);

	if (step->state == CKPT_STEP_COMMITTING) {
		int rc = wait ? ckpt_stage_wait_locked(step) : -EAGAIN;

		if (rc)
			return rc;
	}
	switch (step->state) {
	case CKPT_STEP_STAGED:
		if (ckpt_staging_of(step)->outcome_unknown)
			return -EROFS;
		ckpt_staging_of(step)->changers++;
		return 0;
	case CKPT_STEP_COMMITTED:
	case CKPT_STEP_DELETED:
	case CKPT_STEP_LEFT:
		return -EROFS;
	default:
		return -ESTALE;
	}
}

void ckpt_stage_touch(struct ckpt_step *step)
{
	__atomic_store_n(&ckpt_staging_of(step)->touched_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
}

void ckpt_stage_leave(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	ckpt_stage_touch(step);
	if (--ckpt_staging_of(step)->changers == 0)
		pthread_cond_broadcast(&step->changed);
}

// --- What clients have synced -----------------------------------------------------------------------------------------

// Where times move in ticks, a write in the tick of the fsync would not show. A tick is 10 ms or less in most places; some
// filesystems keep whole or even seconds only.
#define TICK_NS INT64_C(2000000000)

static bool shows_later_changes(const struct ckpt_store *s, int64_t ctime_ns, int64_t began_ns)
{
	if (ctime_ns % 1000000000 == 0)
		return false; // this file's inode has no room for nanoseconds, whatever the rest of its filesystem does
	return s->multigrain || ctime_ns < began_ns - TICK_NS;
}

// The step that has this step's files by now, locked. It is held by the one that was given, so it stays.
static struct ckpt_step *lock_owner(struct ckpt_step *step)
{
	ckpt_lock_take(&step->lock);
	while (step->into) {
		struct ckpt_step *into = step->into; // set once

		ckpt_lock_drop(&step->lock);
		step = into;
		ckpt_lock_take(&step->lock);
	}
	return step;
}

void ckpt_stage_synced(struct ckpt_step *step, uint64_t ino, int64_t ctime_ns, int64_t began_ns, int error)
{
	struct ckpt_step *owner = lock_owner(step);
	struct synced_file *f = synced_make(owner, ino);

	// Not remembering a success costs a second fsync. A failure must not be forgotten: all commits fail then.
	if (!f)
		ckpt_staging_of(owner)->synced_lost |= error != 0;
	else if (error)
		f->failed = true;
	else
		f->ctime_ns = shows_later_changes(owner->store, ctime_ns, began_ns) ? ctime_ns : 0;
	ckpt_lock_drop(&owner->lock);
}

void ckpt_stage_rewritten(struct ckpt_step *step, uint64_t ino)
{
	struct ckpt_step *owner = lock_owner(step);
	struct synced_file *f = synced_find(owner, ino);

	ckpt_closed_forget(owner->store, ino);
	if (f)
		*f = (struct synced_file){.ino = ino};
	ckpt_lock_drop(&owner->lock);
}

bool ckpt_stage_is_clean(struct ckpt_step *step, uint64_t ino, int64_t ctime_ns)
{
	LOCK_SCOPE(&step->lock);
	struct synced_file *f = synced_find(step, ino);

	return f && !f->failed && f->ctime_ns == ctime_ns;
}

bool ckpt_stage_has_failed(struct ckpt_step *step, uint64_t ino)
{
	LOCK_SCOPE(&step->lock);
	struct synced_file *f = synced_find(step, ino);

	return (f && f->failed) || ckpt_staging_of(step)->synced_lost;
}

void ckpt_stage_forget(struct ckpt_step *step, bool keeps_synced)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);

	ckpt_stage_writers_save_no_more_locked(step);
	if (step->dirfd >= 0)
		ckpt_sys.close(TAKE_FD(step->dirfd));
	ckpt_makers_forget_locked(step);
	staged->still_over = staged->still_used;
	if (staged->still && !staged->still_used)
		staged->still_free(TAKE_PTR(staged->still));
	if (!keeps_synced)
		free(TAKE_PTR(staged->synced));
}

static void staging_done(void *step)
{
	ckpt_stage_forget(step, false);
	free(ckpt_staging_of(step)->killed.path);
}

struct ckpt_part ckpt_staging_part = {.bytes = sizeof(struct ckpt_staging), .done = staging_done};
