#include "core/commit/move.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/version.h"
#include "core/store/errlog.h"
#include "core/store/folders.h"
#include "core/store/store.h"

#include <stdio.h>

struct move {
	struct ckpt_step *step;    // under its old name
	struct ckpt_step *to;      // stands for the new name until it is given: an object of its own, in no table
	struct ckpt_step *earlier; // to be let go
	struct ckpt_summary moved; // the record under the new name
	struct ckpt_summary deletion;
};

// --- The records --------------------------------------------------------------------------------------------------------

static bool is_ours(const struct move *v, const struct ckpt_summary *there)
{
	return !strcmp(there->session, v->step->session) && !strcmp(there->event, CKPT_EVENT_MOVE) && !there->deleted;
}

static void object_of(const struct move *v, char *ret_object, size_t cap)
{
	snprintf(ret_object, cap, "steps/%s/%u", v->to->key, v->to->attempt_version);
}

// What the step is now, as it will be under its new name.
static int put_copy(struct move *v, uint32_t current)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(v->step, current, &r);

	if (rc)
		return rc;
	memcpy(r.summary.folder_id, v->to->folder_id, sizeof(r.summary.folder_id));
	memcpy(r.summary.name, v->to->name, sizeof(r.summary.name));
	snprintf(r.summary.event, sizeof(r.summary.event), CKPT_EVENT_MOVE);
	r.summary.number = ckpt_name_number(r.summary.name);
	r.summary.version = v->to->attempt_version;
	r.summary.committed_ns = ckpt_sys.now_ns();
	rc = ckpt_version_put_record(v->to, &r, false);
	v->moved = r.summary;
	ckpt_record_done(&r);
	return rc;
}

// An earlier attempt left one there. If its deletion is there, too, this is the step; else it is void, and may be old.
static int take_or_replace(struct move *v, uint32_t current)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];
	struct ckpt_record there;
	int rc = ckpt_step_record(v->to, v->to->attempt_version, &there);

	if (rc)
		return rc;
	v->moved = there.summary;
	rc = is_ours(v, &there.summary) ? 0 : -EEXIST;
	ckpt_record_done(&there);
	if (rc)
		return rc;
	rc = ckpt_step_record(v->step, current + 1, &there);
	if (!rc)
		ckpt_record_done(&there);
	if (rc != -ENOENT)
		return rc;
	object_of(v, object, sizeof(object));
	rc = ckpt_objects_remove(v->step->store->objects, object, NULL);
	return rc && rc != -ENOENT ? rc : put_copy(v, current);
}

static int put_under_new_name(struct move *v)
{
	uint32_t current;
	int rc;

	ckpt_lock_take(&v->step->lock);
	rc = v->step->state == CKPT_STEP_COMMITTED ? 0 : -ESTALE;
	current = v->step->summary.version;
	ckpt_lock_drop(&v->step->lock);
	if (!rc)
		rc = put_copy(v, current);
	return rc == -EEXIST ? take_or_replace(v, current) : rc;
}

// 0: it is gone for good.
static int take_back(struct move *v)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];
	int rc;

	object_of(v, object, sizeof(object));
	rc = ckpt_objects_remove(v->to->store->objects, object, NULL);
	return rc == -ENOENT ? 0 : rc;
}

static int mark_moved(void *arg __attribute__((unused)), struct ckpt_record *r)
{
	free(TAKE_PTR(r->metadata));
	free(TAKE_PTR(r->manifest));
	r->manifest_len = 0;
	r->summary.deleted = true;
	snprintf(r->summary.event, sizeof(r->summary.event), CKPT_EVENT_MOVE);
	return 0;
}

// --- In memory ----------------------------------------------------------------------------------------------------------

static int reserve(struct move *v, const char *folder_id, const char *name)
{
	struct ckpt_store *s = v->step->store;
	struct ckpt_step *to = v->to;
	LOCK_SCOPE(&s->lock);
	int rc = ckpt_name_key(folder_id, name, to->key);

	snprintf(to->folder_id, sizeof(to->folder_id), "%s", folder_id);
	snprintf(to->name, sizeof(to->name), "%s", name);
	to->attempt_version = ckpt_step_versions_used_locked(s, folder_id, name) + 1;
	if (!rc && ckpt_store_unreadable(s, to->key))
		rc = -EEXIST;
	// What an earlier attempt under another name has left may still become the step.
	if (!rc && *v->step->moving_to && strcmp(v->step->moving_to, to->key))
		rc = -EBUSY;
	return rc ? rc : ckpt_step_reserve_locked(to, folder_id, name);
}

