#include "core/save/examined.h"

#include "core/base/util.h"
#include "core/save/edit.h"
#include "core/step/removal.h"
#include "core/step/store.h"

static int try_put(struct ckpt_step *step, const struct ckpt_examined_of *found)
{
	struct ckpt_edit d = {.step = step,
			      .same_files = true,
			      .findings = found->findings,
			      .catalog = found->catalog,
			      .catalog_len = found->catalog_len};
	bool adopted = false;
	int rc = ckpt_edit_begin(&d, &adopted);

	if (!rc && memcmp(ckpt_manifest_sha256(d.m), ckpt_manifest_sha256(found->m), CKPT_SHA256_LEN))
		rc = -ESTALE;
	if (!rc)
		rc = ckpt_edit_copy(&d, 0);
	if (!rc)
		rc = ckpt_edit_put(&d);
	ckpt_edit_done(&d);
	return rc;
}

int ckpt_version_examined(struct ckpt_step *step, const struct ckpt_examined_of *found)
{
	LOCK_SCOPE(&step->store->acts_lock);
	int rc = -EAGAIN;

	if (ckpt_removal_hides(step) || ckpt_step_is_reopened(step))
		return -EBUSY;
	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = try_put(step, found);
	return rc == -EAGAIN ? -EBUSY : rc;
}
