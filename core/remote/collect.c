#include "core/remote/collect.h"

#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/cold/pack.h"
#include "core/remote/collect_live.h"
#include "core/remote/collect_remove.h"
#include "core/remote/collect_repack.h"
#include "core/remote/near.h"
#include "core/remote/remote.h"
#include "core/state/act.h"

#include <stdio.h>
#include <string.h>

#define TRIES 64 // entries of others that come first
#define SETTLE_TRIES 8
#define SETTLE_NS INT64_C(1000000000)

// --- What is there ------------------------------------------------------------------------------------------------------

// The store's clock, by an object that is put for this; and whether objects may be removed.
static int read_clock(struct ckpt_collecting *c)
{
	char uuid[CKPT_UUID_LEN + 1], key[sizeof("probe/") + CKPT_UUID_LEN];
	struct ckpt_object object;
	int rc = ckpt_uuid_make(uuid), gone;

	if (rc)
		return rc;
	snprintf(key, sizeof(key), "probe/%s", uuid);
	rc = ckpt_objects_put(c->there, key, "clock", 5, NULL);
	if (!rc)
		rc = ckpt_objects_head(c->there, key, &object);
	gone = ckpt_objects_remove(c->there, key);
	if (!rc)
		rc = gone == -ENOENT ? 0 : gone;
	if (rc)
		return ckpt_collect_fail(c, rc, "an object cannot be put and removed: %s", strerror(-rc));
	c->now_ns = object.mtime_ns;
	return 0;
}

static int add(struct ckpt_collect_list *list, const uint8_t *name, const struct ckpt_object *object)
{
	int rc = ckpt_grow((void **)&list->at, &list->cap, list->count + 1, sizeof(*list->at));
	struct ckpt_collect_object *o = rc ? NULL : &list->at[list->count++];

	if (rc)
		return rc;
	*o = (struct ckpt_collect_object){.bytes = object->bytes, .mtime_ns = object->mtime_ns};
	memcpy(o->name, name, sizeof(o->name));
	return 0;
}

// A key of another form is not ours to remove.
static int add_pack(void *arg, const char *key, const struct ckpt_object *object)
{
	struct ckpt_collecting *c = arg;
	uint8_t name[CKPT_SHA256_LEN];

	if (!ckpt_collect_goes_on(c))
		return -EINTR;
	return ckpt_pack_of_key(key, name) ? add(&c->packs, name, object) : 0;
}

static int add_manifest(void *arg, const char *key, const struct ckpt_object *object)
{
	struct ckpt_collecting *c = arg;
	uint8_t name[CKPT_SHA256_LEN];

	if (!ckpt_collect_goes_on(c))
		return -EINTR;
	if (strlen(key) != strlen("m/") + CKPT_SHA256_HEX_LEN || ckpt_unhex(key + 2, sizeof(name), name))
		return 0;
	return add(&c->manifests, name, object);
}

static int list_objects(struct ckpt_collecting *c)
{
	int rc = ckpt_objects_list(c->there, "packs/", NULL, add_pack, c);

	if (!rc)
		rc = ckpt_objects_list(c->there, "m/", NULL, add_manifest, c);
	return rc && rc != -EINTR ? ckpt_collect_fail(c, rc, "the objects cannot be listed: %s", strerror(-rc)) : rc;
}

typedef void object_fn(struct ckpt_collecting *c, struct ckpt_collect_object *o);

static void each(struct ckpt_collecting *c, object_fn *fn)
{
	for (size_t i = 0; i < c->packs.count; i++)
		fn(c, &c->packs.at[i]);
	for (size_t i = 0; i < c->manifests.count; i++)
		fn(c, &c->manifests.at[i]);
}

// --- Condemning ---------------------------------------------------------------------------------------------------------

static void choose(struct ckpt_collecting *c, struct ckpt_collect_object *o)
{
	o->goes = !o->live && !o->condemned && !ckpt_collect_is_young(c, o);
}

struct weights {
	uint64_t all, goes, unnamed; // bytes: of all; of what goes; of that without what the log has named
};

static void weigh_list(const struct ckpt_collect_list *list, struct weights *w)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct ckpt_collect_object *o = &list->at[i];

		w->all += o->bytes;
		w->goes += o->goes ? o->bytes : 0;
		w->unnamed += o->goes && !o->was_named ? o->bytes : 0;
	}
}

static struct weights weigh(const struct ckpt_collecting *c)
{
	struct weights w = {0};

	weigh_list(&c->packs, &w);
	weigh_list(&c->manifests, &w);
	return w;
}

