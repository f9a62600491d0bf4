#include "fs/call.h"

#include "core/base/actor.h"
#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/remote.h"
#include "core/remote/tree.h"
#include "core/save/makers.h"
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/reopened.h"
#include "core/step/store.h"
#include "core/step/successor.h"
#include "fs/latest_led.h"
#include "fs/node.h"

#include <stdio.h>

#define THREADS_MAX 1024                  // of a lane
#define RESTING_MAX 4                     // of those
#define REST_NS (INT64_C(1) * 1000000000) // to make a thread and to end it takes longer than many a call

// Steps have a gate; the plain tree has this: held for reading over each change of it, and for writing while a folder of it
// becomes a step (marker.c).
static struct ckpt_rwlock plain_lock = CKPT_RWLOCK_INIT(CKPT_LOCK_PLAIN);

void call_plain_stop(void)
{
	ckpt_rwlock_write(&plain_lock);
}

void call_plain_go(void)
{
	ckpt_rwlock_drop(&plain_lock);
}

// Whatever waits has a thread of its own; when all of them are busy, it waits in a queue first. Nobody is refused. Some threads that
// have nothing to do any more rest a while, and take what comes next.
//
// There are two lanes: calls that wait for a disk only, and calls that wait for what another client does (parked ones,
// completions). In one lane the fsync of a writer could queue behind those that wait for this very writer.
struct thread_call {
	struct thread_call *next;
	struct call call;
	struct ckpt_actor actor; // without a request: that of the thread which made the call
	void (*body)(struct call *c);
	struct lane *lane;
};

static struct {
	struct ckpt_lock lock;
	pthread_cond_t idle;
	struct lane {
		unsigned count;   // of threads
		unsigned resting; // of those: waiting on `wanted`, or about to see what was queued for them
		unsigned queued;
		pthread_cond_t wanted;
		struct thread_call *first, **last; // the queue
	} lanes[2];
} threads = {.lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF),
	     .idle = PTHREAD_COND_INITIALIZER,
	     .lanes = {{.wanted = PTHREAD_COND_INITIALIZER}, {.wanted = PTHREAD_COND_INITIALIZER}}};

static void thread_call_free(struct thread_call *t)
{
	free(t->call.data);
	free(t);
}

static struct thread_call *thread_call_new(const struct call *c, void (*body)(struct call *c), struct lane *lane)
{
	struct thread_call *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->call = *c;
	if (!c->req)
		t->actor = ckpt_actor_get();
	t->body = body;
	t->lane = lane;
	if (c->data) {
		t->call.data = malloc(c->data_len + 1);
		if (!t->call.data) {
			free(t);
			return NULL;
		}
		memcpy(t->call.data, c->data, c->data_len);
		t->call.data[c->data_len] = '\0';
	}
	return t;
}

static void enqueue_locked(struct thread_call *t)
{
	struct lane *l = t->lane;

	*(l->first ? l->last : &l->first) = t;
	l->last = &t->next;
	l->queued++;
}

static bool is_idle_locked(void)
{
	for (size_t i = 0; i < ARRAY_LEN(threads.lanes); i++)
		if (threads.lanes[i].count > threads.lanes[i].resting || threads.lanes[i].queued)
			return false;
	return true;
}

static void rest_locked(struct lane *l)
{
	l->resting++;
	if (is_idle_locked())
		pthread_cond_broadcast(&threads.idle);
	(void)ckpt_lock_wait_ns(&l->wanted, &threads.lock, REST_NS);
	l->resting--;
}

// What this thread does next; NULL: nothing, it ends.
static struct thread_call *next_call(struct lane *l)
{
	LOCK_SCOPE(&threads.lock);
	struct thread_call *t;

	if (!l->first && l->resting < RESTING_MAX)
		rest_locked(l);
	t = l->first;
	if (t) {
		l->first = t->next;
		l->queued--;
	} else {
		l->count--;
		if (is_idle_locked())
			pthread_cond_broadcast(&threads.idle);
	}
	return t;
}

