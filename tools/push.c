#include "tools/push.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/near.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/step/holder.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"

#define POLL_NS INT64_C(50000000)
#define PATIENCE_NS INT64_C(30000000000) // with a remote that does not answer

static bool told; // that it was in vain

static int fail_waits(const char *path, const char *why)
{
	CLEANUP_FREE char *hint = ckpt_text("`ckptfs wait --remote %s` tries again, and so does a mount", path);

	told = true;
	return ckpt_fail(path, hint, "it is done on this machine, and not in the object store yet: %s", why);
}

static int fail_step(struct ckpt_listing *l, const struct ckpt_failure *f)
{
	struct ckpt_step *step = ckpt_step_of_session(l->store, f->session);
	CLEANUP_FREE char *name = step ? ckpt_listing_name(l, step->folder_id, step->name) : NULL;

	ckpt_step_unref(step);
	told = true;
	return ckpt_fail(name ? name : f->session,
			 "`ckptfs verify` says which files are damaged; save the step again, or delete it",
			 "it cannot be uploaded: its files on this node cannot be read (%s)", strerror(-f->error));
}

// 0; an exit status, once nothing more can be done; -1: not yet.
static int look(struct ckpt_listing *l, int64_t until_ns)
{
	struct ckpt_remote *r = *ckpt_remote_of(l->store);
	CLEANUP(ckpt_failure_list_done) struct ckpt_failure_list failed;
	char why[CKPT_OBJECTS_WHY_MAX];
	struct ckpt_remote_queue q;

	ckpt_remote_queue(r, &q);
	ckpt_progress_update(q.bytes);
	if (ckpt_remote_failures(r, &failed))
		ckpt_need(NULL);
	if (!q.steps && !q.files)
		return failed.count ? fail_step(l, &failed.failures[0]) : 0;
	if (q.unreachable_ns && (q.error == -EACCES || q.unreachable_ns >= PATIENCE_NS)) {
		ckpt_objects_why(ckpt_near_there(l->store->objects), why);
		return fail_waits(l->store->path, *why ? why : strerror(-q.error));
	}
	return ckpt_sys.mono_ns() < until_ns ? -1 : fail_waits(l->store->path, "the time is over");
}

static int push(struct ckpt_listing *l, int64_t until_ns)
{
	int rc = ckpt_remote_start(*ckpt_remote_of(l->store));

	if (rc)
		return fail_waits(l->store->path, strerror(-rc));
	ckpt_progress_start("waiting for the object store", 0, 1);
	while ((rc = look(l, until_ns)) < 0)
		ckpt_sys.sleep_ns(POLL_NS);
	ckpt_progress_stop();
	return rc;
}

int ckpt_push(const char *path, int64_t until_ns)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	struct ckpt_listing l;
	int rc;

	if (!ckpt_remote_is_at(path) || !ckpt_store_holder(path, NULL))
		return 0;
	rc = ckpt_remote_prove(path, false, why);
	if (rc)
		return fail_waits(path, *why ? why : strerror(-rc));
	rc = ckpt_listing_open(path, CKPT_STORE_WRITE, &l);
	if (rc)
		return rc;
	rc = push(&l, until_ns);
	ckpt_listing_close(&l);
	return rc;
}

int ckpt_push_done(void)
{
	const char *path = ckpt_listing_written();

	return path && !told ? ckpt_push(path, INT64_MAX) : 0;
}
