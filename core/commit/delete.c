// Order of an expiry, so that a crash at any point leaves something that the next one ends: the files go out of sight, the
// records of the versions that had them, and the deletion last: while one of those is there, it says that it is no step.
// Where the versions of an older session are still there, which had the name before and is in the trash, too, the deletion says
// the same of them, and goes with the last of them.
#include "core/commit/delete.h"

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/commit/move.h"
#include "core/commit/pin.h"
#include "core/commit/remove.h"
#include "core/commit/reopen.h"
#include "core/commit/version.h"
#include "core/gc/gc.h"
#include "core/store/errlog.h"
#include "core/store/folders.h"
#include "core/store/store.h"
#include "core/store/trash.h"

#include <fcntl.h>
#include <stdio.h>

// --- Delete -----------------------------------------------------------------------------------------------------------

struct deletion {
	bool behind;    // nobody has asked for it
	bool temporary; // not of a step that is permanent
	bool pinned;    // the step is, and stays
};

static int mark_deleted(void *arg, struct ckpt_record *r)
{
	struct deletion *d = arg;

	d->pinned = r->summary.pinned;
	if (d->pinned)
		return -EPERM;
	if (d->temporary && !r->summary.temporary)
		return 1;
	free(TAKE_PTR(r->metadata));
	free(TAKE_PTR(r->manifest));
	r->manifest_len = 0;
	r->summary.deleted = true;
	snprintf(r->summary.event, sizeof(r->summary.event), "delete");
	return 0;
}

static void index_behind(struct ckpt_step *step, const struct ckpt_summary *summary)
{
	if (step->store->indexer)
		ckpt_indexer_put(step->store->indexer, step->key, summary, NULL, 0);
}

static void tell_deleted(const struct ckpt_step *step, const struct deletion *d)
{
	char size[CKPT_SIZE_MAX];

	ckpt_log(CKPT_LOG_INFO, "deleted %s%s: to the trash, %s", step->name,
		 d->temporary ? " (a temporary step; a newer one was committed)"
		 : d->behind  ? " (by the policy)"
			      : "",
		 ckpt_size_text(step->summary.bytes, size));
}

static int delete_locked(struct ckpt_step *step, struct deletion *d)
{
	struct ckpt_summary deletion;
	bool changed, was_there = ckpt_step_state(step) == CKPT_STEP_COMMITTED;
	int rc = ckpt_version_put(step, mark_deleted, d, true, &deletion, &changed);

	if (d->pinned)
		return -EPERM;
	// An earlier attempt had done it, but its answer was lost.
	if (rc == -ESTALE && was_there && ckpt_step_state(step) == CKPT_STEP_DELETED && !step->moved)
		return 0;
	if (!rc && !changed)
		return -ESTALE;
	if (!rc)
		rc = ckpt_step_load(step->store, &deletion);
	if (rc) {
		if (rc != -ESTALE)
			ckpt_errlog_add(step->store->errlog, step->name, rc,
					d->behind ? "it is tried again; or remove it" : "remove it again",
					rc == -EIO ? "outcome unknown: cannot confirm that it is deleted"
						   : "it could not be deleted");
		return rc;
	}
	tell_deleted(step, d);
	index_behind(step, &deletion);
	ckpt_trash_wake(step->store->trash);
	return 0;
}

int ckpt_delete(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct deletion d = {0};
	int rc = delete_locked(step, &d);

	if (rc == -EPERM && d.pinned)
		ckpt_pin_tell(step);
	return rc;
}

static bool is_adding(const struct ckpt_step *step)
{
	return __atomic_load_n(&step->pending_files, __ATOMIC_RELAXED) != NULL;
}

int ckpt_delete_behind_locked(struct ckpt_step *step, bool temporary)
{
	struct deletion d = {.behind = true, .temporary = temporary};
	int rc;

	rc = ckpt_reopen_any(step) || ckpt_remove_any(step) || is_adding(step) ? -EBUSY : delete_locked(step, &d);
	return d.pinned ? -ESTALE : rc;
}

const char *ckpt_delete_hint(int error)
{
	switch (error) {
	case -EPERM:
		return "it is pinned: `ckptfs unpin` it first";
	case -ESTALE:
		return "`ckptfs ls --all` lists the steps";
	case -EBUSY:
		return "another process is changing it; try again when it has ended";
	default:
		return NULL;
	}
}

const char *ckpt_expire_hint(int error)
{
	return error == -EPERM ? ckpt_delete_hint(error)
			       : "try again; if it is in the trash by now, name it trash/NAME";
}