// The actor is the client of the request, which may be answered meanwhile. Without a request it stays the one that is set.
static void run_for_client(struct call *c, void (*body)(struct call *c))
{
	const struct fuse_ctx *ctx = c->req ? fuse_req_ctx(c->req) : NULL;
	struct ckpt_actor_scope was;

	if (ctx)
		was = ckpt_actor_set_client(ctx->uid, ctx->pid);
	body(c);
	if (ctx)
		ckpt_actor_restore(&was);
}

static void run_thread_call(struct thread_call *t)
{
	(void)ckpt_actor_set(&t->actor); // not that of the call before
	run_for_client(&t->call, t->body);
}

static void *thread_main(void *arg)
{
	struct thread_call *t = arg;

	while (t) {
		struct lane *lane = t->lane;

		run_thread_call(t);
		thread_call_free(t);
		t = next_call(lane);
	}
	return NULL;
}

static bool thread_create(struct thread_call *t)
{
	pthread_attr_t attr;
	pthread_t id;
	bool made;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 << 10);
	made = !pthread_create(&id, &attr, thread_main, t);
	pthread_attr_destroy(&attr);
	return made;
}

// -ENOMEM: there is no memory for it, or not one thread to be had.
static int thread_start(const struct call *c, void (*body)(struct call *c), struct lane *lane)
{
	struct thread_call *t = thread_call_new(c, body, lane);
	bool create, queued;

	if (!t)
		return -ENOMEM;
	ckpt_lock_take(&threads.lock);
	create = lane->queued >= lane->resting && lane->count < THREADS_MAX;
	if (create)
		lane->count++;
	else
		enqueue_locked(t);
	if (!create)
		pthread_cond_signal(&lane->wanted);
	ckpt_lock_drop(&threads.lock);
	if (!create || thread_create(t))
		return 0;
	ckpt_lock_take(&threads.lock);
	queued = --lane->count > 0; // one of the others will take it
	if (queued) {
		enqueue_locked(t);
		pthread_cond_signal(&lane->wanted);
	} else if (is_idle_locked()) {
		pthread_cond_broadcast(&threads.idle);
	}
	ckpt_lock_drop(&threads.lock);
	if (!queued)
		thread_call_free(t);
	return queued ? 0 : -ENOMEM;
}

// Both steps or none: who holds one while waiting for the other could wait in a circle.
static int enter_both(struct call *c, bool wait)
{
	for (;;) {
		int rc = c->step ? ckpt_stage_enter(c->step, wait) : 0;

		if (rc || !c->other_step || c->other_step == c->step)
			return rc;
		rc = ckpt_stage_enter(c->other_step, false);
		if (!rc)
			return 0;
		if (c->step)
			ckpt_stage_leave(c->step);
		if (rc != -EAGAIN || !wait)
			return rc;
		rc = ckpt_stage_enter(c->other_step, true);
		if (rc)
			return rc;
		ckpt_stage_leave(c->other_step);
	}
}

static void leave_both(struct ckpt_step *step, struct ckpt_step *other)
{
	if (step)
		ckpt_stage_leave(step);
	if (other && other != step)
		ckpt_stage_leave(other);
	ckpt_step_unref(step);
	ckpt_step_unref(other);
}

static void reopened(struct call *c);

static bool may_reopen(const struct call *c)
{
	return c->reopens && !c->fs->mount->readonly && c->fs->store->settings.amend != CKPT_AMEND_DENY;
}

// Before it has made anything: how its process ends says whether the step is complete.
static void note_maker(struct call *c)
{
	if (!c->makes || !c->req)
		return;
	if (c->step)
		c->process = ckpt_makers_note(c->step, fuse_req_ctx(c->req)->pid, false);
	if (c->other_step && c->other_step != c->step)
		c->process = ckpt_makers_note(c->other_step, fuse_req_ctx(c->req)->pid, false);
}

