#include "core/remote/known.h"

#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/change.h"
#include "core/step/errlog.h"
#include "core/step/staging.h"
#include "core/step/store.h"
#include "core/step/successor.h"

struct ckpt_known {
	struct ckpt_known *next; // of a later time
	struct ckpt_store *store;
	struct ckpt_step **steps;
	struct ckpt_step_name *names;
	struct ckpt_version **versions;
	struct ckpt_step **edits; // that have the place of a step since; NULL: none
	size_t count;
};

static void free_one(struct ckpt_known *k)
{
	if (!k)
		return;
	for (size_t i = 0; k->versions && i < k->count; i++)
		ckpt_version_unref(k->versions[i]);
	for (size_t i = 0; k->edits && i < k->count; i++)
		ckpt_step_unref(k->edits[i]);
	if (k->steps)
		ckpt_step_list_free(k->steps, k->count);
	free(k->names);
	free(k->versions);
	free(k->edits);
	free(k);
}

void ckpt_known_free(struct ckpt_known **k)
{
	for (struct ckpt_known *one; (one = *k);) {
		*k = one->next;
		free_one(one);
	}
}

static int fill(struct ckpt_known *k)
{
	int rc = ckpt_step_list(k->store, NULL, 1u << CKPT_STEP_COMMITTED, &k->steps, &k->count);

	if (rc)
		return rc;
	k->names = ckpt_calloc(k->count + 1, sizeof(*k->names));
	k->versions = ckpt_calloc(k->count + 1, sizeof(struct ckpt_version *));
	k->edits = ckpt_calloc(k->count + 1, sizeof(struct ckpt_step *));
	if (!k->names || !k->versions || !k->edits)
		return -ENOMEM;
	for (size_t i = 0; i < k->count; i++) {
		ckpt_step_name(k->steps[i], &k->names[i]);
		k->versions[i] = ckpt_step_version(k->steps[i]);
	}
	return 0;
}

int ckpt_known_new(struct ckpt_store *s, struct ckpt_known **ret_known)
{
	struct ckpt_known *k = ckpt_calloc(1, sizeof(*k));
	int rc;

	if (!k)
		return -ENOMEM;
	k->store = s;
	rc = fill(k);
	if (rc)
		free_one(k);
	else
		*ret_known = k;
	return rc;
}

// --- The difference -----------------------------------------------------------------------------------------------------

static bool is_elsewhere(struct ckpt_step *step, const struct ckpt_step_name *was)
{
	struct ckpt_step_name is;

	ckpt_step_name(step, &is);
	return ckpt_step_state(step) != CKPT_STEP_COMMITTED || strcmp(is.name, was->name) ||
	       strcmp(is.folder_id, was->folder_id);
}

static bool has_changed(const struct ckpt_known *k, size_t i)
{
	CLEANUP_VERSION struct ckpt_version *is = ckpt_step_version(k->steps[i]);

	return is != k->versions[i] || is_elsewhere(k->steps[i], &k->names[i]);
}

static void keep_changed(struct ckpt_known *k)
{
	size_t kept = 0;

	for (size_t i = 0; i < k->count; i++) {
		if (!has_changed(k, i)) {
			ckpt_version_unref(k->versions[i]);
			ckpt_step_unref(k->steps[i]);
			continue;
		}
		k->steps[kept] = k->steps[i];
		k->names[kept] = k->names[i];
		k->versions[kept++] = k->versions[i];
	}
	k->count = kept;
}

bool ckpt_known_add_changed(struct ckpt_known **list, struct ckpt_known *k)
{
	keep_changed(k);
	if (!k->count) {
		free_one(k);
		return false;
	}
	while (*list)
		list = &(*list)->next;
	*list = k;
	return true;
}

// --- Edits --------------------------------------------------------------------------------------------------------------

static struct ckpt_step *find_edit(struct ckpt_step *step, const struct ckpt_step_name *was)
{
	struct ckpt_step *to = ckpt_step_state(step) == CKPT_STEP_DELETED ? ckpt_successor_find(step) : NULL;

