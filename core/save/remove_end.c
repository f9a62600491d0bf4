// How marks end (remove.h). One thread for each step that has some looks at their processes, and decides:
//
//   process                 its marks                                     they
//   killed, or failed       any                                           are dropped
//   any other               did not begin with the step's directory       are an edit, 1 s after the last one
//   ended                   did begin with it (recursive)                 are an edit, at once
//   lives                   recursive, it has that directory closed,
//                           and the last one is a minute old              are an edit
//   is stopped              recursive, for a minute                       are dropped
//
// A step that is pinned since has them as an edit, too: whoever removed the files was told that they are gone.
// At the end of the store those that would wait longer are dropped if they are recursive, else they are an edit.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/event.h"
#include "core/save/edit.h"
#include "core/save/remove.h"
#include "core/save/watch.h"
#include "core/step/errlog.h"
#include "core/step/removal.h"
#include "core/step/store.h"
#include "core/step/successor.h"

#include <limits.h>
#include <stdio.h>

#define EDIT_NS INT64_C(1000000000)
#define LOOK_NS INT64_C(200000000)   // between two looks at processes
#define NAP_NS INT64_C(20000000)     // between two looks whether the store ends
#define AGAIN_NS INT64_C(2000000000) // until the next try of an edit that failed

enum end { WAITS, EDITS, DROPPED };

struct ending {
	struct ckpt_process *process; // a reference
	struct ckpt_remover was;      // when it was looked at
	struct ckpt_process_status status;
	bool has_open;
	enum end end;
};

static enum end decide(const struct ending *e, int64_t now, bool closing)
{
	const struct ckpt_remover *by = &e->was;

	if (e->status.state == CKPT_PROCESS_KILLED || e->status.state == CKPT_PROCESS_FAILED)
		return DROPPED;
	if (!by->recursive)
		return closing || now - by->last_ns >= EDIT_NS ? EDITS : WAITS;
	if (e->process && (e->status.state == CKPT_PROCESS_ENDED || e->status.state == CKPT_PROCESS_UNKNOWN))
		return EDITS;
	if (closing)
		return DROPPED;
	if (e->status.state == CKPT_PROCESS_STOPPED)
		return by->stopped_ns && now - by->stopped_ns >= MINUTE_NS ? DROPPED : WAITS;
	return !e->has_open && now - by->last_ns >= MINUTE_NS ? EDITS : WAITS;
}

// --- Edits -------------------------------------------------------------------------------------------------------------------

// The step that has the place of another, and its files before and after an edit: references.
struct later {
	struct ckpt_step *step;
	struct ckpt_manifest *was, *is;
};

struct batch {
	struct ckpt_step *step;
	const struct ending *ends; // which are EDITS; NULL: all marks are
	uint8_t *gone;             // by entry of the manifest that is copied
	int64_t first_ns;          // of these marks
	struct later later;        // where they ended in a successor of the step (core/step/successor.h)
};

static bool is_in(const struct batch *b, const struct ckpt_remover *by)
{
	for (size_t i = 0; b->ends && i < REMOVERS_MAX; i++)
		if (b->ends[i].was.used && b->ends[i].process == by->process)
			return b->ends[i].end == EDITS;
	return !b->ends;
}

static bool is_gone(void *arg, uint32_t index)
{
	return ((const struct batch *)arg)->gone[index];
}

// 1: some of m are to go; 0: none is; -ENOMEM.
static int take_marks(struct batch *b, struct ckpt_manifest *m)
{
	LOCK_SCOPE(&b->step->lock);
	struct ckpt_removal *r = ckpt_removal_active_locked(b->step);
	int any = 0;

	b->gone = calloc(ckpt_manifest_count(m), 1);
	if (!b->gone)
		return -ENOMEM;
	if (r && !ckpt_removal_is_of(r, m)) {
		if (!ckpt_removal_rebase_locked(b->step, m))
			return -ENOMEM;
		r = ckpt_removal_active_locked(b->step);
	}
	b->first_ns = INT64_MAX;
	for (uint32_t i = 0; r && i < ckpt_manifest_count(m); i++) {
		const struct ckpt_remover *by = r->marked[i] ? &r->by[r->marked[i] - 1] : NULL;

		if (!by || !is_in(b, by))
			continue;
		b->gone[i] = 1;
		b->first_ns = MIN(b->first_ns, by->first_ns);
		any = 1;
	}
	return any;
}

