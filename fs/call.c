#include "fs/call.h"

#include "core/stage.h"
#include "core/sys.h"
#include "core/util.h"

#include <time.h>

#define THREADS_MAX 1024 // parked calls and commits; more are told EAGAIN

static struct {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	unsigned count;
} threads = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

struct thread_call {
	struct call call;
	void (*body)(struct call *c);
};

static void thread_ended(void)
{
	LOCK_SCOPE(&threads.lock);

	if (--threads.count == 0)
		pthread_cond_broadcast(&threads.idle);
}

static void *thread_main(void *arg)
{
	struct thread_call *t = arg;

	t->body(&t->call);
	free(t->call.data);
	free(t);
	thread_ended();
	return NULL;
}

static int thread_start(const struct call *c, void (*body)(struct call *c))
{
	struct thread_call *t = calloc(1, sizeof(*t));
	pthread_attr_t attr;
	pthread_t id;
	int rc;

	if (!t)
		return -ENOMEM;
	t->call = *c;
	t->body = body;
	if (c->data) {
		t->call.data = malloc(c->data_len + 1);
		if (!t->call.data) {
			free(t);
			return -ENOMEM;
		}
		memcpy(t->call.data, c->data, c->data_len);
		t->call.data[c->data_len] = '\0';
	}
	pthread_mutex_lock(&threads.lock);
	rc = threads.count < THREADS_MAX ? 0 : -EAGAIN;
	threads.count += !rc;
	pthread_mutex_unlock(&threads.lock);
	if (!rc) {
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		pthread_attr_setstacksize(&attr, 256 << 10);
		rc = pthread_create(&id, &attr, thread_main, t) ? -EAGAIN : 0;
		pthread_attr_destroy(&attr);
		if (rc)
			thread_ended();
	}
	if (rc) {
		free(t->call.data);
		free(t);
	}
	return rc;
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

static void finish(struct call *c, int rc)
{
	struct ckpt_step *step = c->step, *other = c->other_step;

	if (rc) {
		reply_error(c->req, rc);
		ckpt_step_unref(step);
		ckpt_step_unref(other);
		return;
	}
	c->run(c);
	leave_both(step, other);
}

static void parked(struct call *c)
{
	finish(c, enter_both(c, true));
}

void call_run(struct call *c)
{
	int rc;

	c->step = node_step(c->fs, c->node);
	c->other_step = c->other ? node_step(c->fs, c->other) : NULL;
	rc = enter_both(c, false);
	if (rc == -EAGAIN) {
		rc = thread_start(c, parked);
		if (!rc)
			return;
	}
	finish(c, rc);
}

void call_detach(struct call *c)
{
	int rc = thread_start(c, c->run);

	if (rc)
		reply_error(c->req, rc);
}

void call_drain(int64_t timeout_ns)
{
	int64_t began = ckpt_sys.mono_ns();
	struct timespec until;

	LOCK_SCOPE(&threads.lock);
	while (threads.count && ckpt_sys.mono_ns() - began < timeout_ns) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&threads.idle, &threads.lock, &until);
	}
}
