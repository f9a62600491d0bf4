#include "core/save/replace.h"

#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/find/find.h"
#include "core/save/move.h"
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/removal.h"
#include "core/step/store.h"

#include <stdio.h>

// A name that only what is still written has (name.h): left over, it goes by itself in time.
#define OWN_NAME ".partial_save"
#define SHOWN_MAX 200 // bytes of the name in it, as in the format

static int own_name(const char *name, char ret_name[CKPT_NAME_MAX + 1])
{
	char uuid[CKPT_UUID_LEN + 1];
	int rc = ckpt_uuid_make(uuid);

	if (!rc)
		snprintf(ret_name, CKPT_NAME_MAX + 1, "%.200s.%.8s" OWN_NAME, strlen(name) > SHOWN_MAX ? "step" : name,
			 uuid);
	return rc;
}

int ckpt_replace_begin(struct ckpt_store *s, const char *folder_id, const char *name, mode_t mode, uid_t uid, gid_t gid,
		       pid_t pid, struct ckpt_step **ret_step)
{
	struct ckpt_step *there = ckpt_find_committed(s, folder_id, name);
	char own[CKPT_NAME_MAX + 1];
	int rc = there ? own_name(name, own) : 0;

	if (!rc)
		rc = ckpt_stage_begin(s, folder_id, there ? own : name, mode, uid, gid, pid, ret_step);
	ckpt_step_unref(there);
	return rc;
}

// --- Commit -----------------------------------------------------------------------------------------------------------

struct place {
	char folder_id[CKPT_FOLDER_ID_LEN + 1], name[CKPT_NAME_MAX + 1]; // its own
};

// From now on nobody begins a change of it. -EBUSY: somebody is about one.
static int close_base(struct ckpt_step *base)
{
	LOCK_SCOPE(&base->lock);

	if (base->state != CKPT_STEP_COMMITTED || ckpt_amending_of(base)->pending_files)
		return -EBUSY;
	ckpt_amending_of(base)->reopening = true;
	return 0;
}

static void open_base(struct ckpt_step *base)
{
	LOCK_SCOPE(&base->lock);

	ckpt_amending_of(base)->reopening = false;
}

// *ret_before: whose place it had in an attempt before, with a reference, or NULL. Who looks at the step may be reading there: it
// stays what it is until it is another one.
static int change_place(struct ckpt_step *step, struct ckpt_step *base, struct place *ret_own,
			struct ckpt_step **ret_before)
{
	LOCK_SCOPE(&step->store->lock);
	LOCK_SCOPE(&step->lock);

	if (step->state != CKPT_STEP_STAGED || ckpt_staging_of(step)->outcome_unknown || step->reopens)
		return -EBUSY;
	memcpy(ret_own->folder_id, step->folder_id, sizeof(ret_own->folder_id));
	memcpy(ret_own->name, step->name, sizeof(ret_own->name));
	ckpt_reopen_of(step)->fresh = true;
	*ret_before = ckpt_reopen_take_locked(step, base);
	return 0;
}

// Under acts_lock.
static int take_place_of(struct ckpt_step *step, struct ckpt_step *base, struct place *ret_own)
{
	int rc = ckpt_step_is_reopened(base) || ckpt_removal_any(base) ? -EBUSY : ckpt_amending_settle_locked(base);
	struct ckpt_step *before = NULL;

	if (!rc)
		rc = close_base(base);
	if (rc)
		return rc;
	rc = change_place(step, base, ret_own, &before);
	open_base(base);
	ckpt_step_unref(before);
	return rc;
}

// It has the place since an attempt whose outcome is unknown, and needs another name should the next one fail.
static bool has_place(struct ckpt_step *step, const struct ckpt_step *base)
{
	LOCK_SCOPE(&step->store->lock);

	return ckpt_reopen_of(step)->fresh && base->reopened == step;
}

static int keep_place(const struct ckpt_step *step, struct place *ret_own)
{
	memcpy(ret_own->folder_id, step->folder_id, sizeof(ret_own->folder_id));
	return own_name(step->name, ret_own->name);
}

// *ret_base: whose place it has, with a reference; NULL: the name is free, or its own already.
static int take_place(struct ckpt_step *step, const struct ckpt_commit *how, struct place *ret_own,
		      struct ckpt_step **ret_base)
{
	struct ckpt_store *s = step->store;
	LOCK_SCOPE(&s->acts_lock);
	struct ckpt_step *base = ckpt_find_committed(s, how->folder_id, how->name);
	int rc;

	*ret_base = NULL;
	if (!base || base == step) {
		ckpt_step_unref(base);
		return 0;
	}
	rc = has_place(step, base) ? keep_place(step, ret_own) : take_place_of(step, base, ret_own);
	if (rc)
		ckpt_step_unref(base);
	else
		*ret_base = base;
	return rc;
}

// A commit that nobody waits for any more, or whose outcome is unknown, keeps the place.
static void give_back(struct ckpt_step *step, const struct place *own)
{
	struct ckpt_store *s = step->store;
	bool ended;

	ckpt_lock_take(&s->lock);
	ckpt_lock_take(&step->lock);
	ended = step->reopens && step->state == CKPT_STEP_STAGED &&
		!ckpt_staging_of(step)->outcome_unknown; // who joined may have done it
	ckpt_lock_drop(&step->lock);
	if (ended) {
		ckpt_step_end_reopen_locked(step);
		if (ckpt_step_insert_locked(step, own->folder_id, own->name))
			abort(); // nobody else has such a name
	}
	ckpt_lock_drop(&s->lock);
}

int ckpt_replace_commit(struct ckpt_step *step, const struct ckpt_commit *how, struct ckpt_step **ret_replaced)
{
	struct ckpt_commit in_place = *how;
	struct ckpt_step *base = NULL;
	struct place own;
	int rc = take_place(step, how, &own, &base);

	*ret_replaced = NULL;
	if (rc)
		return rc;
	if (!base)
		return ckpt_commit(step, how);
	in_place.folder_id = in_place.name = NULL;
	rc = ckpt_commit(step, &in_place);
	if (!rc) {
		*ret_replaced = base;
		return 0;
	}
	give_back(step, &own);
	ckpt_step_unref(base);
	return rc;
}

const char *ckpt_replace_hint(int error)
{
	return error == -EEXIST ? "remove or rename it first; `save --force`, `derive --force` and `convert --force` "
				  "take its place"
				: ckpt_move_hint(error);
}
