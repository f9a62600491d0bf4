// A step here is one of:
//
//   FILLED   it is in the list; the thread packs its files and sends them
//   STOPPED  the same, but nothing is packed for it any more: a failure, no room, or somebody wants it
//   TAKEN    out of the list, by who pushes, whose own it is then; ckpt_early_step_free() ends it
//
// The thread ends a step of the list that is neither staged nor committed, and a committed one for which nothing is to be pushed: the state
// of the step and of the queue says so, and no other needs to.
//
// Invariant: whoever has a step in hand (in_hand), or has taken it, is the only one who uses its pack and uploads, but for what upload.h lets
// anybody do. A step in hand stays in the list.
#include "core/remote/early_push.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/closed.h"
#include "core/cold/pack.h"
#include "core/jobs/jobs.h"
#include "core/remote/early_list.h"
#include "core/remote/near.h"
#include "core/remote/upload.h"
#include "core/save/limit.h"
#include "core/step/latest.h"
#include "core/step/store.h"
#include "core/tier/early_pack.h"

#define LOOK_NS INT64_C(100000000)   // while something is waited for
#define ROOM_MAX (UINT64_C(1) << 30) // of the disk is left free at least, where
#define ROOM_PART 4                  // so much of it is not less

struct ckpt_early_step {
	struct ckpt_early_step *next;
	struct ckpt_early_push *early;
	struct ckpt_step *step; // a reference
	struct ckpt_early_pack *pack;
	struct ckpt_uploads *uploads;
	uint64_t closed_bytes; // of the files that were taken so far
	int64_t filled_ns;     // monotonic
	bool committed;        // it was, at the look before; of the thread
	// Guarded by the lock.
	bool in_hand, stopped;
	bool dropped; // its packs are gone
};

struct ckpt_early_push {
	struct ckpt_early_push_of of;
	struct ckpt_job *job;
	struct ckpt_lock lock, list_lock;
	pthread_cond_t changed;
	enum ckpt_early_push_may may;  // the last answer; of the thread
	struct ckpt_early_list list;   // guarded by list_lock, over its writing, too: who pushes puts packs, too
	struct ckpt_early_step *steps; // guarded by lock; added to by the thread alone
};

// --- Steps --------------------------------------------------------------------------------------------------------------

// Packs are garbage that no version names. Where it cannot be known, nothing is said: who collects sees.
static void tell_garbage(struct ckpt_early_step *e)
{
	struct ckpt_early_push *early = e->early;
	struct ckpt_manifest *m = NULL;

	if (ckpt_step_has_manifest(ckpt_step_state(e->step))) {
		if (ckpt_step_manifest(e->step, &m))
			return;
		ckpt_lock_take(&early->list_lock);
		ckpt_early_list_named(&early->list, early->of.store, m);
		ckpt_lock_drop(&early->list_lock);
	}
	ckpt_early_pack_expect_garbage(e->pack, m);
	ckpt_manifest_unref(m);
}

void ckpt_early_step_free(struct ckpt_early_step *e)
{
	if (!e)
		return;
	ckpt_uploads_free(e->uploads);
	if (e->pack)
		tell_garbage(e);
	ckpt_early_pack_free(e->pack);
	ckpt_step_unref(e->step);
	free(e);
}

static void send_pack(void *arg, const struct ckpt_pack *pack, const uint8_t *sha256)
{
	struct ckpt_early_step *e = arg;
	char key[CKPT_PACK_KEY_MAX];

	ckpt_lock_take(&e->early->list_lock);
	ckpt_early_list_add(&e->early->list, e->early->of.store, pack);
	ckpt_lock_drop(&e->early->list_lock);
	ckpt_pack_key(pack->id, key);
	(void)ckpt_uploads_add(e->uploads, key, sha256, true); // without memory it is sent after the commit
}

static bool is_stopped(struct ckpt_early_step *e)
{
	LOCK_SCOPE(&e->early->lock);

	return e->stopped;
}

static bool has_failed(struct ckpt_early_step *e, int64_t until_ns)
{
	int rc = ckpt_uploads_wait_until(e->uploads, until_ns);

	return rc && rc != -ETIME;
}