	if (!to || (!is_elsewhere(to, was) && !ckpt_step_is_reopened(to)))
		return to;
	ckpt_step_unref(to);
	return NULL;
}

static void renew(struct ckpt_known *k, size_t i)
{
	struct ckpt_store *s = k->store;
	struct ckpt_step *step = k->steps[i], *to = find_edit(step, &k->names[i]);

	if (!to)
		return;
	ckpt_amend_hand_on(step, to);
	ckpt_change_hand_on(step, to);
	s->calls.renew(s->calls.renew_arg, step, to);
	__atomic_store_n(&ckpt_staging_of(step)->ours, false, __ATOMIC_RELAXED); // its numbers are those of the other
	k->edits[i] = to;
}

void ckpt_known_renew(struct ckpt_known *k)
{
	for (; k; k = k->next)
		for (size_t i = 0; k->store->calls.renew && i < k->count; i++)
			renew(k, i);
}

// --- Telling ------------------------------------------------------------------------------------------------------------

// Files that another node has changed are asked for anew. What cannot be read is not told: who opens it reads it, or gets the error.
static void tell_changed(struct ckpt_step *step, const struct ckpt_version *was)
{
	CLEANUP_VERSION struct ckpt_version *is = ckpt_step_version(step);
	struct ckpt_manifest *before = NULL, *now = NULL;

	if (is == was || !memcmp(is->is.manifest_sha256, was->is.manifest_sha256, sizeof(is->is.manifest_sha256)))
		return;
	if (!ckpt_step_read_manifest(step, &was->is, &before) && !ckpt_step_read_manifest(step, &is->is, &now))
		step->store->calls.changed(step->store->calls.changed_arg, step, before, now);
	ckpt_manifest_unref(before);
	ckpt_manifest_unref(now);
}

static void tell_edited(struct ckpt_step *step, const struct ckpt_version *was, struct ckpt_step *to)
{
	struct ckpt_store *s = step->store;
	struct ckpt_manifest *before = NULL, *now = NULL;

	if (!ckpt_step_read_manifest(step, &was->is, &before) && !ckpt_step_manifest(to, &now) && s->calls.changed)
		s->calls.changed(s->calls.changed_arg, to, before, now);
	ckpt_manifest_unref(before);
	ckpt_manifest_unref(now);
}

static void tell(const struct ckpt_known *k, size_t i)
{
	const struct ckpt_store_calls *calls = &k->store->calls;

	if (k->edits[i])
		tell_edited(k->steps[i], k->versions[i], k->edits[i]);
	else if (is_elsewhere(k->steps[i], &k->names[i]) && calls->gone)
		calls->gone(calls->gone_arg, k->steps[i]);
	else if (!is_elsewhere(k->steps[i], &k->names[i]) && calls->changed)
		tell_changed(k->steps[i], k->versions[i]);
}

void ckpt_known_tell(const struct ckpt_known *k)
{
	for (; k; k = k->next)
		for (size_t i = 0; i < k->count; i++)
			tell(k, i);
}

// Its saver is told under which name it is. An edit that was put into another node's is no step of its own any more.
static void tell_lost_name(const struct ckpt_known *k, size_t i)
{
	struct ckpt_step_name is;

	ckpt_step_name(k->steps[i], &is);
	if (ckpt_step_state(k->steps[i]) == CKPT_STEP_COMMITTED && strstr(is.name, CKPT_NAME_CONFLICT) &&
	    strcmp(is.name, k->names[i].name))
		ckpt_errlog_add(k->store->errlog, k->names[i].name, -EEXIST,
				"nothing is lost: `mv` gives it another name, `ckptfs ls --all` lists both",
				"another node has saved a step of this name first: this node's is called %s", is.name);
}

void ckpt_known_tell_lost_names(const struct ckpt_known *k)
{
	for (; k; k = k->next)
		for (size_t i = 0; i < k->count; i++)
			tell_lost_name(k, i);
}
