// Order of an expiry, so that a crash at any point leaves something that the next one ends: the files go out of sight, then the
// manifests that are objects, and then the log says it. While it does not, the step is in the trash, and cannot be had back without files.
#include "core/save/delete.h"

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/cold/garbage.h"
#include "core/save/pin.h"
#include "core/save/version.h"
#include "core/step/amending.h"
#include "core/step/errlog.h"
#include "core/step/folders.h"
#include "core/step/follow.h"
#include "core/step/removal.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>

// --- Delete -----------------------------------------------------------------------------------------------------------

struct deletion {
	bool behind;    // nobody has asked for it
	bool temporary; // not of a step that is permanent
	bool pinned;    // the step is, and stays
};

static int append_deletion(struct ckpt_step *step, struct deletion *d)
{
	struct ckpt_act act = {.kind = CKPT_ACT_DELETE, .time_ns = ckpt_sys.now_ns()};
	bool committed, stays;

	ckpt_lock_take(&step->lock);
	committed = step->state == CKPT_STEP_COMMITTED;
	act.version = step->version->is.version + 1;
	d->pinned = committed && step->version->is.pinned;
	stays = d->temporary && !step->version->is.temporary;
	ckpt_lock_drop(&step->lock);
	return !committed || stays ? -ESTALE : d->pinned ? -EPERM : ckpt_version_act(step, &act, true);
}

static void tell_deleted(struct ckpt_step *step, const struct deletion *d)
{
	char size[CKPT_SIZE_MAX];

	ckpt_log(CKPT_LOG_INFO, "deleted %s%s: to the trash, %s", step->name,
		 d->temporary ? " (a temporary step; a newer one was committed)"
		 : d->behind  ? " (by the policy)"
			      : "",
		 ckpt_size_text(ckpt_step_bytes(step), size));
}

static int delete_locked(struct ckpt_step *step, struct deletion *d)
{
	int rc = ckpt_follow_settle(step->store);

	if (!rc && ckpt_version_was_done(step, CKPT_ACT_DELETE, CKPT_STEP_DELETED))
		return 0;
	if (!rc)
		rc = append_deletion(step, d);
	if (rc && rc != -ESTALE && rc != -EPERM)
		ckpt_errlog_add(step->store->errlog, step->name, rc,
				d->behind ? "it is tried again; or remove it" : "remove it again",
				rc == -EIO ? "outcome unknown: cannot confirm that it is deleted"
					   : "it could not be deleted");
	if (rc)
		return rc;
	tell_deleted(step, d);
	ckpt_trash_wake(*ckpt_trash_of(step->store));
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
	return __atomic_load_n(&ckpt_amending_of(step)->pending_files, __ATOMIC_RELAXED) != NULL;
}

int ckpt_delete_behind_locked(struct ckpt_step *step, bool temporary)
{
	struct deletion d = {.behind = true, .temporary = temporary};
	int rc;

	rc = ckpt_step_is_reopened(step) || ckpt_removal_any(step) || is_adding(step) ? -EBUSY
										      : delete_locked(step, &d);
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
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_DELETED, ret_steps, ret_count);

	if (!rc && *ret_count)
		qsort(*ret_steps, *ret_count, sizeof(**ret_steps), by_name_newest_first);
	return rc;
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
	int rc = ckpt_step_state(step) != CKPT_STEP_DELETED ? -ESTALE : 0;

	if (!rc)
		rc = ckpt_step_reserve_locked(step, step->folder_id, step->name);

	*ret_version = ckpt_step_versions_used_locked(step->store, step->folder_id, step->name) + 1;
	return rc;
}

// Those that an expiry has taken away are gone. What a remote has needs none here.
static bool has_its_files(struct ckpt_step *step)
{
	struct ckpt_said said;

	return !faccessat(step->store->sessions_fd, step->session, F_OK, AT_SYMLINK_NOFOLLOW) ||
	       (!ckpt_step_said(step->store, step->session, &said) && said.pulled);
}

static int append_undeletion(struct ckpt_step *step)
{
	struct ckpt_act act = {.kind = CKPT_ACT_UNDELETE, .time_ns = ckpt_sys.now_ns()};
	struct ckpt_store *s = step->store;
	struct ckpt_said said;
	int rc = reserve(step, &act.version);

	if (rc)
		return rc;
	if (!ckpt_step_said(s, step->session, &said)) // a change that met the deletion may be behind it
		act.version = MAX(act.version, said.last + 1);
	rc = has_its_files(step) ? 0 : -ESTALE;
	if (!rc)
		rc = ckpt_folders_back(s, step->folder_id, step->name);
	if (!rc)
		rc = ckpt_version_act(step, &act, false);
	ckpt_lock_take(&s->lock);
	ckpt_step_release_locked(step);
	ckpt_lock_drop(&s->lock);
	return rc;
}