// Marks that come within a minute after an edit by marks belong to the same removal.
static void remember_before(const struct batch *b, const struct ckpt_edit *d, uint32_t version)
{
	struct ckpt_step *step = b->step;
	LOCK_SCOPE(&step->lock);
	bool same = ckpt_removing_of(step)->removed.version &&
		    b->first_ns - ckpt_removing_of(step)->removed.ns < MINUTE_NS &&
		    !memcmp(ckpt_removing_of(step)->removed.is, ckpt_manifest_sha256(d->m), CKPT_SHA256_LEN);

	if (!same)
		ckpt_removing_of(step)->removed.version = version;
	memcpy(ckpt_removing_of(step)->removed.is, ckpt_manifest_sha256(d->next), CKPT_SHA256_LEN);
	ckpt_removing_of(step)->removed.ns = ckpt_sys.mono_ns();
}

static int edit(struct batch *b, bool *adopted)
{
	struct ckpt_edit d = {
		.step = b->step, .event = CKPT_EVENT_AMEND, .frees = true, .leaves_out = is_gone, .arg = b};
	uint32_t version = 0;
	int rc = ckpt_edit_begin(&d, adopted), any = 0;

	if (!rc)
		any = take_marks(b, d.m);
	rc = rc ? rc : MIN(any, 0);
	if (!rc && any) {
		version = b->step->version->is.version;
		rc = ckpt_edit_copy(&d, 0);
		if (!rc)
			rc = ckpt_edit_put(&d); // carries what is marked meanwhile
		if (!rc)
			remember_before(b, &d, version);
	}
	ckpt_edit_done(&d);
	free(TAKE_PTR(b->gone));
	return rc;
}

// --- Edits of what another node has edited --------------------------------------------------------------------------------

struct later_batch {
	uint8_t *gone; // by entry of the manifest that is copied
};

static bool is_gone_later(void *arg, uint32_t index)
{
	return ((const struct later_batch *)arg)->gone[index];
}

// A directory stays for what the other node has put into it.
static void keep_parents(const struct ckpt_manifest *m, uint8_t *gone)
{
	for (uint32_t i = ckpt_manifest_count(m); i-- > 1;) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (!gone[i])
			gone[e.parent] = 0;
	}
}

static int find_later(const struct batch *b, const struct ckpt_manifest *was, struct ckpt_manifest *now,
		      struct later_batch *l)
{
	char path[PATH_MAX];
	uint32_t index;

	l->gone = calloc(ckpt_manifest_count(now), 1);
	if (!l->gone)
		return -ENOMEM;
	for (uint32_t i = 1; i < ckpt_manifest_count(was); i++)
		if (b->gone[i] && ckpt_manifest_path(was, i, path, sizeof(path)) > 0 &&
		    !ckpt_manifest_lookup(now, path, &index))
			l->gone[index] = 1;
	keep_parents(now, l->gone);
	return 0;
}

static int edit_later(struct batch *b, struct ckpt_manifest *was, struct ckpt_step *to, bool *adopted)
{
	struct later_batch l = {0};
	struct ckpt_edit d = {
		.step = to, .event = CKPT_EVENT_AMEND, .frees = true, .leaves_out = is_gone_later, .arg = &l};
	int rc = ckpt_edit_begin(&d, adopted);

	if (!rc)
		rc = find_later(b, was, d.m, &l);
	if (!rc)
		rc = ckpt_edit_copy(&d, 0);
	if (!rc)
		rc = ckpt_edit_put(&d);
	if (!rc)
		b->later = (struct later){ckpt_step_ref(to), ckpt_manifest_ref(d.m), ckpt_manifest_ref(d.next)};
	ckpt_edit_done(&d);
	free(l.gone);
	return rc;
}

