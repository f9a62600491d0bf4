#include "core/save/restore.h"

#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/cold/pack_pins.h"
#include "core/save/version.h"
#include "core/step/amending.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <stdio.h>

static int set_files(void *arg, struct ckpt_record *r)
{
	struct ckpt_record *before = arg;
	const struct ckpt_summary *was = &before->summary;

	free(r->manifest);
	r->manifest = TAKE_PTR(before->manifest);
	r->manifest_len = before->manifest_len;
	memcpy(r->summary.manifest_sha256, was->manifest_sha256, sizeof(was->manifest_sha256));
	r->summary.manifest_bytes = was->manifest_bytes;
	r->summary.files = was->files;
	r->summary.bytes = was->bytes;
	r->summary.dir_nlink = was->dir_nlink;
	r->summary.sealed = was->sealed;
	r->summary.packed = was->packed;
	snprintf(r->summary.event, sizeof(r->summary.event), "restore");
	return 0;
}

static int read_before(struct ckpt_step *step, uint32_t version, struct ckpt_record *ret_before)
{
	int rc = ckpt_step_record(step, version, ret_before);

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	if (strcmp(ret_before->summary.session, step->session) || ret_before->summary.deleted) {
		ckpt_record_done(ret_before);
		return -ESTALE;
	}
	return 0;
}

// No collection removes what is pinned, and no cooling a raw file while the lock of all acts is held.
static int hold_pack(struct ckpt_store *s, const struct ckpt_pack *pack)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;
	int rc = ckpt_pack_pin(*ckpt_pack_pins_of(s), pack->id);

	if (rc)
		return rc == -ESTALE ? -ENODATA : rc;
	ckpt_pack_key(pack->id, key);
	rc = ckpt_objects_head(s->objects, key, &object);
	if (rc)
		ckpt_pack_unpin(*ckpt_pack_pins_of(s), pack->id);
	return rc == -ENOENT ? -ENODATA : rc;
}

static void let_go(struct ckpt_store *s, const struct ckpt_manifest *m, uint32_t held)
{
	while (held) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, --held, &pack);
		ckpt_pack_unpin(*ckpt_pack_pins_of(s), pack.id);
	}
}

static int hold_packs(struct ckpt_store *s, const struct ckpt_manifest *m, uint32_t *ret_held)
{
	int rc = 0;

	for (*ret_held = 0; *ret_held < ckpt_manifest_pack_count(m) && !rc; *ret_held += !rc) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, *ret_held, &pack);
		rc = hold_pack(s, &pack);
	}
	return rc;
}

static bool has_raws(const struct ckpt_step *step, const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (e.type == CKPT_ENTRY_FILE && e.bytes && e.content == CKPT_CONTENT_RAW &&
		    !ckpt_step_has_raw(step, m, i))
			return false;
	}
	return true;
}

static int put_version(struct ckpt_step *step, struct ckpt_record *before)
{
	struct ckpt_manifest *m;
	struct ckpt_summary next;
	uint32_t held;
	bool changed;
	int rc = ckpt_step_read_manifest(step, &before->summary, &m);

	if (rc)
		return rc;
	rc = hold_packs(step->store, m, &held);
	if (!rc && !has_raws(step, m))
		rc = -ENODATA;
	if (!rc)
		rc = ckpt_version_put(step, CKPT_ACT_RESTORE, set_files, before, true, &next, &changed);
	let_go(step->store, m, held);
	ckpt_manifest_unref(m);
	return rc;
}

static int restore_locked(struct ckpt_step *step, uint32_t version)
{
	struct ckpt_record before;
	int rc = ckpt_step_is_reopened(step) ? -EBUSY : ckpt_amending_settle_locked(step);

	if (!rc)
		rc = read_before(step, version, &before);
	if (rc)
		return rc;
	rc = put_version(step, &before);
	ckpt_record_done(&before);
	if (rc == -EIO)
		__atomic_store_n(&ckpt_amending_of(step)->amend_unknown, true, __ATOMIC_RELAXED);
	return rc;
}

int ckpt_restore_files(struct ckpt_step *step, uint32_t version)
{
	LOCK_SCOPE(&step->store->acts_lock);
	int rc = restore_locked(step, version);

	if (rc && rc != -ENODATA)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "remove the cause, then try again",
				rc == -EIO ? "outcome unknown: cannot confirm that it has the files of version %u"
					   : "the files of version %u could not be restored",
				version);
	return rc;
}
