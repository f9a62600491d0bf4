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

// The verb that waits for that very step, or saved it, says so by itself.
static void tell_step(struct ckpt_listing *l, const struct ckpt_failure *f)
{
	struct ckpt_step *step = ckpt_step_of_session(l->store, f->session);
	CLEANUP_FREE char *name = step ? ckpt_listing_name(l, step->folder_id, step->name) : NULL;

	ckpt_step_unref(step);
	ckpt_note("%s cannot be uploaded: its files on this node cannot be read (%s); `ckptfs verify` says which",
		  name ? name : f->session, strerror(-f->error));
}

// --- Waiting for the push -----------------------------------------------------------------------------------------------

struct waiting {
	struct ckpt_listing l;
	bool reads;                    // all that others have appended is to be read, too
	int64_t until_ns, moved_ns;    // monotonic; when something was last sent
	struct ckpt_remote_queue last; // what waited then
};

static bool has_moved(struct waiting *w, const struct ckpt_remote_queue *q)
{
	struct ckpt_remote_queue *last = &w->last;
	int64_t sent_ns = ckpt_remote_progressed_ns(*ckpt_remote_of(w->l.store));
	bool moved = sent_ns > w->moved_ns || q->steps != last->steps || q->files != last->files;

	*last = *q;
	if (moved)
		w->moved_ns = ckpt_sys.mono_ns();
	return moved;
}

// The obstacle, for people; NULL: it goes on.
static const char *obstacle(struct waiting *w, const struct ckpt_remote_queue *q, char why[CKPT_OBJECTS_WHY_MAX])
{
	int64_t now_ns = ckpt_sys.mono_ns();

	if (q->error == -EPROTO)
		return "a store there would lose steps: `ckptfs doctor` says more";
	if (q->unreachable_ns && (q->error == -EACCES || q->unreachable_ns >= PATIENCE_NS)) {
		ckpt_objects_why(ckpt_near_there(w->l.store->objects), why);
		return *why ? why : strerror(-q->error);
	}
	if (!has_moved(w, q) && now_ns - w->moved_ns >= w->l.store->settings.commit_timeout_ns)
		return "nothing was sent for commit_timeout: the file errors in the store says why";
	return now_ns >= w->until_ns ? "the time is over" : NULL;
}

// 0; an exit status, once nothing more can be done; -1: not yet.
static int look(struct waiting *w)
{
	struct ckpt_remote *r = *ckpt_remote_of(w->l.store);
	CLEANUP(ckpt_failure_list_done) struct ckpt_failure_list failed;
	char text[CKPT_OBJECTS_WHY_MAX];
	struct ckpt_remote_queue q;
	const char *why;

	if (ckpt_remote_failures(r, &failed))
		ckpt_need(NULL);
	ckpt_remote_queue(r, &q);
	ckpt_progress_update(q.bytes);
	for (size_t i = 0; !q.steps && i < failed.count; i++)
		tell_step(&w->l, &failed.failures[i]);
	if (!q.steps && (!q.files || failed.count || q.holds) && // plain files may wait for such a step
	    (!w->reads || ckpt_remote_turns(r).ended))
		return 0;
	why = obstacle(w, &q, text);
	return why ? fail_waits(w->l.store->path, why) : -1;
}

static int push(struct waiting *w)
{
	int rc;

	(void)ckpt_store_announce(w->l.store, NULL); // for who wants the store meanwhile
	rc = ckpt_remote_start(*ckpt_remote_of(w->l.store));
	if (rc)
		return fail_waits(w->l.store->path, strerror(-rc));
	ckpt_progress_start("waiting for the object store", 0, 1);
	while ((rc = look(w)) < 0)
		ckpt_sys.sleep_ns(POLL_NS);
	ckpt_progress_stop();
	return rc;
}

// --- The store ----------------------------------------------------------------------------------------------------------

static bool is_mounted(const char *path)
{
	struct ckpt_holder h = {0};
	bool is = !ckpt_store_holder(path, &h) && h.mountpoint;

	ckpt_holder_done(&h);
	return is;
}

// Another verb that has the store now may not send what was done before.
static int await_store(const char *path, int64_t until_ns)
{
	ckpt_progress_start("waiting for another ckptfs", 0, 0);
	while (!ckpt_store_holder(path, NULL) && !is_mounted(path) && ckpt_sys.mono_ns() < until_ns) {
		ckpt_sys.sleep_ns(POLL_NS);
		ckpt_progress_update(0);
	}
	ckpt_progress_stop();
	return ckpt_store_holder(path, NULL) || is_mounted(path) ? 0 : fail_waits(path, "another ckptfs has the store");
}

// A machine that may only read has nothing that waits, and need not be told that it may not write.
static bool has_nothing(struct ckpt_store *s)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(s), &q);
	return !q.steps && !q.value && !ckpt_remote_proved(*ckpt_remote_of(s));
}

static int push_all(const char *path, int64_t until_ns, bool reads)
{
	struct waiting w = {.reads = reads, .until_ns = until_ns, .moved_ns = ckpt_sys.mono_ns()};
	int rc = ckpt_remote_is_at(path) ? await_store(path, until_ns) : 0;

	if (rc || !ckpt_remote_is_at(path) || is_mounted(path))
		return rc;
	rc = ckpt_listing_open(path, CKPT_STORE_WRITE, &w.l);
	if (rc)
		return fail_waits(path, "the store could not be opened again");
	rc = !reads && has_nothing(w.l.store) ? 0 : push(&w);
	ckpt_listing_close(&w.l);
	return rc;
}

int ckpt_push(const char *path, int64_t until_ns)
{
	return push_all(path, until_ns, false);
}

int ckpt_push_and_read(const char *path, int64_t until_ns)
{
	return push_all(path, until_ns, true);
}

int ckpt_push_done(void)
{
	const char *path = ckpt_listing_written();

	return path && !told ? ckpt_push(path, INT64_MAX) : 0;
}
