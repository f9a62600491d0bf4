// The table of steps. step_said.c: what the log says of them; step_read.c: what committed ones have on disk; step_manifest.c:
// their manifests in memory.
//
// Invariants:
//  1. At most one step object has a name (folder id + name), or has it reserved: insert_locked refuses a second.
//  2. The table holds one reference for each step in it; a step out of it lives as long as somebody holds it.
//  3. version changes only under step->lock, and never to a lower one. Its number is the same after a rename.
#include "core/step/step.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/store.h"

#include <stdio.h>

struct ckpt_pending {
	struct ckpt_pending *next;
	struct ckpt_step *step;
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	char name[CKPT_NAME_MAX + 1];
};

struct ckpt_step_table {
	struct ckpt_step **buckets;
	size_t bucket_count, count;
	struct ckpt_step **deleted; // the same for steps in state DELETED: any number may have had one name
	struct ckpt_step *left;     // steps in state LEFT, which have no name: chained by hash_next
	struct ckpt_manifest_cache manifests;
	uint64_t incarnations;
	uint64_t sequence;            // commits so far
	struct ckpt_pending *pending; // of running commits, and of those with an unknown outcome: few
};

struct ckpt_step_table *ckpt_step_table_new(void)
{
	struct ckpt_step_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->bucket_count = 256;
	t->buckets = calloc(t->bucket_count, sizeof(*t->buckets));
	t->deleted = calloc(t->bucket_count, sizeof(*t->deleted));
	if (!t->buckets || !t->deleted) {
		free(t->buckets);
		free(t->deleted);
		free(t);
		return NULL;
	}
	return t;
}

static struct ckpt_step_parts parts;
static size_t step_bytes = sizeof(struct ckpt_step);

void ckpt_step_parts(const struct ckpt_step_parts *p)
{
	parts = *p;
	step_bytes = ckpt_parts_place(parts.parts, parts.count, sizeof(struct ckpt_step));
}

bool ckpt_step_end_reopen_locked(struct ckpt_step *step)
{
	if (!__atomic_exchange_n(&step->reopens, false, __ATOMIC_ACQ_REL))
		return false;
	ckpt_step_unref(
		__atomic_exchange_n(&step->base->reopened, NULL, __ATOMIC_ACQ_REL)); // not the last: the caller's
	return true;
}

// A step that is still reopened and what it is reopened as hold each other no longer.
static void let_go(struct ckpt_step *base)
{
	struct ckpt_step *now = ckpt_step_now(ckpt_step_ref(base));

	if (now != base)
		ckpt_step_end_reopen_locked(now);
	ckpt_step_unref(now);
}

struct ckpt_step *ckpt_step_now(struct ckpt_step *step)
{
	struct ckpt_step *now = NULL;

	if (!ckpt_step_is_reopened(step)) // nearly always
		return step;
	ckpt_lock_take(&step->store->lock);
	if (step->reopened)
		now = ckpt_step_ref(step->reopened);
	ckpt_lock_drop(&step->store->lock);
	if (!now)
		return step;
	ckpt_step_unref(step);
	return now;
}

static void chain_unref(struct ckpt_step *step)
{
	while (step) {
		struct ckpt_step *next = step->hash_next;

		let_go(step);
		ckpt_step_unref(step);
		step = next;
	}
}

void ckpt_step_table_free(struct ckpt_step_table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->bucket_count; i++) {
		chain_unref(t->buckets[i]);
		chain_unref(t->deleted[i]);
	}
	chain_unref(t->left);
	free(t->buckets);
	free(t->deleted);
	free(t);
}

// --- Objects ----------------------------------------------------------------------------------------------------------

static struct ckpt_step *new_locked(struct ckpt_store *s)
{
	struct ckpt_step *step = calloc(1, step_bytes);

	if (!step)
		return NULL;
	step->store = s;
	step->refs = 1;
	step->dirfd = -1;
	step->version = &ckpt_version_none;
	step->born.spare = malloc(sizeof(*step->born.spare));
	if (!step->born.spare) {
		free(step);
		return NULL;
	}
	ckpt_lock_init(&step->lock, CKPT_LOCK_STEP);
	pthread_cond_init(&step->changed, NULL);
	step->incarnation = ++s->steps->incarnations;
	ckpt_parts_init(parts.parts, parts.count, step);
	return step;
}

int ckpt_step_new(struct ckpt_store *s, struct ckpt_step **ret_step)
{
	LOCK_SCOPE(&s->lock);

	*ret_step = new_locked(s);
	return *ret_step ? 0 : -ENOMEM;
}

