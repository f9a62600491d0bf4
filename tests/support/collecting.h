// Nodes of one remote, here a directory that they share, and what they do beside a collection of its garbage, for suites that include this.
#pragma once

#include "tests/support/packed.h"
#include "tests/support/save.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/remote/collect.h"
#include "core/remote/near.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/save/delete.h"
#include "core/state/condemned.h"
#include "core/state/shared.h"
#include "core/store/open.h"

#include <stdio.h>
#include <stdlib.h>

static char remote_dir[PATH_MAX], url[PATH_MAX + 8];

static const struct ckpt_collect_how at_once = {0}, an_hour = {.delay_ns = CKPT_COLLECT_DELAY_NS},
				     by_force = {.force = true};

static inline void setup(void)
{
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
}

// --- Nodes --------------------------------------------------------------------------------------------------------------

struct node {
	char dir[PATH_MAX];
	struct ckpt_store *store;
	bool works; // behind
};

static inline void open_node(struct node *n)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	if (!*n->dir)
		ckpt_temp_dir(n->dir);
	setenv("CKPTFS_WORK_DIR", n->dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &n->store));
}

static inline void close_node(struct node *n)
{
	ckpt_store_rest(n->store);
	ckpt_save_settle_all(n->store);
	ckpt_store_close(n->store);
	n->store = NULL;
	n->works = false;
}

static inline struct ckpt_objects *there(const struct node *n)
{
	return ckpt_near_there(n->store->objects);
}

static inline struct ckpt_remote *remote(const struct node *n)
{
	return *ckpt_remote_of(n->store);
}

// All that waits is pushed. It goes on pushing behind afterwards.
static inline void push(struct node *n)
{
	struct ckpt_remote_queue q;
	unsigned tries = 0;

	if (!n->works)
		ck_ok(ckpt_store_work_behind(n->store));
	n->works = true;
	do {
		ck_assert_uint_lt(tries++, 3000);
		ckpt_remote_wake(remote(n));
		ckpt_sys.sleep_ns(10000000);
		ckpt_remote_queue(remote(n), &q);
	} while (q.steps || q.files);
}

// The same, and the node is closed then: it reads and pushes nothing until it is opened again.
static inline void push_and_close(struct node *n)
{
	push(n);
	close_node(n);
}

static inline int look_at_end(void *arg, const struct ckpt_state *state)
{
	*(uint64_t *)arg = ckpt_state_remote(state).seq;
	return 0;
}

static inline int look_at_condemn(void *arg, const struct ckpt_state *state)
{
	*(uint64_t *)arg = ckpt_state_last_condemn(state);
	return 0;
}

static inline uint64_t position(const struct node *n)
{
	uint64_t seq;

	(void)ckpt_journal_look(n->store->journal, look_at_end, &seq);
	return seq;
}

static inline uint64_t last_condemn(const struct node *n)
{
	uint64_t seq;

	(void)ckpt_journal_look(n->store->journal, look_at_condemn, &seq);
	return seq;
}

// --- The remote ---------------------------------------------------------------------------------------------------------

struct tally {
	size_t objects;
	uint64_t bytes;
};

static inline int tally(void *arg, const char *key, const struct ckpt_object *object)
{
	struct tally *t = arg;

	(void)key;
	t->objects++;
	t->bytes += object->bytes;
	return 0;
}

static inline size_t count(const struct node *n, const char *prefix)
{
	struct tally t = {0};

	ck_ok(ckpt_objects_list(there(n), prefix, NULL, tally, &t));
	return t.objects;
}

static inline bool has_pack(const struct node *n, const struct ckpt_pack *pack)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;

	ckpt_pack_key(pack->id, key);
	return !ckpt_objects_head(there(n), key, &object);
}

// On the node's disk.
static inline bool is_here(const struct node *n, const struct ckpt_pack *pack)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;

	ckpt_pack_key(pack->id, key);
	return !ckpt_objects_head(ckpt_near_here(n->store->objects), key, &object);
}

static inline struct ckpt_collect_done collect(const struct node *n, const struct ckpt_collect_how *how)
{
	struct ckpt_collect_done done;
	int rc = ckpt_collect(n->store, how, &done);

	ck_assert_msg(!rc, "%s: %s", strerror(-rc), done.why);
	return done;
}