static bool is_edited_elsewhere(struct ckpt_step *step)
{
	struct ckpt_step *to = step && ckpt_step_state(step) == CKPT_STEP_DELETED ? ckpt_successor_find(step) : NULL;

	ckpt_step_unref(to);
	return to;
}

// Another node's edit has the place of the step since a moment ago: the kernel looks its name up again, once that is known here.
static int end_of_deleted(struct call *c, int rc)
{
	if (rc != -EROFS || (!is_edited_elsewhere(c->step) && !is_edited_elsewhere(c->other_step)))
		return rc;
	ckpt_lock_take(&c->fs->store->acts_lock);
	ckpt_lock_drop(&c->fs->store->acts_lock);
	return -ESTALE;
}

static void finish(struct call *c, int rc)
{
	struct ckpt_step *step = c->step, *other = c->other_step;

	if (rc == -EROFS && c->committed) {
		rc = end_of_deleted(c, c->committed(c));
		if (rc != CALL_REOPENS) {
			if (rc != CALL_ANSWERED)
				reply_error(c->req, rc);
			ckpt_step_unref(step);
			ckpt_step_unref(other);
			return;
		}
		rc = -EROFS;
	}
	if (rc == -EROFS && may_reopen(c) && c->before_reopen)
		rc = c->before_reopen(c) ?: rc;
	if (rc == -EROFS && may_reopen(c)) {
		c->reopens = false;
		rc = thread_start(c, reopened, &threads.lanes[true]); // it takes a link for each file
		if (!rc)
			return;
	}

	if (rc) {
		reply_error(c->req, end_of_deleted(c, rc));
		ckpt_step_unref(step);
		ckpt_step_unref(other);
		return;
	}
	note_maker(c);
	c->run(c);
	leave_both(step, other);
}

static int reopen(struct call *c, struct ckpt_step *step)
{
	struct ckpt_step *now;
	int rc;

	if (!step || ckpt_step_state(step) != CKPT_STEP_COMMITTED)
		return 0;
	rc = ckpt_reopen(step, &now);
	if (!rc && latest_led_to(now, fuse_req_ctx(c->req)->pid))
		__atomic_store_n(&ckpt_reopen_of(now)->through_latest, true, __ATOMIC_RELEASE);
	if (!rc)
		ckpt_step_unref(now);
	return rc == -ESTALE ? 0 : rc; // then entering it says what it is
}

bool call_plain_enter(struct ckpt_fs *fs, struct node *n)
{
	struct ckpt_step *step;

	ckpt_rwlock_read(&plain_lock);
	step = node_step(fs, n);
	if (step)
		ckpt_rwlock_drop(&plain_lock);
	ckpt_step_unref(step);
	return !step;
}

void call_plain_leave(void)
{
	ckpt_rwlock_drop(&plain_lock);
}

// True: all of it is in the plain tree, which stays so until leave_plain().
static bool find_steps(struct call *c)
{
	ckpt_rwlock_read(&plain_lock);
	c->step = node_step(c->fs, c->node);
	c->other_step = c->other ? node_step(c->fs, c->other) : NULL;
	if (!c->step || (c->other && !c->other_step))
		return true;
	ckpt_rwlock_drop(&plain_lock);
	return false;
}

// What could not be entered: a commit runs; or it was a step until a moment ago, and its files are a plain folder now (unstage.h).
static bool is_passing(const struct call *c, int rc)
{
	struct ckpt_step *step, *other;
	bool changed;

	if (rc != -ESTALE)
		return rc == -EAGAIN;
	step = node_step(c->fs, c->node);
	other = c->other ? node_step(c->fs, c->other) : NULL;
	changed = step != c->step || other != c->other_step;
	ckpt_step_unref(step);
	ckpt_step_unref(other);
	return changed;
}

