#include "fs/tell.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/limit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define PATIENCE_NS INT64_C(200000000)

// Both threads know it; the last of them frees it.
struct telling {
	struct fuse_session *se;
	fuse_ino_t dir;
	char name[CKPT_NAME_MAX + 1];
	// Guarded by the lock of all.
	bool done; // the kernel knows it
	bool left; // nobody waits for that any more
};

static struct {
	struct ckpt_lock lock;
	pthread_cond_t changed;
	unsigned running; // threads; guarded by lock
} tellings = {.lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF), .changed = PTHREAD_COND_INITIALIZER};

static void tell_now(const struct telling *t)
{
	(void)fuse_lowlevel_notify_inval_entry(t->se, t->dir, t->name, strlen(t->name));
}

static void *telling_thread(void *arg)
{
	struct telling *t = arg;

	tell_now(t);
	ckpt_lock_take(&tellings.lock);
	t->done = true;
	if (t->left)
		free(t);
	tellings.running--;
	pthread_cond_broadcast(&tellings.changed);
	ckpt_lock_drop(&tellings.lock);
	return NULL;
}

static bool start(struct telling *t)
{
	pthread_attr_t attr;
	pthread_t id;
	bool made;

	ckpt_lock_take(&tellings.lock);
	tellings.running++;
	ckpt_lock_drop(&tellings.lock);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	made = !pthread_create(&id, &attr, telling_thread, t);
	pthread_attr_destroy(&attr);
	if (made)
		return true;
	ckpt_lock_take(&tellings.lock);
	tellings.running--;
	ckpt_lock_drop(&tellings.lock);
	return false;
}

static void wait_a_moment(struct telling *t)
{
	int64_t until_ns = ckpt_sys.mono_ns() + PATIENCE_NS, now_ns;
	LOCK_SCOPE(&tellings.lock);

	while (!t->done && (now_ns = ckpt_sys.mono_ns()) < until_ns)
		(void)ckpt_lock_wait_ns(&tellings.changed, &tellings.lock, until_ns - now_ns);
	t->left = true;
	if (t->done)
		free(t);
}

// Without memory or a thread it may take long, and is not left out.
void tell_name(const struct ckpt_store *s, struct fuse_session *se, fuse_ino_t dir, const char *name)
{
	bool waits = s->settings.durability != CKPT_DURABILITY_LOCAL || *ckpt_limit_of(s);
	struct telling here = {.se = se, .dir = dir}, *t = waits ? malloc(sizeof(*t)) : NULL;

	snprintf(here.name, sizeof(here.name), "%s", name);
	if (t)
		*t = here;
	if (t && start(t)) {
		wait_a_moment(t);
		return;
	}
	free(t);
	tell_now(&here);
}

void tell_drain(void)
{
	LOCK_SCOPE(&tellings.lock);

	while (tellings.running)
		ckpt_lock_wait(&tellings.changed, &tellings.lock);
}
