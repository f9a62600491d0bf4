#include "core/save/remove.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/save/restore.h"
#include "core/step/removal.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <limits.h>

#define TRIES 8 // to find the version that is current

static int mark_in(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, bool want_dir,
		   const struct ckpt_removal_maker *maker)
{
	struct ckpt_entry e;
	bool watched;
	int rc;

	ckpt_manifest_entry(m, index, &e);
	if ((e.type == CKPT_ENTRY_DIR) != want_dir)
		return want_dir ? -ENOTDIR : -EISDIR;
	ckpt_lock_take(&step->lock);
	rc = ckpt_removal_mark_locked(step, m, &e, maker);
	watched = ckpt_removing_of(step)->watched;
	ckpt_removing_of(step)->watched |= !rc;
	ckpt_lock_drop(&step->lock);
	if (!rc && !watched)
		ckpt_remove_watch(step);
	return rc;
}

static int mark_path(struct ckpt_step *step, const char *path, bool want_dir, const struct ckpt_removal_maker *maker)
{
	int rc = -ESTALE;

	for (int i = 0; i < TRIES && rc == -ESTALE; i++) {
		struct ckpt_manifest *m;
		uint32_t index;

		rc = ckpt_step_manifest(step, &m);
		if (rc)
			return rc;
		rc = ckpt_manifest_lookup(m, path, &index);
		if (!rc)
			rc = mark_in(step, m, index, want_dir, maker);
		ckpt_manifest_unref(m);
	}
	return rc == -ESTALE ? -EBUSY : rc;
}

int ckpt_remove_entry(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t dir, const char *name,
		      bool want_dir, pid_t tid)
{
	struct ckpt_removal_maker maker = {.process = ckpt_process_of(tid)};
	char path[PATH_MAX];
	uint32_t index;
	int rc = ckpt_manifest_child(m, dir, name, &index);

	if (!rc)
		rc = MIN(ckpt_manifest_path(m, index, path, sizeof(path)), 0);
	if (!rc && !ckpt_removal_is_known(step, &maker))
		maker.recursive = ckpt_removal_has_open(step, maker.process, ckpt_sys.mono_ns() - MINUTE_NS);
	if (!rc && step->store->settings.amend == CKPT_AMEND_DENY && !maker.recursive &&
	    !ckpt_removal_is_known(step, &maker))
		rc = -EROFS;
	if (!rc)
		rc = mark_path(step, path, want_dir, &maker);
	ckpt_process_unref(maker.process);
	if (rc == -EPERM)
		ckpt_pin_tell(step);
	return rc;
}

// --- The whole step ------------------------------------------------------------------------------------------------------

// The version that the deletion means, where marks of the same removal were an edit a moment ago; 0: the current one.
static uint32_t version_before(struct ckpt_step *step)
{
	const struct ckpt_removing *removing = ckpt_removing_of(step);
	LOCK_SCOPE(&step->store->acts_lock); // of an edit that is just being made
	LOCK_SCOPE(&step->lock);

	return removing->removed.version && ckpt_sys.mono_ns() - removing->removed.ns < MINUTE_NS &&
			       !memcmp(removing->removed.is, step->version->is.manifest_sha256, CKPT_SHA256_LEN)
		       ? removing->removed.version
		       : 0;
}

int ckpt_remove_whole(struct ckpt_step *step)
{
	uint32_t before;
	int rc = ckpt_removal_hide_all(step);

	if (rc)
		return rc;
	before = version_before(step);
	if (before)
		rc = ckpt_restore_files(step, before);
	if (!rc || rc == -ENODATA) // some of it was cooled away, or collected: then the deletion means what there is
		rc = ckpt_delete(step);
	ckpt_removal_forget(step); // a deleted one is whole in the trash
	if (!rc)
		ckpt_trash_wake(*ckpt_trash_of(step->store)); // where it is seen only now
	return rc;
}