// No more is packed than can be sent. After a failure the rest of the step is left to the commit.
static bool go_on(void *arg, uint64_t bytes)
{
	struct ckpt_early_step *e = arg;

	while (ckpt_job_go_on(e->early->job, bytes) && !is_stopped(e)) {
		bool full = ckpt_uploads_left(e->uploads) >= CKPT_EARLY_PUSH_WAITING_MAX;

		if (has_failed(e, full ? ckpt_sys.mono_ns() + LOOK_NS : 0))
			return false;
		if (!full)
			return true;
	}
	return false;
}

static int step_new(struct ckpt_early_push *early, struct ckpt_step *step, struct ckpt_early_step **ret)
{
	const struct ckpt_uploads_of of = {.here = ckpt_near_here(early->of.store->objects),
					   .there = ckpt_near_there(early->of.store->objects),
					   .job = early->job,
					   .tried_ns = ckpt_sys.now_ns(),
					   .progressed_ns = early->of.progressed_ns};
	struct ckpt_early_step *e = ckpt_calloc(1, sizeof(*e));
	const struct ckpt_early_how how = {
		.go_on = go_on, .put = send_pack, .arg = e, .pack_bytes = early->of.store->settings.pack_bytes};
	int rc;

	if (!e)
		return -ENOMEM;
	e->early = early;
	e->step = ckpt_step_ref(step);
	rc = ckpt_uploads_new(&of, &e->uploads);
	if (!rc)
		rc = ckpt_early_pack_new(step, &how, &e->pack);
	if (rc)
		ckpt_early_step_free(e);
	else
		*ret = e;
	return rc;
}

static struct ckpt_early_step *find_locked(struct ckpt_early_push *early, const struct ckpt_step *step)
{
	struct ckpt_early_step *e = early->steps;

	while (e && e->step != step)
		e = e->next;
	return e;
}

// In hand; NULL: nothing is packed for it any more, or there is no memory to.
static struct ckpt_early_step *take_in_hand(struct ckpt_early_push *early, struct ckpt_step *step)
{
	struct ckpt_early_step *e, *made = NULL;

	ckpt_lock_take(&early->lock);
	e = find_locked(early, step);
	ckpt_lock_drop(&early->lock);
	if (!e && step_new(early, step, &made)) // by this thread alone
		return NULL;
	LOCK_SCOPE(&early->lock);
	if (made) {
		made->next = early->steps;
		early->steps = e = made;
	}
	if (e->stopped || e->in_hand)
		return NULL;
	e->in_hand = true;
	return e;
}

// stop: nothing more is packed for it.
static void let_go(struct ckpt_early_step *e, bool stop)
{
	LOCK_SCOPE(&e->early->lock);

	e->in_hand = false;
	e->stopped |= stop;
	e->dropped |= !ckpt_early_pack_packing(e->pack); // a lack of room may have dropped them meanwhile
	pthread_cond_broadcast(&e->early->changed);
}

// A committed step waits for who pushes, unless the queue was found empty after its commit.
static bool is_over_locked(struct ckpt_early_step *e, bool queue_is_empty)
{
	bool was_committed = e->committed, unfinished = ckpt_step_is_unfinished(e->step);

	e->committed = __atomic_load_n(&e->step->state, __ATOMIC_ACQUIRE) == CKPT_STEP_COMMITTED;
	return !e->in_hand && !unfinished && (!e->committed || (was_committed && queue_is_empty));
}

// Ends what is over. queue_is_empty: it was, after the last call. Whether any is left.
static bool sweep(struct ckpt_early_push *early, bool queue_is_empty)
{
	struct ckpt_early_step *over = NULL, **place;
	bool any;

	ckpt_lock_take(&early->lock);
	for (place = &early->steps; *place;) {
		struct ckpt_early_step *e = *place;

		if (!is_over_locked(e, queue_is_empty)) {
			place = &e->next;
			continue;
		}
		*place = e->next;
		e->next = over;
		over = e;
	}
	any = early->steps;
	ckpt_lock_drop(&early->lock);
	for (struct ckpt_early_step *next; over; over = next) {
		next = over->next;
		ckpt_early_step_free(over);
	}
	return any;
}

// --- Room ---------------------------------------------------------------------------------------------------------------

// Packs that are made now leave so much room less for the save: all that this may still write must fit beside it, if it is as large as the
// newest step.
static bool has_room(struct ckpt_store *s, uint64_t closed_bytes, uint64_t bytes)
{
	uint64_t limit = s->settings.work_limit, newest = ckpt_latest_bytes(s), room, all, used;
	uint64_t needed = 2 * bytes + (newest > closed_bytes ? newest - closed_bytes : 0);

	if (ckpt_sys.room(s->dirfd, &room, &all) || room < needed + MIN(all / ROOM_PART, ROOM_MAX))
		return false;
	return limit == CKPT_LIMIT_NONE ||
	       (!ckpt_limit_used(*ckpt_limit_of(s), &used) && used < limit && needed <= limit - used);
}

