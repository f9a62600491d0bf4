// Condemned objects go (collect.h, step 4), several at the same time where each answer takes long. Every store knows how to remove one object. A
// request for many is left out: some answer it with errors, or not at all.
#include "core/remote/collect_remove.h"

#include "core/base/log.h"
#include "core/base/many.h"
#include "core/base/util.h"
#include "core/cold/pack.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define AT_ONCE 16u
#define IN_VAIN_MAX 16u // failures without a success between them: the store does not answer any more
#define NOT_TRIED 1

struct removal {
	const struct ckpt_collect_object *object;
	bool is_pack;
	int rc;
};

struct removing {
	struct ckpt_collecting *c;
	struct removal *at;
	size_t count, cap;
	_Atomic uint64_t removed_bytes; // that nobody was told of yet
	_Atomic unsigned in_vain;
};

static void key_of(const struct removal *r, char ret_key[CKPT_PACK_KEY_MAX])
{
	if (r->is_pack) {
		ckpt_pack_key(r->object->name, ret_key);
		return;
	}
	strcpy(ret_key, "m/");
	ckpt_hex(r->object->name, sizeof(r->object->name), ret_key + strlen(ret_key));
}

// --- Which of them ------------------------------------------------------------------------------------------------------

static int add(struct removing *r, bool is_pack, const struct ckpt_collect_object *o)
{
	int rc = ckpt_grow((void **)&r->at, &r->cap, r->count + 1, sizeof(*r->at));

	if (!rc)
		r->at[r->count++] = (struct removal){.object = o, .is_pack = is_pack, .rc = NOT_TRIED};
	return rc;
}

static int add_or_wait(struct removing *r, bool is_pack, const struct ckpt_collect_object *o)
{
	struct ckpt_collecting *c = r->c;
	int64_t left_ns, put_ns;
	int rc = ckpt_collect_goes_on(c) ? ckpt_collect_entry_time(c, o->condemned, &put_ns) : -EINTR;

	if (rc)
		return rc;
	left_ns = c->how->delay_ns - (c->now_ns - put_ns);
	if (!c->how->delay_ns || left_ns <= 0)
		return add(r, is_pack, o);
	ckpt_collect_count_object(&c->done->waiting, o);
	c->done->waiting_ns = MAX(c->done->waiting_ns, left_ns);
	return 0;
}

// A needed object stays, whatever a CONDEMN says.
static int add_list(struct removing *r, const struct ckpt_collect_list *list, bool are_packs)
{
	int rc = 0;

	for (size_t i = 0; i < list->count && !rc; i++) {
		const struct ckpt_collect_object *o = &list->at[i];

		if (o->condemned && !o->live)
			rc = add_or_wait(r, are_packs, o);
	}
	return rc;
}

// --- Removing them --------------------------------------------------------------------------------------------------------

// An object that the store does not let go of, as by a legal hold, keeps no other, and says nothing of the store.
static void remove_one(void *arg, size_t i)
{
	struct removing *r = arg;
	struct removal *it = &r->at[i];
	char key[CKPT_PACK_KEY_MAX];

	if (atomic_load(&r->in_vain) >= IN_VAIN_MAX)
		return;
	key_of(it, key);
	it->rc = r->c->how->dry_run ? 0 : ckpt_objects_remove(r->c->there, key);
	if (it->rc == -ENOENT)
		it->rc = 0;
	if (!it->rc) {
		atomic_store(&r->in_vain, 0);
		atomic_fetch_add(&r->removed_bytes, it->object->bytes);
	} else if (it->rc != -EACCES) {
		atomic_fetch_add(&r->in_vain, 1);
	}
}

static bool go_on(void *arg)
{
	struct removing *r = arg;
	const struct ckpt_collect_how *how = r->c->how;
	uint64_t bytes = atomic_exchange(&r->removed_bytes, 0);

	return !how->go_on || how->go_on(how->arg, bytes);
}

// --- Failures -------------------------------------------------------------------------------------------------------------

// Behind what stands in text, if there is room for it.
static bool add_text(char *text, size_t cap, const char *key, int rc)
{
	size_t len = strlen(text);

	if ((size_t)snprintf(text + len, cap - len, "%s%s: %s", len ? ", " : "", key, strerror(-rc)) < cap - len)
		return true;
	text[len] = '\0';
	return false;
}

// Each is in the log; the cause for people has as many as it has room for. The error of one that may pass goes before a refusal.
static int tell_failures(struct removing *r)
{
	char text[CKPT_COLLECT_WHY_MAX - 96] = "";
	size_t failed = 0, told = 0;
	int worst = 0;

	for (size_t i = 0; i < r->count; i++) {
		const struct removal *it = &r->at[i];
		char key[CKPT_PACK_KEY_MAX];

		if (!it->rc || it->rc == NOT_TRIED)
			continue;
		key_of(it, key);
		ckpt_log(CKPT_LOG_WARN, "gc: %s cannot be removed: %s", key, strerror(-it->rc));
		told += told == failed && add_text(text, sizeof(text), key, it->rc);
		failed++;
		worst = !worst || worst == -EACCES ? it->rc : worst;
	}
	if (!failed)
		return 0;
	if (failed > told)
		return ckpt_collect_fail(r->c, worst, "%zu of %zu objects cannot be removed: %s, and %zu more", failed,
					 r->count, text, failed - told);
	return ckpt_collect_fail(r->c, worst, "%zu of %zu objects cannot be removed: %s", failed, r->count, text);
}

int ckpt_collect_remove(struct ckpt_collecting *c)
{
	struct removing r = {.c = c};
	struct ckpt_many many = {
		.at_once = c->there->ops->is_far ? AT_ONCE : 1, .call = remove_one, .go_on = go_on, .arg = &r};
	bool ended;
	int rc = add_list(&r, &c->packs, true);

	if (!rc)
		rc = add_list(&r, &c->manifests, false);
	if (!rc) {
		many.count = r.count;
		ended = ckpt_many_run(&many);
		for (size_t i = 0; i < r.count; i++)
			if (!r.at[i].rc)
				ckpt_collect_count_object(&c->done->deleted, r.at[i].object);
		rc = tell_failures(&r);
		rc = ended ? rc : -EINTR;
	}
	free(r.at);
	return rc;
}
