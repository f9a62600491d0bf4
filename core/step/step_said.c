// A step becomes what the log says of it: at its first entry, and when acts of other nodes have been read.
#include "core/step/step.h"

#include "core/base/util.h"
#include "core/step/store.h"

#include <stdio.h>

int ckpt_step_said(struct ckpt_store *s, const char *session, struct ckpt_said *ret_said)
{
	return ckpt_journal_said(s->journal, session, ret_said);
}

static int enter_locked(struct ckpt_step *step, const struct ckpt_said *said)
{
	snprintf(step->session, sizeof(step->session), "%s", said->is.session);
	ckpt_step_set_version_locked(step, &said->is);
	step->state = CKPT_STEP_COMMITTED;
	if (!said->deleted_by)
		return ckpt_step_insert_locked(step, said->is.folder_id, said->is.name);
	memcpy(step->folder_id, said->is.folder_id, sizeof(step->folder_id));
	memcpy(step->name, said->is.name, sizeof(step->name));
	ckpt_step_bury_locked(step, said->deleted_by, said->deleted_ns);
	return ckpt_name_key(step->folder_id, step->name, step->key);
}

int ckpt_step_enter(struct ckpt_store *s, const struct ckpt_said *said)
{
	struct ckpt_step *step;
	int rc = ckpt_step_new(s, &step);

	if (rc)
		return rc;
	ckpt_lock_take(&s->lock);
	rc = enter_locked(step, said);
	*ckpt_step_sequence_locked(s) = MAX(*ckpt_step_sequence_locked(s), said->is.sequence);
	ckpt_lock_drop(&s->lock);
	ckpt_step_unref(step);
	return rc;
}

static bool is_old_locked(struct ckpt_step *step, const struct ckpt_said *said)
{
	LOCK_SCOPE(&step->lock);

	return MAX(said->is.version, said->deleted_by) < MAX(step->version->is.version, step->deleted_by) ||
	       !ckpt_step_has_manifest(step->state);
}

// To its place among those that have a name.
static bool take_place_locked(struct ckpt_step *step, const struct ckpt_said *said)
{
	char folder_id[sizeof(step->folder_id)], name[sizeof(step->name)];

	if (ckpt_step_state(step) == CKPT_STEP_COMMITTED && !strcmp(step->name, said->is.name) &&
	    !strcmp(step->folder_id, said->is.folder_id))
		return true;
	if (!ckpt_step_may_take_locked(step, said->is.folder_id, said->is.name))
		return false;
	memcpy(folder_id, step->folder_id, sizeof(folder_id));
	memcpy(name, step->name, sizeof(name));
	ckpt_step_erase_locked(step);
	if (!ckpt_step_insert_locked(step, said->is.folder_id, said->is.name))
		return true;
	if (ckpt_step_state(step) == CKPT_STEP_DELETED)
		ckpt_step_bury_locked(step, step->deleted_by, step->deleted_ns);
	else if (ckpt_step_insert_locked(step, folder_id, name))
		abort(); // it had that name a moment ago
	return false;
}

static void take_version_locked(struct ckpt_step *step, const struct ckpt_said *said)
{
	LOCK_SCOPE(&step->lock);

	ckpt_step_set_version_locked(step, &said->is);
	if (said->deleted_by)
		return;
	ckpt_step_set_state_locked(step, CKPT_STEP_COMMITTED);
	step->deleted_by = 0;
}

bool ckpt_step_follow_locked(struct ckpt_step *step, const struct ckpt_said *said)
{
	if (is_old_locked(step, said))
		return true;
	if (!said->deleted_by && !take_place_locked(step, said))
		return false;
	if (said->deleted_by && (ckpt_step_state(step) != CKPT_STEP_DELETED || step->deleted_by != said->deleted_by))
		ckpt_step_bury_locked(step, said->deleted_by, said->deleted_ns);
	take_version_locked(step, said);
	return true;
}

void ckpt_step_follow(struct ckpt_step *step)
{
	struct ckpt_said said;

	if (ckpt_step_said(step->store, step->session, &said))
		return;
	LOCK_SCOPE(&step->store->lock);
	(void)ckpt_step_follow_locked(step, &said);
}
