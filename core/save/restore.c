#include "core/save/restore.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/record/event.h"
#include "core/save/edit.h"
#include "core/save/pack_hold.h"
#include "core/save/version.h"
#include "core/step/amending.h"
#include "core/step/errlog.h"
#include "core/step/older.h"
#include "core/step/removal.h"
#include "core/step/store.h"

#include <stdio.h>

// A file of the older version without a raw file: a later one has its bytes in packs.
struct elsewhere {
	struct ckpt_manifest *m; // NULL: it is not
	uint32_t index;
};

struct restoring {
	struct ckpt_edit edit;
	struct elsewhere *elsewhere; // by index in edit.m
	// No collection removes what is held, and no cooling a raw file while the lock of all acts is held. The first is edit.m.
	struct ckpt_pack_hold packs;
};

// -ENODATA: its bytes are nowhere.
static int find_packed(struct restoring *r, uint32_t index)
{
	struct ckpt_edit *d = &r->edit;
	struct elsewhere *e = &r->elsewhere[index];
	int rc;

	for (size_t i = 1; i < r->packs.count; i++)
		if (!ckpt_file_find_same(d->step, d->m, index, r->packs.held[i], &e->index)) {
			e->m = ckpt_manifest_ref(r->packs.held[i]);
			return 0;
		}
	rc = ckpt_file_find_packed(d->step, d->m, index, &e->m, &e->index);
	return rc ? (rc == -ENOENT ? -ENODATA : rc) : ckpt_pack_hold_add(&r->packs, e->m);
}

static int find_bytes(struct restoring *r)
{
	struct ckpt_manifest *m = r->edit.m;
	int rc;

	r->packs.store = r->edit.step->store;
	rc = ckpt_pack_hold_add(&r->packs, m);
	r->elsewhere = ckpt_calloc(ckpt_manifest_count(m), sizeof(*r->elsewhere));
	if (!rc && !r->elsewhere)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < ckpt_manifest_count(m) && !rc; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (e.type == CKPT_ENTRY_FILE && e.bytes && e.content == CKPT_CONTENT_RAW &&
		    ckpt_manifest_first_link(m, i) == i && !ckpt_step_has_raw(r->edit.step, m, i))
			rc = find_packed(r, i);
	}
	return rc;
}

static bool bytes_in(void *arg, uint32_t index, const struct ckpt_manifest **ret_from, uint32_t *ret_index)
{
	const struct restoring *r = arg;
	const struct elsewhere *e = &r->elsewhere[index];

	if (!e->m)
		return false;
	*ret_from = e->m;
	*ret_index = e->index;
	return true;
}

static void restoring_done(struct restoring *r)
{
	for (uint32_t i = 0; r->elsewhere && i < ckpt_manifest_count(r->edit.m); i++)
		ckpt_manifest_unref(r->elsewhere[i].m);
	ckpt_pack_hold_done(&r->packs);
	free(r->elsewhere);
	ckpt_edit_done(&r->edit);
}

// -EALREADY: the step has these files.
static int check_others(struct ckpt_step *step, const struct ckpt_manifest *m)
{
	struct ckpt_manifest *now;
	int rc = ckpt_step_manifest(step, &now);

	if (rc)
		return rc;
	rc = ckpt_manifest_same_entries(m, now) ? -EALREADY : 0;
	ckpt_manifest_unref(now);
	return rc;
}

static int put_version(struct ckpt_step *step, const struct ckpt_version *v)
{
	struct restoring r = {.edit = {.step = step,
				       .event = CKPT_EVENT_RESTORE,
				       .frees = true,
				       .bytes_in = bytes_in,
				       .restores = &v->is}};
	int rc = ckpt_step_read_manifest(step, &v->is, &r.edit.m);

	r.edit.arg = &r;
	if (!rc)
		rc = check_others(step, r.edit.m);
	if (!rc)
		rc = find_bytes(&r);
	if (!rc)
		rc = ckpt_edit_copy(&r.edit, 0);
	if (!rc)
		rc = ckpt_edit_put(&r.edit);
	restoring_done(&r);
	return rc;
}

static int restore_locked(struct ckpt_step *step, uint32_t version)
{
	CLEANUP_VERSION struct ckpt_version *v = NULL;
	int rc = ckpt_step_is_reopened(step) ? -EBUSY : ckpt_amending_settle_locked(step);

	if (!rc && ckpt_step_state(step) != CKPT_STEP_COMMITTED)
		rc = -ESTALE;
	if (!rc)
		rc = ckpt_older_open_expired(step, version, &v);
	if (rc)
		return rc;
	return put_version(step, v);
}

int ckpt_restore_files(struct ckpt_step *step, uint32_t version)
{
	LOCK_SCOPE(&step->store->acts_lock);
	int rc = restore_locked(step, version);

	if (rc && rc != -ENODATA && rc != -ENOENT && rc != -ESTALE && rc != -EALREADY)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "remove the cause, then try again",
				rc == -EIO ? "outcome unknown: cannot confirm that it has the files of version %u"
					   : "the files of version %u could not be restored",
				version);
	return rc;
}

int ckpt_restore(struct ckpt_step *step, uint32_t version)
{
	CLEANUP_VERSION struct ckpt_version *v = NULL;
	int rc = ckpt_removal_hides(step) ? -EBUSY : ckpt_older_open(step, version, &v);

	return rc ? rc : ckpt_restore_files(step, version);
}

const char *ckpt_restore_hint(int error)
{
	switch (error) {
	case -ENOENT:
	case -ESTALE:
		return "it has expired, or the step is gone: `ckptfs info STEP` lists the versions that can be opened";
	case -EALREADY:
		return "the step has these files now";
	case -ENODATA:
		return "some of its bytes are gone: `ckptfs verify` says what is damaged";
	case -EBUSY:
		return "it is being changed or removed; try again later";
	default:
		return NULL;
	}
}
