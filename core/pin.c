#include "core/pin.h"

#include "core/errlog.h"
#include "core/remove.h"
#include "core/reopen.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"
#include "core/version.h"

#define TELL_AGAIN_NS INT64_C(60000000000)

static int set_pinned(void *arg, struct ckpt_record *r)
{
	const bool *pinned = arg;

	if (r->summary.pinned == *pinned)
		return 1;
	r->summary.pinned = *pinned;
	return 0;
}

int ckpt_pin(struct ckpt_step *step, bool pinned)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct ckpt_summary next;
	bool changed;
	bool busy = ckpt_remove_hides(step) || ckpt_reopen_any(step);
	int rc = busy ? -EBUSY : ckpt_version_put(step, set_pinned, &pinned, &next, &changed);

	if (!rc && changed)
		rc = ckpt_step_load(step->store, &next);
	if (!rc && changed)
		ckpt_store_wake_behind(step->store);
	if (!rc && changed && step->store->indexer)
		ckpt_indexer_put(step->store->indexer, step->key, &next, NULL, 0);
	if (rc && rc != -ESTALE && rc != -EBUSY)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "try it again",
				rc == -EIO ? "outcome unknown: it may or may not be %s" : "it could not be %s",
				pinned ? "pinned" : "unpinned");
	return rc;
}

bool ckpt_pin_is(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->state == CKPT_STEP_COMMITTED && step->summary.pinned;
}

// `rm -r` tries each of its files.
void ckpt_pin_tell(struct ckpt_step *step)
{
	int64_t now = ckpt_sys.mono_ns();
	bool again;

	ckpt_lock_take(&step->lock);
	again = step->pin_told_ns && now - step->pin_told_ns < TELL_AGAIN_NS;
	if (!again)
		step->pin_told_ns = now;
	ckpt_lock_drop(&step->lock);
	if (!again)
		ckpt_errlog_add(step->store->errlog, step->name, -EPERM, "`ckptfs unpin` it first",
				"it is pinned, and was not removed");
}