// The log is read from its beginning only where it matters.
static int brake(struct ckpt_collecting *c)
{
	struct weights w = weigh(c);
	int rc;

	if (c->how->force || w.goes <= w.all / 2)
		return 0;
	rc = ckpt_collect_mark_named(c);
	w = weigh(c);
	if (rc || w.unnamed <= w.all / 2)
		return rc;
	return ckpt_collect_fail(c, -EPERM, "%llu of %llu bytes would go which no entry of the log has ever named",
				 (unsigned long long)w.unnamed, (unsigned long long)w.all);
}

// As many as one act may name; what it names has the entry as its own once that is there.
struct batch {
	uint8_t *names;
	struct ckpt_collect_object *objects[CKPT_ACT_OBJECTS_MAX];
	uint32_t pack_count, count;
};

static void batch_free(struct batch **b)
{
	if (*b)
		free((*b)->names);
	free(*b);
}

static void take(struct batch *b, const struct ckpt_collect_list *list)
{
	for (size_t i = 0; i < list->count && b->count < CKPT_ACT_OBJECTS_MAX; i++)
		if (list->at[i].goes) {
			memcpy(b->names + (size_t)b->count * CKPT_SHA256_LEN, list->at[i].name, CKPT_SHA256_LEN);
			b->objects[b->count++] = &list->at[i];
		}
}

static struct batch *next_batch(struct ckpt_collecting *c)
{
	struct batch *b = ckpt_calloc(1, sizeof(*b));

	if (b)
		b->names = malloc((size_t)CKPT_ACT_OBJECTS_MAX * CKPT_SHA256_LEN);
	if (!b || !b->names) {
		batch_free(&b);
		return NULL;
	}
	take(b, &c->packs);
	b->pack_count = b->count;
	take(b, &c->manifests);
	return b;
}

static int pass(void *arg __attribute__((unused)), const struct ckpt_log_entry *entry __attribute__((unused)))
{
	return 0;
}

static int settle(struct ckpt_log *log)
{
	int rc = ckpt_log_settle(log);

	for (int i = 0; i < SETTLE_TRIES && rc && rc != -ENOENT && rc != -EEXIST; i++) {
		ckpt_sys.sleep_ns(SETTLE_NS);
		rc = ckpt_log_settle(log);
	}
	return rc;
}

// Behind c->at, which follows. -EEXIST: another entry is there, or nobody knows, and so it is read what is.
static int append(struct ckpt_collecting *c, struct ckpt_log *log, const struct batch *b)
{
	const struct ckpt_act a = {.kind = CKPT_ACT_CONDEMN,
				   .objects = b->names,
				   .pack_count = b->pack_count,
				   .manifest_count = b->count - b->pack_count};
	struct ckpt_operation op = {.kind = CKPT_ACT_CONDEMN, .required = true, .actor = ckpt_actor_get()};
	CLEANUP_FREE void *body = NULL;
	int rc = ckpt_act_encode(&a, &body, &op.len);

	op.body = body;
	memcpy(op.node, ckpt_remote_node(*ckpt_remote_of(c->store)), CKPT_UUID_LEN + 1);
	if (!rc)
		rc = ckpt_sys.random(op.nonce, sizeof(op.nonce));
	if (!rc)
		rc = ckpt_log_append(log, &op, 1, false);
	if (!ckpt_log_is_settled(log))
		rc = settle(log);
	if (rc == -ENOENT || rc == -EAGAIN)
		rc = -EEXIST;
	if (rc)
		return rc;
	c->at = ckpt_log_position(log);
	for (uint32_t i = 0; i < b->count; i++) {
		b->objects[i]->condemned = c->at.seq;
		b->objects[i]->goes = false;
		ckpt_collect_count_object(&c->done->condemned, b->objects[i]);
	}
	return 0;
}

static int append_all(struct ckpt_collecting *c)
{
	bool word = c->how->leaves_word;
	struct ckpt_log *log;
	int rc = ckpt_log_new(c->there, c->store->id, ckpt_remote_node(*ckpt_remote_of(c->store)),
			      c->at.seq ? &c->at : NULL, false, pass, NULL, &log);

	while (!rc) {
		CLEANUP(batch_free) struct batch *b = next_batch(c);

		rc = !b ? -ENOMEM : ckpt_collect_goes_on(c) ? 0 : -EINTR;
		if (rc || (!b->count && !word))
			break;
		rc = append(c, log, b);
		word = false;
	}
	ckpt_log_free(log);
	return rc;
}

static void count_what_goes(struct ckpt_collecting *c, struct ckpt_collect_object *o)
{
	if (o->goes)
		ckpt_collect_count_object(&c->done->condemned, o);
}

