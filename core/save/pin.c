#include "core/save/pin.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/version.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#define TELL_AGAIN_NS INT64_C(60000000000)

int ckpt_pin(struct ckpt_step *step, bool pinned)
{
	return ckpt_version_flag(step, CKPT_FLAG_PINNED, pinned, pinned ? "pinned" : "unpinned");
}

bool ckpt_pin_is(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->state == CKPT_STEP_COMMITTED && step->version->is.pinned;
}

// `rm -r` tries each of its files.
void ckpt_pin_tell(struct ckpt_step *step)
{
	int64_t now = ckpt_sys.mono_ns();
	bool again;

	ckpt_lock_take(&step->lock);
	again = ckpt_pinned_of(step)->pin_told_ns && now - ckpt_pinned_of(step)->pin_told_ns < TELL_AGAIN_NS;
	if (!again)
		ckpt_pinned_of(step)->pin_told_ns = now;
	ckpt_lock_drop(&step->lock);
	if (!again)
		ckpt_errlog_add(step->store->errlog, step->name, -EPERM, "`ckptfs unpin` it first",
				"it is pinned, so it was not removed");
}

struct ckpt_part ckpt_pinned_part = {.bytes = sizeof(struct ckpt_pinned)};