static void leave_plain(struct ckpt_fs *fs, bool plain)
{
	if (!plain)
		return;
	ckpt_rwlock_drop(&plain_lock);
	ckpt_tree_touch(ckpt_remote_tree(*ckpt_remote_of(fs->store))); // which other nodes have, too
}

// -EBUSY: its commit stands still. What it has become is for who enters it to say.
static int wait_out(struct ckpt_step *step)
{
	int rc = step ? ckpt_stage_enter(step, true) : -ESTALE;

	if (!rc)
		ckpt_stage_leave(step);
	return rc == -EBUSY ? rc : 0;
}

// Enters the steps and runs it, waiting for their commits. With the lock nobody waits for a commit: it may be what holds it.
static void run_waiting(struct call *c)
{
	bool plain = find_steps(c);
	int rc = enter_both(c, !plain);

	while (is_passing(c, rc)) { // a change between a step and the plain tree
		leave_plain(c->fs, plain);
		plain = false;
		rc = wait_out(c->step);
		if (!rc)
			rc = wait_out(c->other_step);
		if (rc)
			break;
		ckpt_step_unref(c->step);
		ckpt_step_unref(c->other_step);
		plain = find_steps(c);
		rc = enter_both(c, !plain);
	}
	finish(c, rc);
	leave_plain(c->fs, plain);
}

static void reopened(struct call *c)
{
	int rc = reopen(c, c->step);

	if (!rc)
		rc = reopen(c, c->other_step);
	if (rc) {
		finish(c, rc);
		return;
	}
	ckpt_step_unref(c->step);
	ckpt_step_unref(c->other_step);
	run_waiting(c);
}

static void parked(struct call *c)
{
	ckpt_step_unref(c->step);
	ckpt_step_unref(c->other_step);
	run_waiting(c);
}

static bool reopens_now(const struct ckpt_step *step)
{
	return step && __atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE);
}

static void run_here(struct call *c)
{
	bool plain = find_steps(c);
	bool aside = c->copies && (__atomic_load_n(&c->node->file, __ATOMIC_RELAXED) || reopens_now(c->step));
	int rc = aside ? -EAGAIN : enter_both(c, false);

	if (aside || is_passing(c, rc)) {
		leave_plain(c->fs, plain);
		plain = false;
		rc = thread_start(c, parked, &threads.lanes[true]);
		if (!rc)
			return;
	}
	finish(c, rc);
	leave_plain(c->fs, plain);
}

void call_run(struct call *c)
{
	run_for_client(c, run_here);
}

void call_again(struct call *c)
{
	if (thread_start(c, call_run, &threads.lanes[true]))
		call_run(c);
}

#define SOON_NS INT64_C(1000000)

static void run_soon(struct call *c)
{
	ckpt_sys.sleep_ns(SOON_NS);
	call_run(c);
}

void call_again_soon(struct call *c)
{
	if (thread_start(c, run_soon, &threads.lanes[true]))
		reply_error(c->req, -ENOMEM);
}

void call_detach(struct call *c)
{
	// Without memory the thread that serves the kernel does it itself: late is better than never, and a release that
	// was refused would never come again.
	if (thread_start(c, c->run, &threads.lanes[c->waits_for_clients]))
		run_for_client(c, c->run);
}

void call_drain(int64_t timeout_ns)
{
	int64_t began = ckpt_sys.mono_ns(), passed = 0;

	LOCK_SCOPE(&threads.lock);
	for (; !is_idle_locked() && passed < timeout_ns; passed = ckpt_sys.mono_ns() - began)
		ckpt_lock_wait_ns(&threads.idle, &threads.lock, timeout_ns - passed);
}

struct call call_for(fuse_req_t req, fuse_ino_t ino, const char *name, void (*run)(struct call *c))
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = {.run = run, .req = req, .fs = fs, .node = node_of(fs, ino)};

	snprintf(c.name, sizeof(c.name), "%s", name);
	return c;
}
