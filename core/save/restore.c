#include "core/save/restore.h"

#include "core/base/util.h"
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

static int restore_locked(struct ckpt_step *step, uint32_t version)
{
	struct ckpt_record before;
	struct ckpt_summary next;
	bool changed;
	int rc = ckpt_step_is_reopened(step) ? -EBUSY : ckpt_amending_settle_locked(step);

	if (!rc)
		rc = read_before(step, version, &before);
	if (rc)
		return rc;
	rc = ckpt_version_put(step, CKPT_ACT_RESTORE, set_files, &before, true, &next, &changed);
	ckpt_record_done(&before);
	if (rc == -EIO)
		__atomic_store_n(&ckpt_amending_of(step)->amend_unknown, true, __ATOMIC_RELAXED);
	return rc;
}

int ckpt_restore_files(struct ckpt_step *step, uint32_t version)
{
	LOCK_SCOPE(&step->store->acts_lock);
	int rc = restore_locked(step, version);

	if (rc)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "remove the cause, then try again",
				rc == -EIO ? "outcome unknown: cannot confirm that it has the files of version %u"
					   : "the files of version %u could not be restored",
				version);
	return rc;
}
