#include "core/move.h"

#include "core/errlog.h"
#include "core/folders.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"
#include "core/version.h"

#include <stdio.h>

struct move {
	struct ckpt_step *step;    // under its old name
	struct ckpt_step *to;      // stands for the new name until it is given: an object of its own, in no table
	struct ckpt_summary moved; // the record under the new name
	struct ckpt_summary deletion;
};

// --- The records --------------------------------------------------------------------------------------------------------

static bool is_ours(const struct move *v, const struct ckpt_summary *there)
{
	return !strcmp(there->session, v->step->session) && !strcmp(there->event, CKPT_EVENT_MOVE) && !there->deleted;
}

// An earlier attempt may have left one there.
static int put_under_new_name(struct move *v)
{
	struct ckpt_record r, there;
	uint32_t version = v->to->attempt_version;
	int rc;

	pthread_mutex_lock(&v->step->lock);
	rc = v->step->state == CKPT_STEP_COMMITTED ? 0 : -ESTALE;
	v->moved.version = v->step->summary.version;
	pthread_mutex_unlock(&v->step->lock);
	if (!rc)
		rc = ckpt_step_record(v->step, v->moved.version, &r);
	if (rc)
		return rc;
	memcpy(r.summary.folder_id, v->to->folder_id, sizeof(r.summary.folder_id));
	memcpy(r.summary.name, v->to->name, sizeof(r.summary.name));
	snprintf(r.summary.event, sizeof(r.summary.event), CKPT_EVENT_MOVE);
	r.summary.number = ckpt_name_number(r.summary.name);
	r.summary.version = version;
	rc = ckpt_version_put_record(v->to, &r);
	v->moved = r.summary;
	ckpt_record_done(&r);
	if (rc == -EEXIST && !ckpt_step_record(v->to, version, &there)) {
		if (is_ours(v, &there.summary)) {
			v->moved = there.summary;
			rc = 0;
		}
		ckpt_record_done(&there);
	}
	return rc;
}

static void take_back(struct move *v)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];

	snprintf(object, sizeof(object), "steps/%s/%u", v->to->key, v->moved.version);
	(void)ckpt_backend_remove(v->to->store->backend, object, NULL); // else it is void, and goes at the next open
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
	return rc ? rc : ckpt_step_reserve_locked(to, folder_id, name);
}

// The object goes on under the new name; `to` becomes what is deleted under the old one.
static void exchange(struct move *v)
{
	struct ckpt_step *step = v->step, *to = v->to;
	struct ckpt_store *s = step->store;
	LOCK_SCOPE(&s->lock);

	ckpt_step_release_locked(to);
	ckpt_step_erase_locked(step);
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
	step->state = CKPT_STEP_COMMITTED;
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

// Of two records of one session the one whose event is "move" is void: a step that was moved before loses that event
// before it is moved again.
static int lose_event(struct ckpt_step *step)
{
	struct ckpt_summary next;
	bool changed;
	int rc = ckpt_version_put(step, mark_settled, NULL, &next, &changed);

	if (rc || !changed)
		return rc;
	rc = ckpt_step_load(step->store, &next);
	if (!rc)
		index_behind(step, &next);
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
	bool changed;
	int rc = lose_event(v->step);

	if (!rc)
		rc = put_under_new_name(v);
	if (rc)
		return rc;
	rc = ckpt_version_put(v->step, mark_moved, NULL, &v->deletion, &changed);
	if (rc == -ESTALE && was_moved(v))
		return 0;
	if (!rc)
		index_behind(v->step, &v->deletion);
	else if (rc != -EIO)
		take_back(v);
	return rc;
}

int ckpt_move(struct ckpt_step *step, const char *folder_id, const char *name)
{
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
	} else if (rc != -ESTALE && rc != -EEXIST) {
		ckpt_errlog_add(s->errlog, step->name, rc, "rename it again",
				rc == -EIO ? "outcome unknown: it may or may not be renamed"
					   : "it could not be renamed");
	}
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
		return "`ckptfs ls --all` says what there is";
	default:
		return NULL;
	}
}

// --- At the start -------------------------------------------------------------------------------------------------------

static int by_session(const void *a, const void *b)
{
	return strcmp((*(struct ckpt_step *const *)a)->session, (*(struct ckpt_step *const *)b)->session);
}

static void settle(struct ckpt_step *void_one)
{
	struct ckpt_store *s = void_one->store;
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];

	if (s->writable) {
		snprintf(object, sizeof(object), "steps/%s/%u", void_one->key, void_one->summary.version);
		(void)ckpt_backend_remove(s->backend, object, NULL);
	}
	// Steps before it may have had the name: what they used is remembered by this one.
	pthread_mutex_lock(&s->lock);
	void_one->moved = true;
	ckpt_step_bury_locked(void_one, void_one->summary.version, void_one->summary.committed_ns);
	pthread_mutex_unlock(&s->lock);
}

int ckpt_move_settle(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count);

	if (rc)
		return rc;
	if (count)
		qsort(steps, count, sizeof(*steps), by_session);
	for (size_t i = 1; i < count; i++) {
		struct ckpt_step *a = steps[i - 1], *b = steps[i];

		if (strcmp(a->session, b->session))
			continue;
		settle(strcmp(b->summary.event, CKPT_EVENT_MOVE) ? a : b);
	}
	ckpt_step_list_free(steps, count);
	return 0;
}