int ckpt_undelete(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct ckpt_store *s = step->store;
	int rc = ckpt_follow_settle(s);

	if (!rc && !ckpt_version_was_done(step, CKPT_ACT_UNDELETE, CKPT_STEP_COMMITTED))
		rc = append_undeletion(step);
	if (!rc) {
		ckpt_store_wake_behind(s);
		ckpt_log(CKPT_LOG_INFO, "undeleted %s", step->name);
	} else if (rc != -ESTALE && rc != -ENOENT && rc != -EEXIST) {
		ckpt_errlog_add(s->errlog, step->name, rc, "try it again",
				rc == -EIO ? "outcome unknown: cannot confirm that it was restored from the trash"
					   : "it could not be restored from the trash");
	}
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

static int remove_manifest_of(struct ckpt_step *step, const struct ckpt_summary *summary)
{
	char manifest[2 + 64 + 1] = "m/";
	int rc;

	if (summary->manifest_bytes <= CKPT_MANIFEST_EMBED_MAX)
		return 0;
	ckpt_hex(summary->manifest_sha256, 32, manifest + 2);
	rc = ckpt_objects_remove(step->store->objects, manifest);
	return rc == -ENOENT ? 0 : rc;
}

struct numbers {
	uint32_t *at;
	size_t count, cap;
};

static int add_numbers(void *arg, const struct ckpt_state_step *step)
{
	struct numbers *n = arg;
	int rc = ckpt_grow((void **)&n->at, &n->cap, step->count, sizeof(*n->at));

	for (; !rc && n->count < step->count; n->count++)
		n->at[n->count] = step->versions[n->count].version;
	return rc;
}

// Each names its step, and so is nobody else's. What cannot be read is not ours to judge.
static int remove_manifests(struct ckpt_step *step)
{
	struct numbers n = {0};
	int rc = ckpt_journal_step(step->store->journal, step->session, add_numbers, &n);

	for (size_t i = 0; i < n.count && !rc; i++) {
		struct ckpt_record r;

		rc = ckpt_step_record(step, n.at[i], &r);
		if (rc) {
			rc = rc == -ENOMEM || rc == -EIO ? rc : 0;
			continue;
		}
		rc = remove_manifest_of(step, &r.summary);
		ckpt_record_done(&r);
	}
	free(n.at);
	return rc == -ENOENT ? 0 : rc;
}

// Durable before the log says it, or a file goes: else a power cut could bring back a session that nothing names, or some of its
// files with all of its versions. What an attempt before has moved may not be durable either.
// ret_name in trash/ is to be removed then.
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

static void tell_expired(struct ckpt_step *step)
{
	char size[CKPT_SIZE_MAX];

	ckpt_log(CKPT_LOG_INFO, "removed %s from the trash: %s", step->name,
		 ckpt_size_text(ckpt_step_bytes(step), size));
}

// An earlier attempt had done it, but its answer was lost.
static bool is_expired(struct ckpt_step *step)
{
	struct ckpt_said said;

	return ckpt_step_said(step->store, step->session, &said) == -ENOENT;
}

static int append_expiry(struct ckpt_step *step)
{
	struct ckpt_act act = {.kind = CKPT_ACT_EXPIRE, .time_ns = ckpt_sys.now_ns()};
	struct ckpt_said said;
	int rc = ckpt_step_said(step->store, step->session, &said);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	act.version = said.last;
	rc = ckpt_version_act(step, &act, true);

	return rc == -ESTALE && is_expired(step) ? 0 : rc;
}

// Another node may have it back.
static bool is_deleted_by_the_log(struct ckpt_step *step)
{
	struct ckpt_said said;

	return ckpt_step_said(step->store, step->session, &said) || said.deleted_by;
}

static int expire(struct ckpt_step *step, struct ckpt_manifest *m, char ret_name[CKPT_TRASH_SESSION_NAME])
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct ckpt_store *s = step->store;
	struct ckpt_record_copies copies = ckpt_store_copies(s);
	bool was_deleted = ckpt_step_state(step) == CKPT_STEP_DELETED;
	int rc = ckpt_follow_settle(s);

	if (!rc && was_deleted && is_expired(step))
		return files_out_of_sight(step, ret_name);
	if (!rc && !is_deleted_by_the_log(step))
		rc = -ESTALE;
	if (!rc)
		rc = take_away(step);
	if (rc)
		return rc;
	rc = files_out_of_sight(step, ret_name);
	if (!rc)
		ckpt_garbage_expect(step, m);
	if (!rc)
		ckpt_record_copy_remove(&copies, step->session);
	if (!rc)
		rc = remove_manifests(step);
	if (!rc)
		rc = append_expiry(step);
	if (!rc)
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

// A manifest of many files takes its time to be read, for which no other act should wait. Nor does one wait for the files.
static int expire_how(struct ckpt_step *step, bool at_once)
{
	char name[CKPT_TRASH_SESSION_NAME] = "";
	struct ckpt_manifest *m = NULL;
	int rc;

	if (ckpt_step_state(step) == CKPT_STEP_DELETED && ckpt_step_read_current(step, &m))
		m = NULL;
	rc = expire(step, m, name);
	ckpt_manifest_unref(m);
	if (*name && (!at_once || ckpt_trash_remove(step->store, name)))
		ckpt_trash_remove_behind(*ckpt_trash_of(step->store), name);
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