static int publish_in(struct batch *b, struct ckpt_step *to)
{
	struct ckpt_manifest *was;
	bool adopted = false;
	int rc = ckpt_step_manifest(b->step, &was), any;

	if (rc)
		return rc;
	any = take_marks(b, was);
	rc = any > 0 ? -EAGAIN : any;
	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++) {
		rc = edit_later(b, was, to, &adopted);
		adopted |= rc == -EAGAIN;
	}
	free(TAKE_PTR(b->gone));
	ckpt_manifest_unref(was);
	return rc;
}

// Another step has the place of this one: where that is an edit of it, by another node, it is without what is marked; else nothing is left
// to be done.
static int publish_later(struct batch *b)
{
	struct ckpt_step *to = ckpt_successor_find(b->step);
	int rc = to ? publish_in(b, to) : 0;

	ckpt_step_unref(to);
	if (!rc)
		ckpt_removal_forget(b->step);
	return rc;
}

static int publish_batch(struct batch *b)
{
	LOCK_SCOPE(&b->step->store->acts_lock);
	bool adopted = false;
	int rc = -EAGAIN;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++) {
		rc = edit(b, &adopted);
		adopted |= rc == -EAGAIN;
	}
	return rc == -ESTALE && ckpt_step_state(b->step) == CKPT_STEP_DELETED ? publish_later(b) : rc;
}

// Without a lock that a request may wait for.
static void show_later(const struct later *l)
{
	const struct ckpt_store_calls *calls = l->step ? &l->step->store->calls : NULL;

	if (calls && calls->changed)
		calls->changed(calls->changed_arg, l->step, l->was, l->is);
	ckpt_step_unref(l->step);
	ckpt_manifest_unref(l->was);
	ckpt_manifest_unref(l->is);
}

static int publish(struct ckpt_step *step, const struct ending *ends)
{
	struct batch b = {.step = step, .ends = ends};
	int rc = publish_batch(&b);

	show_later(&b.later);
	rc = rc == -EAGAIN ? -EIO : rc;
	if (rc && rc != -ESTALE && rc != -EBUSY)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "it is tried again; remove the cause",
				"files were removed from it, but the removal is not on disk yet");
	return rc;
}

int ckpt_remove_publish(struct ckpt_step *step)
{
	return ckpt_removal_any(step) ? publish(step, NULL) : 0;
}

// --- Dropped -------------------------------------------------------------------------------------------------------------------

static bool unmark(struct ckpt_step *step, const struct ckpt_process *process)
{
	LOCK_SCOPE(&step->lock);
	struct ckpt_removal *r = ckpt_removal_active_locked(step);
	bool any = false;

	for (uint32_t i = 0; r && !r->whole && i < ckpt_manifest_count(r->m); i++) {
		struct ckpt_remover *by = r->marked[i] ? &r->by[r->marked[i] - 1] : NULL;

		if (!by || by->process != process)
			continue;
		r->marked[i] = 0;
		by->marks--;
		r->marks--;
		any = true;
	}
	if (r && !r->marks && !r->whole)
		ckpt_removal_over_locked(r);
	return any;
}

static void drop(struct ckpt_step *step, const struct ending *e, bool closing)
{
	char who[CKPT_PROCESS_TEXT_MAX];

	if (!unmark(step, e->process))
		return;
	ckpt_process_text(e->process, e->status, who);
	if (closing && e->status.state == CKPT_PROCESS_LIVES)
		snprintf(who, sizeof(who), "the mount ended");
	ckpt_errlog_add(step->store->errlog, step->name, 0, "remove it again: `rm -r`, or `ckptfs rm`",
			"%s before its removal was complete: what it removed is restored", who);
}

// --- The watch -------------------------------------------------------------------------------------------------------------------

