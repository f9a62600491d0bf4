#include "core/view/array_cache.h"

#include "core/base/lock.h"
#include "core/base/util.h"

#define STACK_BYTES ((size_t)8 << 20)

// States: under way (set NULL, not failed), ready (set), failed. A slot is in the list while it is one of the first two. Invariants:
//   1. Two slots of the list are not of one version. Its number is not enough: the remote's log gives one to another version, too.
//   2. bytes is the sum of those of the ready slots in the list.
struct slot {
	struct slot *next; // the one that was used last first
	uint64_t incarnation;
	struct ckpt_version *version; // a reference
	unsigned users;               // who waits for it, and the list
	int failed;
	struct ckpt_array_dir *set; // a reference; NULL: under way
	size_t bytes;
};

struct ckpt_array_cache {
	struct ckpt_lock lock; // guards all
	pthread_cond_t made;
	struct slot *first;
	size_t bytes, bytes_max;
};

struct ckpt_array_cache *ckpt_array_cache_new(size_t bytes_max)
{
	struct ckpt_array_cache *c = ckpt_calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	ckpt_lock_init(&c->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&c->made, NULL);
	c->bytes_max = bytes_max;
	return c;
}

static void free_slots(struct slot *s)
{
	for (struct slot *next; s; s = next) {
		next = s->next;
		ckpt_array_dir_unref(s->set);
		ckpt_version_unref(s->version);
		free(s);
	}
}

void ckpt_array_cache_free(struct ckpt_array_cache *c)
{
	if (!c)
		return;
	free_slots(c->first);
	pthread_cond_destroy(&c->made);
	ckpt_lock_done(&c->lock);
	free(c);
}

static bool is_same(const struct ckpt_summary *a, const struct ckpt_summary *b)
{
	return a->version == b->version && !memcmp(a->nonce, b->nonce, sizeof(a->nonce)) &&
	       !memcmp(a->manifest_sha256, b->manifest_sha256, sizeof(a->manifest_sha256));
}

// From this slot on.
static struct slot **find_locked(struct slot **at, uint64_t incarnation, const struct ckpt_version *version)
{
	while (*at && ((*at)->incarnation != incarnation || !is_same(&(*at)->version->is, &version->is)))
		at = &(*at)->next;
	return at;
}

static void put_first_locked(struct ckpt_array_cache *c, struct slot **at)
{
	struct slot *s = *at;

	*at = s->next;
	s->next = c->first;
	c->first = s;
}

// A user less. The slot, if that was the last one: for the caller to free, without the lock.
static struct slot *leave_locked(struct slot *s)
{
	if (--s->users)
		return NULL;
	s->next = NULL;
	return s;
}

// Takes out slots until the rest fits, the oldest first, for the caller to free. The first one stays.
static struct slot *evict_locked(struct ckpt_array_cache *c)
{
	struct slot *gone = NULL;

	while (c->bytes > c->bytes_max) {
		struct slot **last = NULL, *s;

		for (struct slot **at = &c->first->next; *at; at = &(*at)->next)
			if ((*at)->set && (*at)->users == 1)
				last = at;
		if (!last)
			break;
		s = *last;
		*last = s->next;
		c->bytes -= s->bytes;
		s->next = gone;
		gone = s;
	}
	return gone;
}

// Waits for the thread that makes it. at_once: -EAGAIN instead.
static int wait_for(struct ckpt_array_cache *c, struct slot *s, bool at_once, struct ckpt_array_dir **ret_set,
		    struct slot **ret_gone)
{
	int rc;

	if (at_once && !s->set)
		return -EAGAIN;
	s->users++;
	while (!s->set && !s->failed)
		ckpt_lock_wait(&c->made, &c->lock);
	rc = s->failed;
	if (!rc)
		*ret_set = ckpt_array_dir_ref(s->set);
	*ret_gone = leave_locked(s);
	return rc;
}

struct making {
	struct ckpt_step *step;
	struct ckpt_array_dir *set;
	int rc;
};

static void *run_making(void *arg)
{
	struct making *m = arg;

	m->rc = ckpt_array_dir_new(m->step, &m->set);
	return NULL;
}

// Readers of formats follow what is in each other, as deep as their limits allow: more than a caller's stack may have room for.
static int make_set(struct ckpt_step *step, struct ckpt_array_dir **ret_set)
{
	struct making m = {.step = step};
	pthread_attr_t attr;
	pthread_t id;
	int rc;

	pthread_attr_init(&attr);
	rc = pthread_attr_setstacksize(&attr, STACK_BYTES) ?: pthread_create(&id, &attr, run_making, &m);
	pthread_attr_destroy(&attr);
	if (rc)
		return -rc;
	pthread_join(id, NULL);
	if (!m.rc)
		*ret_set = m.set;
	return m.rc;
}

static int make(struct ckpt_array_cache *c, struct ckpt_step *step, struct slot *s, struct ckpt_array_dir **ret_set)
{
	struct ckpt_array_dir *set = NULL;
	int rc = make_set(step, &set);
	struct slot *gone, *mine = NULL, **at, **other;
	CLEANUP_VERSION struct ckpt_version *was = NULL;

	ckpt_lock_take(&c->lock);
	at = &c->first;
	while (*at != s)
		at = &(*at)->next;
	if (!rc) {
		s->set = ckpt_array_dir_ref(set);
		s->bytes = ckpt_array_dir_bytes(set);
		c->bytes += s->bytes;
		put_first_locked(c, at);
		// The version may be a newer one than was asked for, which has a slot by now.
		was = s->version;
		s->version = ckpt_version_ref(ckpt_array_dir_version(set));
		other = find_locked(&s->next, s->incarnation, s->version);
		if (*other) {
			c->first = s->next;
			c->bytes -= s->bytes;
			mine = leave_locked(s);
		}
	} else {
		s->failed = rc;
		*at = s->next;
		mine = leave_locked(s);
	}
	gone = evict_locked(c);
	pthread_cond_broadcast(&c->made);
	ckpt_lock_drop(&c->lock);
	free_slots(gone);
	free_slots(mine);
	*ret_set = set;
	return rc;
}

int ckpt_array_cache_get(struct ckpt_array_cache *c, struct ckpt_step *step, bool at_once,
			 struct ckpt_array_dir **ret_set)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct slot *s = ckpt_calloc(1, sizeof(*s)), **at, *gone = NULL;
	int rc;

	if (!s)
		return -ENOMEM;
	*s = (struct slot){.incarnation = step->incarnation, .version = TAKE_PTR(v), .users = 1};
	ckpt_lock_take(&c->lock);
	at = find_locked(&c->first, s->incarnation, s->version);
	if (*at) {
		struct slot *found = *at;

		put_first_locked(c, at);
		rc = wait_for(c, found, at_once, ret_set, &gone);
	} else if (at_once) {
		rc = -EAGAIN;
	} else {
		s->next = c->first;
		c->first = TAKE_PTR(s);
		at = NULL;
	}
	if (!at) {
		struct slot *mine = c->first;

		ckpt_lock_drop(&c->lock);
		return make(c, step, mine, ret_set);
	}
	ckpt_lock_drop(&c->lock);
	free_slots(s);
	free_slots(gone);
	return rc;
}
