#include "core/view/array_cache.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/view/step_arrays.h"

#define MAKING_MAX 4 // views at once: their names come from outside, and each may take much memory until it is made

// States: under way (set NULL, not failed), ready (set), failed. A slot is in the list while it is one of the first two. Invariants:
//   1. Two slots of the list are not of one version and one view of it. The number of a version is not enough: the remote's log gives one to
//      another version, too.
//   2. bytes is the sum of those of the ready slots in the list, and views is how many of these are views.
//   3. The base of each ready view in the list is in the list: it is counted as long as a view has a reference to it.
struct slot {
	struct slot *next; // the one that was used last first
	uint64_t incarnation;
	struct ckpt_version *version; // a reference
	char *view;                   // the name of a view; NULL: the arrays themselves
	unsigned users;               // who waits for it, and the list
	int failed;
	struct ckpt_view_why why;   // failed: of a view
	struct ckpt_array_dir *set; // a reference; NULL: under way
	size_t bytes;
};

struct ckpt_array_cache {
	struct ckpt_lock lock; // guards all
	pthread_cond_t made;
	struct slot *first;
	size_t bytes, bytes_max;
	size_t views;
	unsigned making; // views under way that have the memory for it
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
		free(s->view);
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

static bool is_view(const struct slot *s, const char *view)
{
	return view ? s->view && !strcmp(s->view, view) : !s->view;
}

// From this slot on.
static struct slot **find_locked(struct slot **at, uint64_t incarnation, const struct ckpt_version *version,
				 const char *view)
{
	while (*at && ((*at)->incarnation != incarnation || !is_view(*at, view) ||
		       !is_same(&(*at)->version->is, &version->is)))
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

// Takes a ready slot out of the list, for the caller to free, or for its last user.
static void take_out_locked(struct ckpt_array_cache *c, struct slot **at, struct slot **gone)
{
	struct slot *s = *at;

	*at = s->next;
	c->bytes -= s->bytes;
	c->views -= s->view != NULL;
	s = leave_locked(s);
	if (s) {
		s->next = *gone;
		*gone = s;
	}
}

// The slot that was used last and its base stay; what is still wanted is ready and has no user but the list.
static bool may_go(const struct ckpt_array_cache *c, const struct slot *s)
{
	const struct slot *first = c->first;
	struct ckpt_array_dir *base = first->set ? ckpt_array_dir_base(first->set) : NULL;

	return s != first && s->set && s->users == 1 && s->set != base;
}

static void take_out_views_locked(struct ckpt_array_cache *c, const struct ckpt_array_dir *base, struct slot **gone)
{
	struct slot **at = &c->first;

	while (*at) {
		if ((*at)->set && ckpt_array_dir_base((*at)->set) == base)
			take_out_locked(c, at, gone);
		else
			at = &(*at)->next;
	}
}

// The last ready slot; of views alone, or of all.
static struct slot **find_last_locked(struct ckpt_array_cache *c, bool views)
{
	struct slot **last = NULL;

	for (struct slot **at = &c->first; *at; at = &(*at)->next)
		if (may_go(c, *at) && (!views || (*at)->view))
			last = at;
	return last;
}

// Takes out slots until the rest fits, the oldest first, for the caller to free.
static struct slot *evict_locked(struct ckpt_array_cache *c)
{
	struct slot *gone = NULL;

	for (;;) {
		bool views = c->views > CKPT_ARRAY_CACHE_VIEWS;
		struct slot **last = views || c->bytes > c->bytes_max ? find_last_locked(c, views) : NULL;
		struct ckpt_array_dir *base;

		if (!last)
			return gone;
		base = (*last)->view ? NULL : (*last)->set;
		take_out_locked(c, last, &gone);
		if (base)
			take_out_views_locked(c, base, &gone);
	}
}

// Waits for the thread that makes it. at_once: -EAGAIN instead.
static int wait_for(struct ckpt_array_cache *c, struct slot *s, bool at_once, struct ckpt_array_dir **ret_set,
		    struct ckpt_view_why *ret_why, struct slot **ret_gone)
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
	else if (ret_why)
		*ret_why = s->why;
	*ret_gone = leave_locked(s);
	return rc;
}

struct making {
	struct ckpt_step *step;
	struct ckpt_array_dir *base; // of a view
	const char *view;            // NULL: none
	struct ckpt_array_dir *set;
	struct ckpt_view_why why;
};

static int make_set(void *arg)
{
	struct making *m = arg;

	return m->view ? ckpt_array_dir_view(m->base, m->view, &m->set, &m->why) : ckpt_array_dir_new(m->step, &m->set);
}

static bool has_set_locked(const struct ckpt_array_cache *c, const struct ckpt_array_dir *set)
{
	for (const struct slot *s = c->first; s; s = s->next)
		if (s->set == set)
			return true;
	return false;
}

// The version may be a newer one than was asked for, which has a slot by now; the base of a view may be gone from the list.
static bool is_kept_locked(struct ckpt_array_cache *c, struct slot *s)
{
	struct ckpt_array_dir *base = ckpt_array_dir_base(s->set);

	return !*find_locked(&s->next, s->incarnation, s->version, s->view) && (!base || has_set_locked(c, base));
}

// The slot is ready, and first in the list, or out of it: for the caller to leave.
static bool end_making_locked(struct ckpt_array_cache *c, struct slot **at, struct ckpt_array_dir *set)
{
	struct slot *s = *at;

	s->set = ckpt_array_dir_ref(set);
	s->bytes = ckpt_array_dir_bytes(set);
	put_first_locked(c, at);
	ckpt_version_unref(s->version);
	s->version = ckpt_version_ref(ckpt_array_dir_version(set));
	if (!is_kept_locked(c, s)) {
		c->first = s->next;
		return false;
	}
	c->bytes += s->bytes;
	c->views += s->view != NULL;
	return true;
}

static void begin_view(struct ckpt_array_cache *c)
{
	LOCK_SCOPE(&c->lock);

	while (c->making == MAKING_MAX)
		ckpt_lock_wait(&c->made, &c->lock);
	c->making++;
}

static int make(struct ckpt_array_cache *c, struct making *m, struct slot *s, struct ckpt_array_dir **ret_set,
		struct ckpt_view_why *ret_why)
{
	struct slot *gone, *mine = NULL, **at;
	int rc;