// --- The thread ---------------------------------------------------------------------------------------------------------

static void leave_to_commit(struct ckpt_store *s, struct ckpt_closed_file *file)
{
	(void)ckpt_closed_done(s, file, NULL);
}

static bool is_due(const struct ckpt_early_step *e, int64_t now_ns)
{
	int64_t rested_ns = now_ns - e->filled_ns;

	return rested_ns >= CKPT_EARLY_PUSH_REST_NS ||
	       (rested_ns >= CKPT_EARLY_PUSH_IDLE_NS && ckpt_early_pack_making(e->pack) >= CKPT_EARLY_PUSH_IDLE_BYTES);
}

// The next of the list, in hand; it stays there meanwhile. NULL: that was the last.
static struct ckpt_early_step *next_in_hand(struct ckpt_early_push *early, const struct ckpt_early_step *after)
{
	struct ckpt_early_step *e;
	LOCK_SCOPE(&early->lock);

	for (e = after ? after->next : early->steps; e && e->in_hand; e = e->next)
		;
	if (e)
		e->in_hand = true;
	return e;
}

// One step at a time has buffers and threads: the one in hand. Others rest, and so does each for which nothing has come for a while.
static void rest(struct ckpt_early_push *early, bool all)
{
	int64_t now_ns = ckpt_sys.mono_ns();
	struct ckpt_early_step *e = next_in_hand(early, NULL), *next;

	for (; e; e = next) {
		int rc = all || is_due(e, now_ns) ? ckpt_early_pack_rest(e->pack) : 0;

		if (!ckpt_uploads_left(e->uploads) && now_ns - e->filled_ns >= CKPT_EARLY_PUSH_REST_NS)
			ckpt_uploads_rest(e->uploads);
		next = next_in_hand(early, e);
		let_go(e, rc);
	}
}

// A store that is near has no threads that send. True: more is to be sent.
static bool send_near(struct ckpt_early_push *early)
{
	struct ckpt_early_step *e, *next;
	bool more = false;

	if (ckpt_near_there(early->of.store->objects)->ops->is_far)
		return false;
	for (e = next_in_hand(early, NULL); e; e = next) {
		bool failed = ckpt_uploads_left(e->uploads) && has_failed(e, ckpt_sys.mono_ns() + LOOK_NS);

		more |= ckpt_uploads_left(e->uploads);
		next = next_in_hand(early, e);
		let_go(e, failed);
	}
	return more;
}

static void pack_file(struct ckpt_early_push *early, struct ckpt_closed_file *file)
{
	struct ckpt_store *s = early->of.store;
	struct ckpt_early_step *e =
		ckpt_step_state(file->step) == CKPT_STEP_STAGED ? take_in_hand(early, file->step) : NULL;
	struct stat st;
	int rc;

	if (!e || fstat(file->fd, &st)) {
		leave_to_commit(s, file);
		if (e)
			let_go(e, false);
		return;
	}
	rest(early, true);
	e->closed_bytes += (uint64_t)st.st_size;
	if (has_room(s, e->closed_bytes, (uint64_t)st.st_size)) {
		rc = ckpt_early_pack_file(e->pack, file);
	} else {
		leave_to_commit(s, file);
		(void)ckpt_early_pack_drop(e->pack);
		rc = -ENOSPC;
	}
	e->filled_ns = ckpt_sys.mono_ns();
	let_go(e, (rc && rc != -EINTR) || has_failed(e, 0));
}

// A wait may be long. Only files that may still be packed early stay in the queue meanwhile.
static int64_t turn(void *arg, struct ckpt_job *job)
{
	struct ckpt_early_push *early = arg;
	struct ckpt_store *s = early->of.store;
	struct ckpt_closed_file file;
	bool closed, any;

	for (;;) {
		any = sweep(early, early->may == CKPT_EARLY_PUSH_GO);
		closed = ckpt_closed_tidy(s);
		if (ckpt_job_stops(job) || !(closed || any))
			return ckpt_sys.mono_ns() + CKPT_JOB_LATER_NS;
		early->may = early->of.may(early->of.arg);
		if (early->may == CKPT_EARLY_PUSH_WAIT) {
			ckpt_closed_leave(s);
			break;
		}
		if (!ckpt_closed_take(s, &file))
			break;
		if (early->may == CKPT_EARLY_PUSH_GO)
			pack_file(early, &file);
		else
			leave_to_commit(s, &file);
	}
	rest(early, false);
	if (send_near(early))
		return 0;
	return ckpt_sys.mono_ns() + (closed ? LOOK_NS : CKPT_EARLY_PUSH_IDLE_NS);
}

