#include "core/save/move.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/version.h"
#include "core/step/errlog.h"
#include "core/step/folders.h"
#include "core/step/follow.h"

#include <stdio.h>

// Nobody else gets the name meanwhile. to: an object that stands for it, in no table.
static int reserve(struct ckpt_step *to, const char *folder_id, const char *name)
{
	LOCK_SCOPE(&to->store->lock);

	return ckpt_step_reserve_locked(to, folder_id, name);
}

static int append(struct ckpt_step *step, const char *folder_id, const char *name)
{
	struct ckpt_act act = {.kind = CKPT_ACT_RENAME, .time_ns = ckpt_sys.now_ns()};
	bool unknown;

	memcpy(act.step, step->session, sizeof(act.step));
	snprintf(act.folder_id, sizeof(act.folder_id), "%s", folder_id);
	snprintf(act.name, sizeof(act.name), "%s", name);
	return ckpt_journal_append(step->store->journal, &act, false, &unknown);
}

static bool is_called(struct ckpt_step *step, const char *folder_id, const char *name)
{
	struct ckpt_step_name now;

	ckpt_step_name(step, &now);
	return !strcmp(now.name, name) && !strcmp(now.folder_id, folder_id);
}

// The name goes from the one to the other under one lock.
static void take_name(struct ckpt_step *step, struct ckpt_step *to)
{
	struct ckpt_said said;
	int rc = ckpt_step_said(step->store, step->session, &said);
	LOCK_SCOPE(&step->store->lock);

	ckpt_step_release_locked(to);
	if (!rc)
		(void)ckpt_step_follow_locked(step, &said);
}

static int move_to(struct ckpt_step *step, struct ckpt_step *to, const char *folder_id, const char *name)
{
	bool was_called = is_called(step, folder_id, name);
	int rc = ckpt_follow_settle(step->store);

	if (rc)
		return rc;
	if (ckpt_step_state(step) != CKPT_STEP_COMMITTED)
		return -ESTALE;
	if (!was_called && is_called(step, folder_id, name))
		return 0; // an attempt before had done it, but its answer was lost
	rc = reserve(to, folder_id, name);
	if (rc)
		return rc;
	rc = append(step, folder_id, name);
	take_name(step, to);
	if (!rc)
		ckpt_version_copy(step, NULL, 0);
	return rc;
}

int ckpt_move(struct ckpt_step *step, const char *folder_id, const char *name)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct ckpt_step *to;
	int rc = ckpt_name_check(name, strlen(name));

	if (!rc)
		rc = ckpt_step_new(step->store, &to);
	if (rc)
		return rc;
	rc = move_to(step, to, folder_id, name);
	if (rc && rc != -ESTALE && rc != -EEXIST)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "rename it again",
				rc == -EIO ? "outcome unknown: cannot confirm that it is renamed"
					   : "it could not be renamed");
	ckpt_step_unref(to);
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