// --- What there is ----------------------------------------------------------------------------------------------------

static int64_t deleted_at(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->deleted_ns;
}

static int by_name_newest_first(const void *a, const void *b)
{
	struct ckpt_step *x = *(struct ckpt_step *const *)a, *y = *(struct ckpt_step *const *)b;
	int64_t x_ns = deleted_at(x), y_ns = deleted_at(y);
	int order = strcmp(x->name, y->name);

	if (!order)
		order = (x_ns < y_ns) - (x_ns > y_ns);
	return order ? order : strcmp(x->session, y->session);
}

int ckpt_deleted_list(struct ckpt_store *s, struct ckpt_step ***ret_steps, size_t *ret_count)
{
	size_t count, kept = 0;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_DELETED, ret_steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		if ((*ret_steps)[i]->moved)
			ckpt_step_unref((*ret_steps)[i]);
		else
			(*ret_steps)[kept++] = (*ret_steps)[i];
	if (kept)
		qsort(*ret_steps, kept, sizeof(**ret_steps), by_name_newest_first);
	*ret_count = kept;
	return 0;
}

void ckpt_deleted_label(struct ckpt_step *const *steps, size_t i, bool by_folder, char *buf, size_t cap)
{
	bool first = true;

	for (size_t j = i; first && j-- > 0 && !strcmp(steps[j]->name, steps[i]->name);)
		first = by_folder && strcmp(steps[j]->folder_id, steps[i]->folder_id);
	if (first)
		snprintf(buf, cap, "%s", steps[i]->name);
	else
		snprintf(buf, cap, "%.240s.%.8s", steps[i]->name, steps[i]->session);
}

// --- Undelete ---------------------------------------------------------------------------------------------------------

// Keeps the name for it, and says which version is the next.
static int reserve(struct ckpt_step *step, uint32_t *ret_version)
{
	LOCK_SCOPE(&step->store->lock);
	int rc = ckpt_step_state(step) != CKPT_STEP_DELETED || step->moved ? -ESTALE : 0;

	if (!rc)
		rc = ckpt_step_reserve_locked(step, step->folder_id, step->name);

	*ret_version = ckpt_step_versions_used_locked(step->store, step->folder_id, step->name) + 1;
	return rc;
}

// Reads a version: 0 it says that the step is listed, -EEXIST it is another's or says something else.
static int read_undeletion(struct ckpt_step *step, uint32_t version, struct ckpt_summary *ret_summary)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, version, &r);

	if (rc)
		return rc;
	if (r.summary.deleted || r.summary.version != version || strcmp(r.summary.session, step->session))
		rc = -EEXIST;
	*ret_summary = r.summary;
	ckpt_record_done(&r);
	return rc;
}

static int put_again(struct ckpt_step *step, uint32_t version, struct ckpt_summary *ret_summary)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, step->summary.version, &r);

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	if (r.summary.deleted)
		rc = -ESTALE; // of the step itself nothing is left
	r.summary.version = version;
	r.summary.committed_ns = ckpt_sys.now_ns();
	r.summary.temporary = false; // or the next commit could end it again
	if (!rc)
		rc = ckpt_version_put_record(step, &r, false);
	*ret_summary = r.summary;
	ckpt_record_done(&r);
	// An earlier attempt had done it, but its answer was lost.
	return rc == -EEXIST ? read_undeletion(step, version, ret_summary) : rc;
}

int ckpt_undelete(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct ckpt_store *s = step->store;
	struct ckpt_summary summary;
	uint32_t version;
	int rc = reserve(step, &version);

	if (rc)
		return rc;
	rc = faccessat(s->sessions_fd, step->session, F_OK, AT_SYMLINK_NOFOLLOW) ? -ESTALE : 0;
	if (!rc)
		rc = ckpt_folders_back(s, step->folder_id, step->name);
	if (!rc)
		rc = put_again(step, version, &summary);
	ckpt_lock_take(&s->lock);
	if (!rc)
		ckpt_step_unbury_locked(step, &summary);
	ckpt_step_release_locked(step);
	ckpt_lock_drop(&s->lock);
	if (!rc)
		ckpt_store_wake_behind(s);
	if (!rc)
		ckpt_log(CKPT_LOG_INFO, "undeleted %s", step->name);
	if (!rc)
		index_behind(step, &summary);
	else if (rc != -ESTALE && rc != -ENOENT && rc != -EEXIST)
		ckpt_errlog_add(s->errlog, step->name, rc, "try it again",
				rc == -EIO ? "outcome unknown: cannot confirm that it was restored from the trash"
					   : "it could not be restored from the trash");
	return rc;
}

