#include "core/save/change.h"

#include "core/base/sys.h"
#include "core/record/event.h"
#include "core/save/edit.h"
#include "core/save/watch.h"
#include "core/step/errlog.h"
#include "core/step/store.h"
#include "core/step/successor.h"

#define NAP_NS INT64_C(20000000)

static int publish_once(struct ckpt_step *step, bool *adopted)
{
	struct ckpt_edit d = {.step = step, .event = CKPT_EVENT_EDIT, .attributes = true, .only_attributes = true};
	int rc = ckpt_edit_begin(&d, adopted);

	if (!rc && ckpt_attributes_any(step))
		rc = ckpt_edit_copy(&d, 0);
	if (!rc && d.w)
		rc = ckpt_edit_put(&d);
	ckpt_edit_done(&d);
	return rc;
}

static void watch(struct ckpt_step *step);

void ckpt_change_hand_on(struct ckpt_step *step, struct ckpt_step *to)
{
	bool starts = false;

	if (ckpt_attributes_any(step) && !ckpt_attributes_hand_on(step, to, &starts) && starts &&
	    !ckpt_watch_start(to, watch))
		ckpt_attributes_unwatch(to); // the next change brings them along
}

// It is deleted, or another has its name; where that is an edit of it, the changes are made to that.
static void leave(struct ckpt_step *step)
{
	struct ckpt_step *to = ckpt_successor_find(step);

	if (to)
		ckpt_change_hand_on(step, to);
	ckpt_step_unref(to);
	ckpt_attributes_forget(step);
}

int ckpt_change_publish_locked(struct ckpt_step *step)
{
	bool adopted = false;
	int rc = ckpt_attributes_any(step) ? -EAGAIN : 0;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++) {
		rc = publish_once(step, &adopted);
		adopted |= rc == -EAGAIN;
	}
	if (rc == -EAGAIN)
		rc = -EIO;
	if (rc == -ESTALE && ckpt_step_state(step) != CKPT_STEP_COMMITTED)
		leave(step);
	else if (rc && rc != -EBUSY && rc != -ESTALE && !ckpt_attributes_have_told(step))
		ckpt_errlog_add(step->store->errlog, step->name, rc, "it is tried again: mend the cause",
				"modes, owners, times or extended attributes of it were changed, and that is not on "
				"disk yet");
	return rc;
}

int ckpt_change_publish(struct ckpt_step *step)
{
	if (!ckpt_attributes_any(step))
		return 0;
	LOCK_SCOPE(&step->store->acts_lock);

	return ckpt_change_publish_locked(step);
}

static bool is_closing(const struct ckpt_step *step)
{
	return __atomic_load_n(&step->store->threads.closing, __ATOMIC_ACQUIRE);
}

static void watch(struct ckpt_step *step)
{
	bool closing;

	do {
		closing = is_closing(step);
		if ((closing || ckpt_attributes_are_due(step)) && ckpt_change_publish(step))
			ckpt_attributes_failed(step);
		if (!closing)
			ckpt_sys.sleep_ns(NAP_NS);
	} while (!ckpt_attributes_leave(step, closing));
}

// Without a thread it is a version at once. Why not is in the error log, and the next one tries again.
static void start_watch(struct ckpt_step *step)
{
	if (ckpt_watch_start(step, watch))
		return;
	ckpt_attributes_unwatch(step);
	(void)ckpt_change_publish(step);
}

int ckpt_change_attributes(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e,
			   const struct ckpt_attributes_new *what)
{
	bool starts;
	int rc = ckpt_attributes_set(step, m, e, what, &starts);

	if (starts)
		start_watch(step);
	return rc;
}

int ckpt_change_xattr(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e, const char *name,
		      const void *value, size_t len, int flags)
{
	bool starts;
	int rc = ckpt_attributes_set_xattr(step, m, e, name, value, len, flags, &starts);

	if (starts)
		start_watch(step);
	return rc;
}
