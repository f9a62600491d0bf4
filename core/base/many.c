#include "core/base/many.h"

#include "core/base/util.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

struct run {
	const struct ckpt_many *of;
	_Atomic size_t next; // item that nobody has taken yet
	_Atomic bool ends;
};

static bool call_next(struct run *r)
{
	size_t i = atomic_load(&r->ends) ? r->of->count : atomic_fetch_add(&r->next, 1);

	if (i >= r->of->count)
		return false;
	r->of->call(r->of->arg, i);
	return true;
}

static void *call_on(void *arg)
{
	while (call_next(arg))
		;
	return NULL;
}

static bool goes_on(struct run *r)
{
	if (r->of->go_on && !r->of->go_on(r->of->arg))
		atomic_store(&r->ends, true);
	return !atomic_load(&r->ends);
}

bool ckpt_many_run(const struct ckpt_many *many)
{
	pthread_t threads[CKPT_MANY_AT_ONCE_MAX];
	struct run r = {.of = many};
	size_t started = 0;

	assert(many->at_once && many->at_once <= CKPT_MANY_AT_ONCE_MAX);
	while (started + 1 < MIN((size_t)many->at_once, many->count) &&
	       !pthread_create(&threads[started], NULL, call_on, &r))
		started++;
	while (goes_on(&r) && call_next(&r))
		;
	while (started)
		pthread_join(threads[--started], NULL);
	(void)goes_on(&r);
	return atomic_load(&r.next) >= many->count;
}