const char *ckpt_undelete_hint(int error)
{
	switch (error) {
	case -EEXIST:
		return "remove or rename what has its name first";
	case -ENOENT:
		return "its folder is gone: `ckptfs get` copies it out of the trash";
	case -ESTALE:
		return "`ckptfs ls --trash` lists the deleted steps";
	default:
		return NULL;
	}
}

// --- Expire -----------------------------------------------------------------------------------------------------------

struct versions {
	struct ckpt_step *step;
	uint32_t live; // of the step that has the name now; 0: none has
	uint32_t *at;
	size_t count, cap;
};

static int add_version(void *arg, const char *object, const struct ckpt_object *info __attribute__((unused)))
{
	struct versions *v = arg;
	const char *slash = strrchr(object, '/');
	unsigned long version = strtoul(slash + 1, NULL, 10);
	int rc = ckpt_grow((void **)&v->at, &v->cap, v->count + 1, sizeof(*v->at));

	if (!rc && version && version <= UINT32_MAX)
		v->at[v->count++] = (uint32_t)version;
	return rc;
}

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

// From the index first: once the store has room for another version of this number, the index must not know of this one.
static int remove_version(struct ckpt_step *step, uint32_t version)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];
	int rc = step->store->indexer ? ckpt_indexer_remove(step->store->indexer, step->key, version) : 0;

	if (rc)
		return rc;
	snprintf(object, sizeof(object), "steps/%s/%u", step->key, version);
	rc = ckpt_objects_remove(step->store->objects, object, NULL);
	return rc == -ENOENT ? 0 : rc;
}

struct owner {
	const struct ckpt_step *step;
	const char *session;
	uint32_t version;
	bool is;
};

static int look_at_owner(void *arg, struct ckpt_step *d)
{
	struct owner *o = arg;

	o->is |= d != o->step && !strcmp(d->name, o->step->name) &&
		 (d->deleted_by == o->version || !strcmp(d->session, o->session));
	return 0;
}

// A deletion that stayed when its own step was gone (hand_on), and that nobody has any more, because what it was handed on
// to came back.
static bool is_ownerless(struct ckpt_step *step, const struct ckpt_summary *deletion)
{
	struct ckpt_step *live = ckpt_step_find(step->store, step->folder_id, step->name);
	struct owner o = {.step = step, .session = deletion->session, .version = deletion->version};

	if (!deletion->deleted)
		return false;
	o.is = live && !strcmp(live->session, deletion->session);
	ckpt_step_unref(live);
	LOCK_SCOPE(&step->store->lock);
	(void)ckpt_step_each_locked(step->store, step->folder_id, 1u << CKPT_STEP_DELETED, look_at_owner, &o);
	return !o.is;
}

static int remove_manifest_of(struct ckpt_step *step, const struct ckpt_summary *summary)
{
	char manifest[2 + 64 + 1] = "m/";
	int rc;

	if (step->moved || summary->manifest_bytes <= CKPT_MANIFEST_EMBED_MAX)
		return 0;
	ckpt_hex(summary->manifest_sha256, 32, manifest + 2);
	rc = ckpt_objects_remove(step->store->objects, manifest, NULL);
	return rc == -ENOENT ? 0 : rc;
}

// A version before the deletion, if it is of this session, whose manifest names it and so is nobody else's; or, in a pass
// before that, while something is there for it to be over, if it is a deletion without an owner.
static int remove_if(struct ckpt_step *step, uint32_t version, bool ownerless)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, version, &r);
	bool ours;

	if (rc == -ENOENT || rc == -EBADMSG || rc == -ENOTSUP)
		return 0; // not ours to judge
	if (rc)
		return rc;
	ours = !strcmp(r.summary.session, step->session);
	if (ours && !ownerless)
		rc = remove_manifest_of(step, &r.summary);
	if (!rc && (ownerless ? !ours && is_ownerless(step, &r.summary) : ours))
		rc = remove_version(step, version);
	ckpt_record_done(&r);
	return rc;
}

// The deletion itself stays.
static int remove_versions_of(struct versions *v)
{
	int rc = 0;

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < v->count && !rc && v->at[i] < v->step->deleted_by; i++)
			rc = remove_if(v->step, v->at[i], pass == 0);
	return rc;
}