// The needed objects are found for the place where the CONDEMN then stands.
static int try_condemn(struct ckpt_collecting *c)
{
	int rc = ckpt_collect_mark_live(c);

	if (rc)
		return rc;
	each(c, choose);
	rc = brake(c);
	if (!rc && c->how->dry_run)
		each(c, count_what_goes);
	return rc || c->how->dry_run ? rc : append_all(c);
}

static int condemn(struct ckpt_collecting *c)
{
	int rc = try_condemn(c);

	for (int i = 0; i < TRIES && rc == -EEXIST; i++) {
		rc = ckpt_remote_read_to(*ckpt_remote_of(c->store), c->at.seq + 1);
		if (!rc)
			rc = ckpt_collect_goes_on(c) ? try_condemn(c) : -EINTR;
	}
	rc = rc == -EEXIST ? -EAGAIN : rc;
	return rc && rc != -EINTR && !*c->done->why
		       ? ckpt_collect_fail(c, rc, "what is garbage cannot be condemned: %s", strerror(-rc))
		       : rc;
}

// --- The rest ------------------------------------------------------------------------------------------------------------

static void count_rest(struct ckpt_collecting *c, struct ckpt_collect_object *o)
{
	if (o->live)
		ckpt_collect_count_object(&c->done->live, o);
	else if (!o->condemned && !o->goes)
		ckpt_collect_count_object(&c->done->young, o);
}

// Without the right to list them a rule of the bucket may do it.
static int give_up_uploads(struct ckpt_collecting *c)
{
	int rc = c->how->dry_run
			 ? 0
			 : ckpt_objects_abort_uploads(c->there, c->now_ns - CKPT_COLLECT_UPLOADS_NS, &c->done->uploads);

	return rc && rc != -EACCES
		       ? ckpt_collect_fail(c, rc, "uploads that nobody ended cannot be given up: %s", strerror(-rc))
		       : 0;
}

// --- The act ------------------------------------------------------------------------------------------------------------

static int collect(struct ckpt_collecting *c)
{
	int rc = read_clock(c);

	if (!rc)
		rc = list_objects(c);
	if (!rc)
		rc = ckpt_collect_count_use(c);
	if (!rc)
		rc = condemn(c);
	if (rc)
		return rc;
	each(c, count_rest);
	rc = ckpt_collect_remove(c);
	if (!rc)
		rc = give_up_uploads(c);
	return rc ? rc : ckpt_collect_repack(c);
}

int ckpt_collect(struct ckpt_store *s, const struct ckpt_collect_how *how, struct ckpt_collect_done *ret_done)
{
	struct ckpt_collecting c = {.store = s, .how = how, .done = ret_done};
	int rc;

	*ret_done = (struct ckpt_collect_done){0};
	if (!*ckpt_remote_of(s))
		return ckpt_collect_fail(&c, -EREMOTE, "the store has no bucket");
	if (!s->writable)
		return ckpt_collect_fail(&c, -EROFS, "the store is open for reading");
	c.there = ckpt_near_there(s->objects);
	rc = collect(&c);
	ckpt_keys_done(&c.read);
	ckpt_pack_use_done(&c.use);
	free(c.times);
	free(c.packs.at);
	free(c.manifests.at);
	return rc;
}

const char *ckpt_collect_hint(int error)
{
	switch (error) {
	case -EPERM:
		return "if this is right, run it again with --force";
	case -EBADMSG:
	case -ENOTSUP:
		return "nothing was removed; `ckptfs verify` says what is damaged";
	case -EACCES:
		return "look at the right to delete objects of the bucket";
	case -EAGAIN:
	case -ETIMEDOUT:
		return "run it again later";
	default:
		return NULL;
	}
}

static json_t *count_json(const struct ckpt_collect_count *n)
{
	return json_pack("{s:I, s:I}", "objects", (json_int_t)n->objects, "bytes", (json_int_t)n->bytes);
}

char *ckpt_collect_json(const struct ckpt_collect_done *d)
{
	int64_t seconds = (d->waiting_ns + 999999999) / 1000000000;

	ckpt_json_begin();
	return ckpt_json_dump(json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o}", "live", count_json(&d->live),
					"young", count_json(&d->young), "condemned", count_json(&d->condemned),
					"deleted", count_json(&d->deleted), "waiting", count_json(&d->waiting),
					"waiting_seconds", (json_int_t)seconds, "uploads", (json_int_t)d->uploads,
					"half_dead", count_json(&d->half_dead), "repacked", count_json(&d->repacked)),
			      JSON_COMPACT);
}
