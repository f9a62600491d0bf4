#include "core/save/watch.h"

#include "core/step/store.h"

#include <stdlib.h>

struct watch {
	struct ckpt_step *step;
	void (*fn)(struct ckpt_step *step);
};

static void end(struct watch *w)
{
	struct ckpt_store *s = w->step->store;

	ckpt_step_unref(w->step);
	free(w);
	ckpt_lock_take(&s->lock);
	s->threads.running--;
	pthread_cond_broadcast(&s->threads.ended);
	ckpt_lock_drop(&s->lock);
}

static void *watch_thread(void *arg)
{
	struct watch *w = arg;

	w->fn(w->step);
	end(w);
	return NULL;
}

bool ckpt_watch_start(struct ckpt_step *step, void (*fn)(struct ckpt_step *step))
{
	struct ckpt_store *s = step->store;
	struct watch *w = malloc(sizeof(*w));
	pthread_attr_t attr;
	pthread_t thread;
	bool started;

	if (!w)
		return false;
	*w = (struct watch){ckpt_step_ref(step), fn};
	ckpt_lock_take(&s->lock);
	s->threads.running++;
	ckpt_lock_drop(&s->lock);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	started = !pthread_create(&thread, &attr, watch_thread, w);
	pthread_attr_destroy(&attr);
	if (!started)
		end(w);
	return started;
}