// An undeletion whose outcome was unknown and that is there: then the step is none of the deleted. What cannot be read may
// be one.
static int check_deleted(struct versions *v)
{
	struct ckpt_summary summary;
	int rc = -EEXIST;

	for (size_t i = 0; i < v->count && (rc == -EEXIST || rc == -ENOENT); i++)
		if (v->at[i] > v->step->deleted_by)
			rc = read_undeletion(v->step, v->at[i], &summary);
	return rc == -EEXIST || rc == -ENOENT ? 0 : rc ? rc : -ESTALE;
}

// What an attempt before has removed may not be gone for good, and must be before the deletion goes: else it would be
// listed.
static int sync_removals(struct ckpt_step *step)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];

	snprintf(object, sizeof(object), "steps/%s/%u", step->key, step->deleted_by);
	return ckpt_objects_sync(step->store->objects, object);
}

// 1: it says of a step that it is listed, 0: that it is deleted; -ENOENT. What cannot be read may say anything.
static int says_listed(struct ckpt_step *step, uint32_t version)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, version, &r);

	if (rc)
		return rc == -EBADMSG || rc == -ENOTSUP ? 1 : rc;
	rc = !r.summary.deleted;
	ckpt_record_done(&r);
	return rc;
}

// 1: without the deletion what is before it would be listed, since no version after it takes its part; 0; -errno.
static int is_needed(const struct versions *v)
{
	int rc = -ENOENT;

	if (v->count && v->at[v->count - 1] > v->step->deleted_by)
		return 0;
	for (size_t i = v->count; i-- > 0 && rc == -ENOENT;)
		if (v->at[i] < v->step->deleted_by)
			rc = says_listed(v->step, v->at[i]);
	return rc == -ENOENT ? 0 : rc;
}

struct before {
	const struct ckpt_step *step;
	struct ckpt_step *newest;
};

static int newest_before(void *arg, struct ckpt_step *d)
{
	struct before *b = arg;

	if (d->deleted_by < b->step->deleted_by && !strcmp(d->name, b->step->name) &&
	    (!b->newest || d->deleted_by > b->newest->deleted_by))
		b->newest = d;
	return 0;
}

// As after a restart: it is the deletion of the newest before it, and goes with that.
static void hand_on(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->lock);
	struct before b = {.step = step};

	(void)ckpt_step_each_locked(step->store, step->folder_id, 1u << CKPT_STEP_DELETED, newest_before, &b);
	if (!b.newest)
		return;
	LOCK_SCOPE(&b.newest->lock);
	b.newest->deleted_by = step->deleted_by;
	b.newest->deleted_ns = step->deleted_ns;
}

// Last: until here it says that the versions before it are no step. Where another session came in its place, there is none.
static int remove_deletion(const struct versions *v)
{
	struct ckpt_step *step = v->step;
	struct ckpt_record r;
	bool deletion;
	int rc;

	if (v->live && v->live == step->deleted_by)
		return 0; // no deletion: another session came in its place
	rc = ckpt_step_record(step, step->deleted_by, &r);
	if (rc) // an attempt before may have removed it and not have learnt whether for good
		return rc == -ENOENT ? remove_version(step, step->deleted_by) : rc;
	deletion = r.summary.deleted;
	ckpt_record_done(&r);
	rc = deletion ? is_needed(v) : 0;
	if (rc > 0)
		hand_on(step);
	return rc ? MIN(rc, 0) : deletion ? remove_version(step, step->deleted_by) : 0;
}

// Durable before a record or a file goes: else a power cut could bring back a session that nothing names, or some of its
// files with all of its records. What an attempt before has moved may not be durable either.
// What is to be removed then: ret_name, in trash/.
static int files_out_of_sight(struct ckpt_step *step, char ret_name[CKPT_TRASH_SESSION_NAME])
{
	struct ckpt_store *s = step->store;
	int rc = ckpt_trash_take(s, step->session, ret_name);

	if (!rc || rc == -ENOENT)
		rc = ckpt_sys.fsync(s->trash_fd);
	if (!rc)
		rc = ckpt_sys.fsync(s->sessions_fd);
	if (rc)
		*ret_name = '\0';
	return rc;
}

// From here on nobody can have it back, unless this fails.
static int take_away(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->lock);
	LOCK_SCOPE(&step->lock);

	if (step->state != CKPT_STEP_DELETED)
		return -ESTALE;
	ckpt_step_set_state_locked(step, CKPT_STEP_GONE);
	return 0;
}