	if (m->view)
		begin_view(c);
	rc = ckpt_step_arrays_with_stack(make_set, m);
	ckpt_lock_take(&c->lock);
	c->making -= m->view != NULL;
	at = &c->first;
	while (*at != s)
		at = &(*at)->next;
	if (rc) {
		s->failed = rc;
		s->why = m->why;
		*at = s->next;
		mine = leave_locked(s);
	} else if (!end_making_locked(c, at, m->set)) {
		mine = leave_locked(s);
	}
	gone = evict_locked(c);
	pthread_cond_broadcast(&c->made);
	ckpt_lock_drop(&c->lock);
	free_slots(gone);
	free_slots(mine);
	*ret_set = m->set;
	if (ret_why)
		*ret_why = m->why;
	return rc;
}

// Takes s, which says of what version and view.
static int get(struct ckpt_array_cache *c, struct slot *s, struct making *m, bool at_once,
	       struct ckpt_array_dir **ret_set, struct ckpt_view_why *ret_why)
{
	struct slot **at, *gone = NULL, *mine = NULL;
	int rc = 0;

	ckpt_lock_take(&c->lock);
	at = find_locked(&c->first, s->incarnation, s->version, s->view);
	if (*at) {
		struct slot *found = *at;

		put_first_locked(c, at);
		rc = wait_for(c, found, at_once, ret_set, ret_why, &gone);
	} else if (at_once) {
		rc = -EAGAIN;
	} else {
		s->next = c->first;
		mine = c->first = TAKE_PTR(s);
	}
	ckpt_lock_drop(&c->lock);
	free_slots(s);
	free_slots(gone);
	return mine ? make(c, m, mine, ret_set, ret_why) : rc;
}

int ckpt_array_cache_get(struct ckpt_array_cache *c, struct ckpt_step *step, bool at_once,
			 struct ckpt_array_dir **ret_set)
{
	struct slot *s = ckpt_calloc(1, sizeof(*s));
	struct making m = {.step = step};

	if (!s)
		return -ENOMEM;
	*s = (struct slot){.incarnation = step->incarnation, .version = ckpt_step_version(step), .users = 1};
	return get(c, s, &m, at_once, ret_set, NULL);
}

static int get_view(struct ckpt_array_cache *c, struct ckpt_array_dir *base, const char *name, bool at_once,
		    struct ckpt_array_dir **ret_set, struct ckpt_view_why *ret_why)
{
	struct slot *s = ckpt_calloc(1, sizeof(*s));
	char *view = strdup(name);
	struct making m = {.base = base, .view = name};

	if (!s || !view) {
		free(s);
		free(view);
		return -ENOMEM;
	}
	*s = (struct slot){.incarnation = ckpt_array_dir_step(base)->incarnation,
			   .version = ckpt_version_ref(ckpt_array_dir_version(base)),
			   .view = view,
			   .users = 1};
	return get(c, s, &m, at_once, ret_set, ret_why);
}

int ckpt_array_cache_view(struct ckpt_array_cache *c, struct ckpt_step *step, const char *name, bool at_once,
			  struct ckpt_array_dir **ret_set, struct ckpt_view_why *ret_why)
{
	struct ckpt_array_dir *base;
	int rc = ckpt_array_cache_get(c, step, at_once, &base);

	*ret_why = (struct ckpt_view_why){0};
	if (rc)
		return rc;
	rc = get_view(c, base, name, at_once, ret_set, ret_why);
	ckpt_array_dir_unref(base);
	return rc;
}

size_t ckpt_array_cache_views(struct ckpt_array_cache *c)
{
	LOCK_SCOPE(&c->lock);
	return c->views;
}

size_t ckpt_array_cache_held(struct ckpt_array_cache *c)
{
	LOCK_SCOPE(&c->lock);
	return c->bytes;
}