// The step had the new name before: what said that it was moved away from there is history now.
static void forget_earlier(struct move *v)
{
	struct ckpt_step *earlier = ckpt_step_deleted_locked(v->step->store, &v->moved);

	if (!earlier || !earlier->moved || earlier == v->step)
		return;
	ckpt_step_ref(earlier); // the last reference never goes under the lock
	ckpt_step_forget_locked(earlier);
	v->earlier = earlier;
}

// The object goes on under the new name; `to` becomes what is deleted under the old one.
static void exchange(struct move *v)
{
	struct ckpt_step *step = v->step, *to = v->to;
	struct ckpt_store *s = step->store;
	LOCK_SCOPE(&s->lock);

	ckpt_step_release_locked(to);
	forget_earlier(v);
	ckpt_step_erase_locked(step);
	*step->moving_to = '\0';
	memcpy(to->folder_id, step->folder_id, sizeof(to->folder_id));
	memcpy(to->name, step->name, sizeof(to->name));
	memcpy(to->key, step->key, sizeof(to->key));
	memcpy(to->session, step->session, sizeof(to->session));
	to->summary = v->deletion;
	to->moved = true;
	ckpt_step_bury_locked(to, v->deletion.version, v->deletion.committed_ns);
	if (ckpt_step_insert_locked(step, v->moved.folder_id, v->moved.name))
		abort(); // the name was reserved, under the same lock
	LOCK_SCOPE(&step->lock);
	ckpt_step_set_state_locked(step, CKPT_STEP_COMMITTED);
	step->moved = false;
	step->deleted_by = 0;
	step->summary = v->moved;
}

static void index_behind(struct ckpt_step *step, const struct ckpt_summary *summary)
{
	if (step->store->indexer)
		ckpt_indexer_put(step->store->indexer, step->key, summary, NULL, 0);
}

static int mark_settled(void *arg __attribute__((unused)), struct ckpt_record *r)
{
	if (strcmp(r->summary.event, CKPT_EVENT_MOVE))
		return 1;
	snprintf(r->summary.event, sizeof(r->summary.event), "moved");
	return 0;
}

// From then on it does not depend on what the old name says.
int ckpt_move_confirm(struct ckpt_step *step)
{
	struct ckpt_summary next;
	bool changed;
	int rc;

	if (strcmp(step->summary.event, CKPT_EVENT_MOVE))
		return 0;
	rc = ckpt_version_put(step, mark_settled, NULL, false, &next, &changed);
	if (rc || !changed)
		return rc;
	rc = ckpt_step_load(step->store, &next);
	index_behind(step, &next); // it is in the store, whatever the table made of it
	return rc;
}

// An earlier attempt had put the deletion, but its answer was lost until this one asked. Of that deletion only what is
// kept in memory is made up here.
static bool was_moved(struct move *v)
{
	LOCK_SCOPE(&v->step->lock);

	v->deletion = v->step->summary;
	v->deletion.version = v->step->deleted_by;
	v->deletion.committed_ns = v->step->deleted_ns;
	return v->step->state == CKPT_STEP_DELETED && v->step->moved;
}

static int put_both(struct move *v)
{
	struct ckpt_step *step = v->step;
	bool changed;
	int rc = ckpt_move_confirm(step);

	if (rc)
		return rc;
	ckpt_lock_take(&step->store->lock);
	memcpy(step->moving_to, v->to->key, sizeof(step->moving_to));
	ckpt_lock_drop(&step->store->lock);
	rc = put_under_new_name(v);
	if (!rc)
		rc = ckpt_version_put(step, mark_moved, NULL, false, &v->deletion, &changed);
	if (rc == -ESTALE && was_moved(v))
		return 0;
	if (!rc) {
		index_behind(step, &v->deletion);
	} else if (rc == -EEXIST || (rc != -EIO && !take_back(v))) {
		ckpt_lock_take(&step->store->lock);
		*step->moving_to = '\0'; // nothing of it is left
		ckpt_lock_drop(&step->store->lock);
	}
	return rc;
}