// Those who have marks; and what is known of them, without the lock.
static bool gather(struct ckpt_step *step, struct ending ends[REMOVERS_MAX])
{
	LOCK_SCOPE(&step->lock);
	const struct ckpt_removal *r = ckpt_removal_active_locked(step);
	bool any = false;

	for (size_t i = 0; i < REMOVERS_MAX; i++) {
		ends[i] = (struct ending){0};
		if (!r || !r->by[i].marks)
			continue;
		ends[i].was = r->by[i];
		ends[i].process = ckpt_process_ref(r->by[i].process);
		any = true;
	}
	return any;
}

// Since when each is stopped is kept with its marks.
static void note_stopped(struct ckpt_step *step, const struct ending *e, int64_t now)
{
	LOCK_SCOPE(&step->lock);
	struct ckpt_removal *r = ckpt_removal_active_locked(step);
	bool stopped = e->status.state == CKPT_PROCESS_STOPPED;

	for (size_t i = 0; r && i < REMOVERS_MAX; i++)
		if (r->by[i].used && r->by[i].process == e->process)
			r->by[i].stopped_ns = !stopped ? 0 : r->by[i].stopped_ns ? r->by[i].stopped_ns : now;
}

static void look(struct ckpt_step *step, struct ending *e, int64_t now, bool closing)
{
	e->status = e->process ? ckpt_process_ask(e->process) : (struct ckpt_process_status){CKPT_PROCESS_LIVES, 0};
	if (e->was.recursive && now - e->was.last_ns >= MINUTE_NS)
		e->has_open = ckpt_removal_has_open(step, e->process, INT64_MAX);
	note_stopped(step, e, now);
	e->end = decide(e, now, closing);
	if (e->end == EDITS && step->store->settings.amend == CKPT_AMEND_DENY)
		e->end = DROPPED; // all that is allowed is a deletion, and this was none
}

// Ends what is to end. How long the next look can wait.
static int64_t end_some(struct ckpt_step *step, struct ending ends[REMOVERS_MAX], bool closing)
{
	int64_t now = ckpt_sys.mono_ns();
	bool edits = false;
	int rc = 0;

	for (size_t i = 0; i < REMOVERS_MAX; i++)
		if (ends[i].was.used) {
			look(step, &ends[i], now, closing);
			edits |= ends[i].end == EDITS;
		}
	for (size_t i = 0; i < REMOVERS_MAX; i++)
		if (ends[i].was.used && ends[i].end == DROPPED)
			drop(step, &ends[i], closing);
	if (edits)
		rc = publish(step, ends);
	for (size_t i = 0; i < REMOVERS_MAX; i++)
		ckpt_process_unref(ends[i].process);
	return rc ? AGAIN_NS : LOOK_NS;
}

static bool is_closing(const struct ckpt_step *step)
{
	return __atomic_load_n(&step->store->threads.closing, __ATOMIC_ACQUIRE);
}

// Until then, the end of the store, or that of all marks.
static void wait_ns(struct ckpt_step *step, int64_t ns)
{
	int64_t until = ckpt_sys.mono_ns() + ns;

	while (!is_closing(step) && ckpt_removal_any(step) && ckpt_sys.mono_ns() < until)
		ckpt_sys.sleep_ns(MIN(NAP_NS, MAX(until - ckpt_sys.mono_ns(), INT64_C(1000000))));
}

// True: nothing is marked any more, and this thread is not its watch any more.
static bool leave(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	if (ckpt_removal_active_locked(step) && !is_closing(step))
		return false;
	ckpt_removing_of(step)->watched = false;
	return true;
}

static void watch(struct ckpt_step *step)
{
	struct ending ends[REMOVERS_MAX];
	bool closing;

	do {
		closing = is_closing(step);
		while (gather(step, ends)) {
			int64_t ns = end_some(step, ends, closing);

			if (closing)
				break; // this was the last look
			wait_ns(step, ns);
			closing = is_closing(step);
		}
	} while (!leave(step));
}

// Without a thread they end with the step's own directory, or with the daemon.
void ckpt_remove_watch(struct ckpt_step *step)
{
	if (ckpt_watch_start(step, watch))
		return;
	LOCK_SCOPE(&step->lock);
	ckpt_removing_of(step)->watched = false; // the next mark tries it again
}
