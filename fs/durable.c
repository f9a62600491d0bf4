#include "fs/durable.h"

#include "core/base/units.h"
#include "core/base/util.h"
#include "core/remote/arrival.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <stdio.h>

static void tell(struct ckpt_store *s, const struct ckpt_arrival *a)
{
	char timeout[CKPT_DURATION_MAX];

	ckpt_duration_text(s->settings.commit_timeout_ns, timeout);
	ckpt_errlog_add(
		s->errlog, a->name, -EIO,
		"it stays queued, and nothing is lost: `ckptfs wait STEP --remote` waits until it is there",
		"the step is committed on this node, and not in the object store, which has taken nothing for %s",
		timeout);
}

static void tell_dropped(struct ckpt_store *s, const struct ckpt_arrival *a)
{
	ckpt_errlog_add(s->errlog, a->name, -ECANCELED, "it is pushed once it is changed here again",
			"the step is committed on this node, and not in the object store: `ckptfs remote drop` took it "
			"out of the queue");
}

int durable_wait(struct ckpt_step *step, struct waiter waiter)
{
	struct ckpt_arrival a = {0};
	struct ckpt_store *s;
	int rc;

	if (!step || step->store->settings.durability == CKPT_DURABILITY_LOCAL)
		return 0;
	s = step->store;
	memcpy(a.session, step->session, sizeof(a.session));
	rc = ckpt_arrival_wait(s, &a,
			       &(struct ckpt_arrival_patience){.timeout_ns = s->settings.commit_timeout_ns,
							       .abandoned = waiter_is_gone,
							       .arg = &waiter});
	if (rc == -ETIMEDOUT)
		tell(s, &a);
	if (rc == -ECANCELED)
		tell_dropped(s, &a);
	return rc && rc != -EINTR ? -EIO : rc;
}