static uint32_t live_version(struct ckpt_step *step)
{
	struct ckpt_step *live = ckpt_step_find(step->store, step->folder_id, step->name);
	uint32_t version = 0;

	if (live) {
		LOCK_SCOPE(&live->lock);
		version = live->state == CKPT_STEP_COMMITTED ? live->summary.version : 0;
	}
	ckpt_step_unref(live);
	return version;
}

// The files of a step that is listed under whatever name do not go, whatever the records say; and what says that a step was
// moved does not go before the step says it of itself.
static int check_session(struct ckpt_step *step)
{
	struct ckpt_step *live = ckpt_step_live_session(step->store, step->session);
	int rc = !live ? 0 : step->moved ? ckpt_move_confirm(live) : -EBUSY;

	ckpt_step_unref(live);
	return rc;
}

static void tell_expired(const struct ckpt_step *step)
{
	char size[CKPT_SIZE_MAX];

	ckpt_log(CKPT_LOG_INFO, "removed %s from the trash: %s", step->name, ckpt_size_text(step->summary.bytes, size));
}

static int expire(struct ckpt_step *step, struct ckpt_manifest *m, char ret_name[CKPT_TRASH_SESSION_NAME])
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct ckpt_store *s = step->store;
	char prefix[sizeof("steps/") + CKPT_STEP_KEY_MAX + 1];
	struct versions v = {.step = step};
	int rc = take_away(step);

	if (rc)
		return rc;
	v.live = live_version(step);
	snprintf(prefix, sizeof(prefix), "steps/%s/", step->key);
	rc = ckpt_objects_list(s->objects, prefix, NULL, add_version, &v);
	if (!rc && v.count)
		qsort(v.at, v.count, sizeof(*v.at), ascending);
	if (!rc)
		rc = check_deleted(&v);
	if (!rc)
		rc = check_session(step);
	if (!rc && !step->moved)
		rc = files_out_of_sight(step, ret_name);
	if (!rc)
		ckpt_gc_expect(step, m);
	if (!rc)
		rc = remove_versions_of(&v);
	if (!rc)
		rc = sync_removals(step);
	if (!rc)
		rc = remove_deletion(&v);
	free(v.at);
	if (!rc && !step->moved)
		tell_expired(step);
	ckpt_lock_take(&s->lock);
	if (!rc)
		ckpt_step_forget_locked(step);
	ckpt_lock_drop(&s->lock);
	if (rc) {
		LOCK_SCOPE(&step->lock);
		ckpt_step_set_state_locked(step, CKPT_STEP_DELETED);
	}
	return rc;
}

static bool has_own_files(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->state == CKPT_STEP_DELETED && !step->moved;
}

// A manifest of many files takes its time to be read, for which no other act should wait. Nor does one wait for the files.
static int expire_how(struct ckpt_step *step, bool at_once)
{
	char name[CKPT_TRASH_SESSION_NAME] = "";
	struct ckpt_manifest *m = NULL;
	int rc;

	if (has_own_files(step) && ckpt_step_read_current(step, &m))
		m = NULL;
	rc = expire(step, m, name);
	ckpt_manifest_unref(m);
	if (*name && (!at_once || ckpt_trash_remove(step->store, name)))
		ckpt_trash_remove_behind(step->store->trash, name);
	return rc;
}

int ckpt_expire(struct ckpt_step *step)
{
	return expire_how(step, false);
}

int ckpt_expire_at_once(struct ckpt_step *step)
{
	return expire_how(step, true);
}

int ckpt_delete_for_good(struct ckpt_step *step)
{
	int rc = ckpt_step_state(step) == CKPT_STEP_COMMITTED ? ckpt_delete(step) : 0;

	if (!rc)
		rc = ckpt_expire_at_once(step);
	// With trash=0 it may have expired meanwhile.
	return rc == -ESTALE && ckpt_step_state(step) == CKPT_STEP_GONE ? 0 : rc;
}

int64_t ckpt_expire_before(struct ckpt_store *s, int64_t deleted_ns, const bool *stop)
{
	struct ckpt_step **steps;
	int64_t next = INT64_MAX;
	size_t count;

	if (ckpt_step_list(s, NULL, 1u << CKPT_STEP_DELETED, &steps, &count))
		return next;
	for (size_t i = 0; i < count && !__atomic_load_n(stop, __ATOMIC_RELAXED); i++)
		if (deleted_at(steps[i]) >= deleted_ns)
			next = MIN(next, deleted_at(steps[i]));
		else if (ckpt_expire(steps[i]))
			next = MIN(next, deleted_ns + CKPT_EXPIRE_RETRY_NS);
	ckpt_step_list_free(steps, count);
	return next;
}