int ckpt_move(struct ckpt_step *step, const char *folder_id, const char *name)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct move v = {.step = step};
	struct ckpt_store *s = step->store;
	int rc = ckpt_name_check(name, strlen(name));

	if (rc)
		return rc;
	rc = ckpt_step_new(s, &v.to);
	if (rc)
		return rc;
	rc = reserve(&v, folder_id, name);
	if (!rc)
		rc = put_both(&v);
	if (!rc) {
		exchange(&v);
		index_behind(step, &v.moved);
		(void)ckpt_move_confirm(step); // else before the deletion expires, or at the next open
	} else if (rc != -ESTALE && rc != -EEXIST) {
		ckpt_errlog_add(s->errlog, step->name, rc,
				rc == -EBUSY ? "rename it to that name again, which gives the final answer"
					     : "rename it again",
				rc == -EBUSY ? "whether it was renamed to another name before is not known"
				: rc == -EIO ? "outcome unknown: cannot confirm that it is renamed"
					     : "it could not be renamed");
	}
	ckpt_step_unref(v.earlier);
	ckpt_step_unref(v.to);
	return rc;
}

int ckpt_move_to(struct ckpt_step *step, const char *path)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	const char *name;
	int rc = ckpt_folders_place(step->store, path, id, &name);

	return rc ? rc : ckpt_move(step, id, name);
}

const char *ckpt_move_hint(int error)
{
	switch (error) {
	case -EEXIST:
		return "remove or rename what has the new name first";
	case -ENOENT:
	case -ENOTDIR:
		return "the folder of the new name must be there: mkdir it in the mount";
	case -EBUSY:
		return "somebody is removing the step just now";
	case -ESTALE:
		return "`ckptfs ls --all` lists the steps";
	default:
		return NULL;
	}
}

// --- At the start -------------------------------------------------------------------------------------------------------

static int by_session(const void *a, const void *b)
{
	return strcmp((*(struct ckpt_step *const *)a)->session, (*(struct ckpt_step *const *)b)->session);
}

static bool is_move(const struct ckpt_step *step)
{
	return step->state == CKPT_STEP_COMMITTED && !strcmp(step->summary.event, CKPT_EVENT_MOVE);
}

static void make_void(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];

	if (s->writable) {
		snprintf(object, sizeof(object), "steps/%s/%u", step->key, step->summary.version);
		(void)ckpt_objects_remove(s->objects, object, NULL); // else it is void at the next open, too
	}
	ckpt_lock_take(&s->lock);
	if (s->writable) {
		// Steps before it may have had the name: what they used is remembered by this one.
		step->moved = true;
		ckpt_step_bury_locked(step, step->summary.version, step->summary.committed_ns);
	} else {
		ckpt_step_forget_locked(step); // it may be a rename that is going on
	}
	ckpt_lock_drop(&s->lock);
}

// All that is known of one session. What was moved is void where the session is listed, or was deleted, under a name from
// which it was not moved away.
static void settle(struct ckpt_step **steps, size_t count)
{
	bool at_home = false;

	for (size_t i = 0; i < count; i++)
		at_home |= !is_move(steps[i]) && !steps[i]->moved;
	for (size_t i = 0; i < count; i++) {
		if (!is_move(steps[i]))
			continue;
		if (at_home)
			make_void(steps[i]);
		else if (steps[i]->store->writable)
			(void)ckpt_move_confirm(steps[i]);
		at_home = true; // of two, which cannot be, one
	}
}

int ckpt_move_settle(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count, next;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED, &steps, &count);

	if (rc)
		return rc;
	if (count)
		qsort(steps, count, sizeof(*steps), by_session);
	for (size_t i = 0; i < count; i = next) {
		for (next = i + 1; next < count && !strcmp(steps[next]->session, steps[i]->session);)
			next++;
		if (*steps[i]->session)
			settle(steps + i, next - i);
	}
	ckpt_step_list_free(steps, count);
	return 0;
}