struct ckpt_step *ckpt_step_ref(struct ckpt_step *step)
{
	__atomic_add_fetch(&step->refs, 1, __ATOMIC_RELAXED);
	return step;
}

void ckpt_step_unref(struct ckpt_step *step)
{
	if (!step || __atomic_sub_fetch(&step->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	ckpt_lock_take(&step->store->lock);
	ckpt_step_forget_manifest_locked(step);
	ckpt_step_release_locked(step);
	ckpt_lock_drop(&step->store->lock);
	ckpt_parts_done(parts.parts, parts.count, step);
	if (step->dirfd >= 0)
		ckpt_sys.close(step->dirfd);
	ckpt_step_unref(step->into);
	ckpt_step_unref(step->base);
	ckpt_manifest_unref(step->manifest);
	ckpt_version_unref(step->version);
	free(step->born.spare);
	pthread_cond_destroy(&step->changed);
	ckpt_lock_done(&step->lock);
	free(step);
}

enum ckpt_step_state ckpt_step_state(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);
	return step->state;
}

struct ckpt_version *ckpt_step_version(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return ckpt_version_ref(step->version);
}

uint64_t ckpt_step_bytes(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->version->is.bytes;
}

void ckpt_step_set_version_locked(struct ckpt_step *step, const struct ckpt_summary *is)
{
	if (step->version == &ckpt_version_none)
		step->born = (struct ckpt_born){is->dir_ino, is->sequence, is->first_committed_ns, step->born.spare};
	ckpt_version_unref(step->version);
	step->version = ckpt_version_new(is, &step->born.spare);
}

static bool is_committing(enum ckpt_step_state state)
{
	return state == CKPT_STEP_COMMITTING;
}

void ckpt_step_set_state_locked(struct ckpt_step *step, enum ckpt_step_state state)
{
	ckpt_jobs_saves(step->store->jobs, is_committing(state) - is_committing(step->state));
	__atomic_store_n(&step->state, state, __ATOMIC_RELAXED);
}

// --- The table --------------------------------------------------------------------------------------------------------

// FNV-1a: names are short and chosen by the user's own framework, so a keyed hash would buy nothing.
static size_t bucket_of(const struct ckpt_step_table *t, const char *folder_id, const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (const char *p = folder_id; *p; p++)
		h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
	h = (h ^ '/') * UINT64_C(0x100000001b3);
	for (const char *p = name; *p; p++)
		h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
	return h & (t->bucket_count - 1);
}

static struct ckpt_step *find_locked(struct ckpt_step_table *t, const char *folder_id, const char *name)
{
	struct ckpt_step *step = t->buckets[bucket_of(t, folder_id, name)];

	while (step && (strcmp(step->name, name) || strcmp(step->folder_id, folder_id)))
		step = step->hash_next;
	return step;
}

static void rehash_locked(struct ckpt_step_table *t, struct ckpt_step **old, size_t old_count, struct ckpt_step **wider)
{
	for (size_t i = 0; i < old_count; i++) {
		struct ckpt_step *step = old[i];

		while (step) {
			struct ckpt_step *next = step->hash_next;
			struct ckpt_step **slot = &wider[bucket_of(t, step->folder_id, step->name)];

			step->hash_next = *slot;
			*slot = step;
			step = next;
		}
	}
	free(old);
}

// Growth is an optimisation: without memory for it the chains get longer.
static void grow_locked(struct ckpt_step_table *t)
{
	size_t old_count = t->bucket_count;
	struct ckpt_step **steps = t->buckets, **deleted = t->deleted;
	struct ckpt_step **wider = calloc(old_count * 4, sizeof(struct ckpt_step *));
	struct ckpt_step **wider_deleted = calloc(old_count * 4, sizeof(struct ckpt_step *));

	if (!wider || !wider_deleted) {
		free(wider);
		free(wider_deleted);
		return;
	}
	t->bucket_count = old_count * 4;
	rehash_locked(t, steps, old_count, t->buckets = wider);
	rehash_locked(t, deleted, old_count, t->deleted = wider_deleted);
}

static bool reserved_by_another_locked(const struct ckpt_step *step, const char *folder_id, const char *name)
{
	for (const struct ckpt_pending *p = step->store->steps->pending; p; p = p->next)
		if (p->step != step && !strcmp(p->name, name) && !strcmp(p->folder_id, folder_id))
			return true;
	return false;
}

bool ckpt_step_may_take_locked(const struct ckpt_step *step, const char *folder_id, const char *name)
{
	const struct ckpt_step *there = find_locked(step->store->steps, folder_id, name);

	return (!there || there == step) && !reserved_by_another_locked(step, folder_id, name);
}

int ckpt_step_reserve_locked(struct ckpt_step *step, const char *folder_id, const char *name)
{
	struct ckpt_step_table *t = step->store->steps;
	struct ckpt_step *there = find_locked(t, folder_id, name);
	struct ckpt_pending *p = step->pending;

	if (p)
		return strcmp(p->name, name) || strcmp(p->folder_id, folder_id) ? -EBUSY : 0;
	if ((there && there != step && !(step->reopens && there == step->base)) ||
	    reserved_by_another_locked(step, folder_id, name))
		return -EEXIST;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->step = step;
	snprintf(p->folder_id, sizeof(p->folder_id), "%s", folder_id);
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->next = t->pending;
	t->pending = step->pending = p;
	return 0;
}

void ckpt_step_release_locked(struct ckpt_step *step)
{
	struct ckpt_pending **slot = &step->store->steps->pending;

	if (!step->pending)
		return;
	while (*slot != step->pending)
		slot = &(*slot)->next;
	*slot = step->pending->next;
	free(TAKE_PTR(step->pending));
}

bool ckpt_step_is_called_locked(const struct ckpt_step *step, const char *folder_id, const char *name)
{
	const struct ckpt_pending *p = step->pending;

	return (!folder_id || !strcmp(folder_id, p ? p->folder_id : step->folder_id)) &&
	       (!name || !strcmp(name, p ? p->name : step->name));
}

int ckpt_step_insert_locked(struct ckpt_step *step, const char *folder_id, const char *name)
{
	struct ckpt_step_table *t = step->store->steps;
	struct ckpt_step **slot;
	int rc;

	if (find_locked(t, folder_id, name) || reserved_by_another_locked(step, folder_id, name))
		return -EEXIST;
	rc = ckpt_name_key(folder_id, name, step->key);
	if (rc)
		return rc;
	if (t->count >= t->bucket_count)
		grow_locked(t);
	snprintf(step->folder_id, sizeof(step->folder_id), "%s", folder_id);
	snprintf(step->name, sizeof(step->name), "%s", name);
	slot = &t->buckets[bucket_of(t, folder_id, name)];
	step->hash_next = *slot;
	*slot = ckpt_step_ref(step);
	t->count++;
	return 0;
}

static bool unchain(struct ckpt_step **slot, struct ckpt_step *step)
{
	while (*slot && *slot != step)
		slot = &(*slot)->hash_next;
	if (!*slot)
		return false;
	*slot = step->hash_next;
	step->hash_next = NULL;
	return true;
}

void ckpt_step_erase_locked(struct ckpt_step *step)
{
	struct ckpt_step_table *t = step->store->steps;
	size_t bucket = bucket_of(t, step->folder_id, step->name);

	if (!unchain(&t->buckets[bucket], step) && !unchain(&t->deleted[bucket], step) && !unchain(&t->left, step))
		return;
	t->count -= step->state != CKPT_STEP_LEFT;
	ckpt_step_unref(step);
}

int ckpt_step_unleave_locked(struct ckpt_step *step, const char *folder_id, const char *name)
{
	if (find_locked(step->store->steps, folder_id, name) || reserved_by_another_locked(step, folder_id, name))
		return -EEXIST;
	ckpt_step_erase_locked(step);
	return ckpt_step_insert_locked(step, folder_id, name);
}

void ckpt_step_forget_locked(struct ckpt_step *step)
{
	ckpt_step_erase_locked(step);
	LOCK_SCOPE(&step->lock);
	ckpt_step_set_state_locked(step, CKPT_STEP_GONE);
	pthread_cond_broadcast(&step->changed);
}

void ckpt_step_leave_locked(struct ckpt_step *step)
{
	struct ckpt_step_table *t = step->store->steps;

	step->hash_next = t->left;
	t->left = ckpt_step_ref(step);
	LOCK_SCOPE(&step->lock);
	ckpt_step_set_state_locked(step, CKPT_STEP_LEFT);
	pthread_cond_broadcast(&step->changed);
}

void ckpt_step_bury_locked(struct ckpt_step *step, uint32_t deleted_by, int64_t deleted_ns)
{
	struct ckpt_step_table *t = step->store->steps;
	struct ckpt_step **slot = &t->deleted[bucket_of(t, step->folder_id, step->name)];

	ckpt_step_erase_locked(step);
	step->hash_next = *slot;
	*slot = ckpt_step_ref(step);
	t->count++;
	LOCK_SCOPE(&step->lock);
	ckpt_step_set_state_locked(step, CKPT_STEP_DELETED);
	step->deleted_by = deleted_by;
	step->deleted_ns = deleted_ns;
	pthread_cond_broadcast(&step->changed);
}

uint32_t ckpt_step_versions_used_locked(const struct ckpt_store *s, const char *folder_id, const char *name)
{
	const struct ckpt_step *step = s->steps->deleted[bucket_of(s->steps, folder_id, name)];
	uint32_t used = 0;

	for (; step; step = step->hash_next)
		if (step->deleted_by > used && !strcmp(step->name, name) && !strcmp(step->folder_id, folder_id))
			used = step->deleted_by;
	return used;
}

struct ckpt_step *ckpt_step_find(struct ckpt_store *s, const char *folder_id, const char *name)
{
	LOCK_SCOPE(&s->lock);
	struct ckpt_step *step = find_locked(s->steps, folder_id, name);

	return step ? ckpt_step_ref(step) : NULL;
}

void ckpt_step_name(struct ckpt_step *step, struct ckpt_step_name *ret_name)
{
	LOCK_SCOPE(&step->store->lock);

	memcpy(ret_name->folder_id, step->folder_id, sizeof(ret_name->folder_id));
	memcpy(ret_name->name, step->name, sizeof(ret_name->name));
}

struct of_session {
	const char *session;
	struct ckpt_step *found;
};

static int match_session(void *arg, struct ckpt_step *step)
{
	struct of_session *o = arg;

	if (o->found || strcmp(step->session, o->session))
		return 0;
	o->found = ckpt_step_ref(step);
	return 0;
}

static struct ckpt_step *find_session(struct ckpt_store *s, const char *session, unsigned states)
{
	struct of_session o = {.session = session};
	LOCK_SCOPE(&s->lock);

	ckpt_step_each_locked(s, NULL, states, match_session, &o);
	return o.found;
}

struct ckpt_step *ckpt_step_of_session(struct ckpt_store *s, const char *session)
{
	return find_session(s, session, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED);
}

// Not by ckpt_step_each_locked: a step that is reopened or being removed is in no list, and yet it is committed.
struct ckpt_step *ckpt_step_live_session(struct ckpt_store *s, const char *session)
{
	LOCK_SCOPE(&s->lock);

	for (size_t i = 0; i < s->steps->bucket_count; i++)
		for (struct ckpt_step *step = s->steps->buckets[i]; step; step = step->hash_next)
			if (!strcmp(step->session, session) && ckpt_step_state(step) == CKPT_STEP_COMMITTED)
				return ckpt_step_ref(step);
	return NULL;
}

static int by_folder_and_name(const void *a, const void *b)
{
	const struct ckpt_step *x = *(struct ckpt_step *const *)a, *y = *(struct ckpt_step *const *)b;
	int order = strcmp(x->folder_id, y->folder_id);

	return order ? order : strcmp(x->name, y->name);
}

struct each {
	const char *folder_id;
	unsigned states;
	ckpt_step_fn *fn;
	void *arg;
};

static int each_in_chain(const struct each *e, struct ckpt_step *step)
{
	int rc = 0;

	for (; step && !rc; step = step->hash_next) {
		if (e->folder_id && strcmp(step->folder_id, e->folder_id))
			continue;
		struct ckpt_step *instead = __atomic_load_n(&step->reopened, __ATOMIC_ACQUIRE); // stays under this lock

		if (instead || parts.is_hidden(step))
			rc = instead && e->states & 1u << ckpt_step_state(instead) ? e->fn(e->arg, instead) : 0;
		else if (e->states & 1u << ckpt_step_state(step))
			rc = e->fn(e->arg, step);
	}
	return rc;
}

int ckpt_step_each_locked(struct ckpt_store *s, const char *folder_id, unsigned states, ckpt_step_fn *fn, void *arg)
{
	const struct each e = {folder_id, states, fn, arg};
	int rc = 0;

	for (size_t i = 0; i < s->steps->bucket_count && !rc; i++) {
		rc = each_in_chain(&e, s->steps->buckets[i]);
		if (!rc && states & 1u << CKPT_STEP_DELETED)
			rc = each_in_chain(&e, s->steps->deleted[i]);
	}
	return rc ? rc : each_in_chain(&e, s->steps->left);
}

int ckpt_step_each_left_locked(struct ckpt_store *s, ckpt_step_fn *fn, void *arg)
{
	const struct each e = {NULL, 1u << CKPT_STEP_LEFT, fn, arg};

	return each_in_chain(&e, s->steps->left);
}

struct gather {
	struct ckpt_step **steps;
	size_t count, cap;
	bool (*wants)(void *arg, struct ckpt_step *step); // NULL: all
	void *arg;
};

static int gather(void *arg, struct ckpt_step *step)
{
	struct gather *g = arg;
	int rc;

	if (g->wants && !g->wants(g->arg, step))
		return 0;
	rc = ckpt_grow((void **)&g->steps, &g->cap, g->count + 1, sizeof(struct ckpt_step *));
	if (!rc)
		g->steps[g->count++] = ckpt_step_ref(step);
	return rc;
}

static int by_commit(const void *a, const void *b)
{
	uint64_t x = (*(struct ckpt_step *const *)a)->born.sequence, y = (*(struct ckpt_step *const *)b)->born.sequence;

	return (x > y) - (x < y);
}

static int gather_sorted(struct ckpt_store *s, const char *folder_id, unsigned states, struct gather *g,
			 int (*order)(const void *a, const void *b), struct ckpt_step ***ret_steps, size_t *ret_count)
{
	int rc;

	ckpt_lock_take(&s->lock);
	rc = ckpt_step_each_locked(s, folder_id, states, gather, g);
	if (!rc && g->count)
		qsort(g->steps, g->count, sizeof(struct ckpt_step *), order);
	ckpt_lock_drop(&s->lock);
	if (rc) {
		ckpt_step_list_free(g->steps, g->count);
		return rc;
	}
	*ret_steps = g->steps;
	*ret_count = g->count;
	return 0;
}

int ckpt_step_list(struct ckpt_store *s, const char *folder_id, unsigned states, struct ckpt_step ***ret_steps,
		   size_t *ret_count)
{
	struct gather g = {0};

	return gather_sorted(s, folder_id, states, &g, by_folder_and_name, ret_steps, ret_count);
}

int ckpt_step_choose(struct ckpt_store *s, const char *folder_id, unsigned states,
		     bool (*wants)(void *arg, struct ckpt_step *step), void *arg, struct ckpt_step ***ret_steps,
		     size_t *ret_count)
{
	struct gather g = {.wants = wants, .arg = arg};

	return gather_sorted(s, folder_id, states, &g, by_commit, ret_steps, ret_count);
}

void ckpt_step_list_free(struct ckpt_step **steps, size_t count)
{
	for (size_t i = 0; i < count; i++)
		ckpt_step_unref(steps[i]);
	free(steps);
}

static bool is_stored(struct ckpt_step *step)
{
	enum ckpt_step_state state = ckpt_step_state(step);

	return state != CKPT_STEP_STAGED && state != CKPT_STEP_COMMITTING;
}

int ckpt_step_list_stored(struct ckpt_store *s, struct ckpt_step ***ret_steps, size_t *ret_count)
{
	struct gather g = {0};
	int rc = 0;

	ckpt_lock_take(&s->lock);
	for (size_t i = 0; i < s->steps->bucket_count && !rc; i++) {
		for (struct ckpt_step *step = s->steps->buckets[i]; step && !rc; step = step->hash_next)
			rc = is_stored(step) ? gather(&g, step) : 0;
		for (struct ckpt_step *step = s->steps->deleted[i]; step && !rc; step = step->hash_next)
			rc = gather(&g, step);
	}
	ckpt_lock_drop(&s->lock);
	if (rc) {
		ckpt_step_list_free(g.steps, g.count);
		return rc;
	}
	*ret_steps = g.steps;
	*ret_count = g.count;
	return 0;
}

static bool passes_none(struct ckpt_step *step __attribute__((unused)))
{
	return false;
}

bool ckpt_step_any(struct ckpt_store *s, const char *folder_id)
{
	return ckpt_step_any_but(s, folder_id, passes_none);
}

bool ckpt_step_any_but(struct ckpt_store *s, const char *folder_id, bool (*passes)(struct ckpt_step *step))
{
	LOCK_SCOPE(&s->lock);
	struct ckpt_step_table *t = s->steps;

	for (size_t i = 0; i < t->bucket_count; i++)
		for (struct ckpt_step *step = t->buckets[i]; step; step = step->hash_next)
			if (!strcmp(step->folder_id, folder_id) && !passes(step))
				return true;
	return false;
}

uint64_t *ckpt_step_sequence_locked(struct ckpt_store *s)
{
	return &s->steps->sequence;
}

struct ckpt_manifest_cache *ckpt_step_manifests_locked(struct ckpt_store *s)
{
	return &s->steps->manifests;
}