int ckpt_early_push_new(const struct ckpt_early_push_of *of, struct ckpt_early_push **ret_early)
{
	struct ckpt_early_push *early = ckpt_calloc(1, sizeof(*early));
	// After the commit the same work would be waited for.
	const struct ckpt_job_of job = {"early push", CKPT_JOB_HURRIES, turn, early, true};
	int rc;

	if (!early)
		return -ENOMEM;
	early->of = *of;
	early->may = CKPT_EARLY_PUSH_WAIT;
	ckpt_early_list_load(&early->list, of->store);
	ckpt_lock_init(&early->lock, CKPT_LOCK_LEAF);
	ckpt_lock_init(&early->list_lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&early->changed, NULL);
	rc = ckpt_job_new(of->store->jobs, &job, &early->job);
	if (rc) {
		ckpt_early_push_free(early);
		return rc;
	}
	ckpt_closed_want(of->store, early->job);
	*ret_early = early;
	return 0;
}

void ckpt_early_push_stop(struct ckpt_early_push *early)
{
	if (!early)
		return;
	ckpt_closed_want(early->of.store, NULL);
	ckpt_job_stop(early->job);
}

void ckpt_early_push_free(struct ckpt_early_push *early)
{
	if (!early)
		return;
	for (struct ckpt_early_step *e = early->steps, *next; e; e = next) {
		next = e->next;
		ckpt_early_step_free(e);
	}
	ckpt_early_list_end(&early->list, early->of.store);
	pthread_cond_destroy(&early->changed);
	ckpt_lock_done(&early->list_lock);
	ckpt_lock_done(&early->lock);
	free(early);
}

// --- For others -----------------------------------------------------------------------------------------------------------

// In hand, and nothing is packed for it any more: who has it now lets go of it soon. session NULL: the first that has its packs yet.
static struct ckpt_early_step *seize_locked(struct ckpt_early_push *early, const char *session)
{
	for (;;) {
		struct ckpt_early_step *e = early->steps;

		while (e && (session ? strcmp(e->step->session, session) != 0 : e->dropped))
			e = e->next;
		if (!e)
			return NULL;
		e->stopped = true;
		if (!e->in_hand) {
			e->in_hand = true;
			return e;
		}
		(void)ckpt_lock_wait(&early->changed, &early->lock);
	}
}

uint64_t ckpt_early_push_give_back(struct ckpt_early_push *early)
{
	struct ckpt_early_step *e;
	uint64_t bytes = 0;

	if (!early)
		return 0;
	ckpt_closed_leave(early->of.store);
	ckpt_lock_take(&early->lock);
	while ((e = seize_locked(early, NULL))) {
		e->dropped = true;
		ckpt_lock_drop(&early->lock);
		bytes += ckpt_early_pack_drop(e->pack);
		let_go(e, true);
		ckpt_lock_take(&early->lock);
	}
	ckpt_lock_drop(&early->lock);
	return bytes;
}

struct ckpt_early_step *ckpt_early_push_take(struct ckpt_early_push *early, const char *session)
{
	struct ckpt_early_step *e, **place;

	if (!early)
		return NULL;
	ckpt_lock_take(&early->lock);
	e = seize_locked(early, session);
	for (place = &early->steps; e && *place != e; place = &(*place)->next)
		;
	if (e)
		*place = e->next;
	ckpt_lock_drop(&early->lock);
	if (!e)
		return NULL;
	(void)ckpt_early_pack_rest(e->pack); // what cannot be put is packed again
	if (has_failed(e, 0))
		ckpt_uploads_free(TAKE_PTR(e->uploads));
	return e;
}

const struct ckpt_packing *ckpt_early_step_packing(const struct ckpt_early_step *e)
{
	return e ? ckpt_early_pack_packing(e->pack) : NULL;
}

struct ckpt_uploads *ckpt_early_step_uploads(const struct ckpt_early_step *e)
{
	return e ? e->uploads : NULL;
}