// A pack that nobody names.
static inline void put_orphan(const struct node *n, uint8_t name, size_t len)
{
	CLEANUP_FREE void *data = calloc(1, len);
	uint8_t id[CKPT_SHA256_LEN] = {name};
	char key[CKPT_PACK_KEY_MAX];

	ckpt_pack_key(id, key);
	ck_ok(ckpt_objects_put(there(n), key, data, len, NULL));
}

static inline void expire(struct ckpt_store *s, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_delete(step));
	ck_ok(ckpt_expire(step));
	ckpt_step_unref(step);
}

static inline void save(struct ckpt_store *s, const char *name, const char *text)
{
	ckpt_step_unref(ckpt_packed_cooled(s, name, &text, 1));
}

static inline struct ckpt_pack place(struct ckpt_store *s, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;

	ck_assert_ptr_nonnull(step);
	pack = ckpt_packed_place(step, "0", &chunk);
	ckpt_step_unref(step);
	return pack;
}

static inline void check(struct ckpt_store *s, const char *name, const char *text)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_packed_read(step, "0", text));
	ckpt_step_unref(step);
}

// By a node that has nothing but what is in the remote.
static inline void check_by_another(const char *name, const char *text)
{
	struct node other = {0};

	open_node(&other);
	check(other.store, name, text);
	close_node(&other);
}

// --- Saved steps --------------------------------------------------------------------------------------------------------

#define ALL ((1u << CKPT_SAVE_STEPS) - 1)
#define MANY (1u << CKPT_SAVE_MANY)
#define LARGE (1u << CKPT_SAVE_LARGE)

static inline void check_saved(struct ckpt_store *s, unsigned which)
{
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_step *step = ckpt_save_find(s, i);

		ck_assert_int_eq(step != NULL, (which >> i) & 1);
		if (step)
			ckpt_save_check_files(step, i);
		ckpt_step_unref(step);
	}
}

static inline void delete_saved(struct ckpt_store *s, unsigned i)
{
	struct ckpt_step *step = ckpt_save_find(s, i);

	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
}

static inline void save_all(struct node *n)
{
	open_node(n);
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++)
		ckpt_step_unref(ckpt_save_one(n->store, i));
	push(n);
}

// --- Beside a collection ------------------------------------------------------------------------------------------------

// Something that happens when a node is about to put a key with this beginning the first time.
static struct hook {
	struct ckpt_objects_ops ops;
	const struct ckpt_objects_ops *below;
	const char *prefix;
	void (*act)(void *arg);
	void *arg;
} hook;

static inline int hooked_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
			     struct ckpt_object *ret_object)
{
	void (*act)(void *arg) = hook.act;

	if (act && !strncmp(key, hook.prefix, strlen(hook.prefix))) {
		act(hook.arg);
		__atomic_store_n(&hook.act, NULL, __ATOMIC_RELEASE);
	}
	return hook.below->put(o, key, data, len, frees, ret_object);
}

static inline void hook_put(const struct node *n, const char *prefix, void (*act)(void *arg), void *arg)
{
	hook = (struct hook){.ops = *there(n)->ops, .below = there(n)->ops, .prefix = prefix, .act = act, .arg = arg};
	hook.ops.put = hooked_put;
	there(n)->ops = &hook.ops;
}

static inline void unhook(const struct node *n)
{
	ck_assert(!hook.act); // it has happened
	there(n)->ops = hook.below;
}

#define TEXT "a text that two steps have, one after the other"

// Node a has a pack here that nobody needs in the remote any more; a step with the same text would name it.
static inline void leave_garbage(struct node *a, struct ckpt_pack *ret_pack)
{
	open_node(a);
	save(a->store, "1", TEXT);
	save(a->store, "2", "another text");
	*ret_pack = place(a->store, "1");
	push(a);
	expire(a->store, "1");
	push_and_close(a);
}

static inline void save_again(struct node *n)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1, .keeps_raw = true};
	const char *text = TEXT;
	struct ckpt_tier_done done;
	struct ckpt_step *step;

	open_node(n);
	step = ckpt_packed_sealed(n->store, "3", &text, 1);
	ck_ok(ckpt_cool(step, &how, &done));
	ck_assert(ckpt_packed_is_raw(step, "0"));
	ckpt_step_unref(step);
}

static inline void push_of(void *arg)
{
	push(arg);
}
struct from {
	struct node *node;
	struct ckpt_collect_done done;
};

static inline void collect_from(void *arg)
{
	struct from *f = arg;

	f->done = collect(f->node, &by_force);
}
