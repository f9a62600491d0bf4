#include "core/cold/dedupe.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/step/store.h"

// packs_indexed says up to which reset of the index, plus 1, it knows all packs; 0: it does not. This process alone makes
// packs and removes them, so that it stays so.
//
// Packs come and go during a look, and the index is told of them meanwhile. So the look reads the index first, and then the store:
// a pack that is in the first list and not in the second is gone, and one that is in the second alone is put into the index, maybe once
// more. One that goes after that may stay in the index, until a read misses it.

#define LOOK_WAIT_NS INT64_C(200000000) // before it is asked whether to go on
#define TABLES_MAX 1024
#define CHUNKS_MAX 65536u // in them, about

struct packs {
	struct ckpt_pack *at;
	size_t count, cap;
};

static int add(struct packs *p, const struct ckpt_pack *pack)
{
	int rc = ckpt_grow((void **)&p->at, &p->cap, p->count + 1, sizeof(*p->at));

	if (!rc)
		p->at[p->count++] = *pack;
	return rc;
}

// Anything else there is no pack.
static int add_stored(void *arg, const char *key, const struct ckpt_object *object)
{
	struct ckpt_pack pack = {.bytes = object->bytes};

	return ckpt_pack_of_key(key, pack.id) ? add(arg, &pack) : 0;
}

struct indexed {
	struct packs whole, part;
};

static int add_indexed(void *arg, const struct ckpt_pack *pack, bool whole)
{
	struct indexed *in = arg;

	return add(whole ? &in->whole : &in->part, pack);
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct ckpt_pack *)a)->id, ((const struct ckpt_pack *)b)->id, CKPT_SHA256_LEN);
}

static bool has(const struct packs *p, const struct ckpt_pack *pack)
{
	const struct ckpt_pack *found =
		p->count ? bsearch(pack, p->at, p->count, sizeof(*p->at), by_id) : NULL; // by id in every list

	return found && found->bytes == pack->bytes;
}

// Tables of packs on their way into the index. One transaction for each pack would wait for the disk as often.
struct tables {
	struct ckpt_pack_chunks at[TABLES_MAX];
	size_t count, chunks;
};

static int put_tables(struct ckpt_store *s, struct tables *t, int rc)
{
	if (!rc && t->count)
		rc = ckpt_index_put_packs(s->index, t->at, t->count);
	while (t->count)
		free((void *)(uintptr_t)t->at[--t->count].chunks);
	t->chunks = 0;
	return rc;
}

// What cannot be read holds nothing that could be used.
static int add_table(struct ckpt_store *s, struct tables *t, const struct ckpt_pack *stored)
{
	struct ckpt_pack pack = *stored;
	struct ckpt_chunk *chunks;
	size_t count;
	int rc = ckpt_pack_table(s->objects, &pack, &chunks, &count);

	if (rc)
		return rc == -ENOMEM ? rc : 0;
	t->at[t->count++] = (struct ckpt_pack_chunks){pack, chunks, count};
	t->chunks += count;
	return t->count < TABLES_MAX && t->chunks < CHUNKS_MAX ? 0 : put_tables(s, t, 0);
}

// One may be there whose put failed, and that a power cut would take back. With one key the whole folder is made durable.
static int make_durable(struct ckpt_store *s, const struct packs *stored)
{
	char key[CKPT_PACK_KEY_MAX];

	if (!stored->count)
		return 0;
	ckpt_pack_key(stored->at->id, key);
	return ckpt_objects_sync(s->objects, key);
}

static int index_packs(struct ckpt_store *s, const struct packs *stored, const struct packs *known)
{
	struct tables *t = ckpt_calloc(1, sizeof(*t));
	int rc = t ? make_durable(s, stored) : -ENOMEM;

	for (size_t i = 0; i < stored->count && !rc; i++)
		if (!has(known, &stored->at[i]))
			rc = add_table(s, t, &stored->at[i]);
	if (t)
		rc = put_tables(s, t, rc);
	free(t);
	return rc;
}

// What is indexed and gone, or was not dropped to its end, first: it may be what another pack has.
static int compare(struct ckpt_store *s, const struct packs *stored, const struct indexed *indexed)
{
	struct packs gone = {0};
	int rc = 0;

	for (size_t i = 0; i < indexed->part.count && !rc; i++)
		rc = add(&gone, &indexed->part.at[i]);
	for (size_t i = 0; i < indexed->whole.count && !rc; i++)
		if (!has(stored, &indexed->whole.at[i]))
			rc = add(&gone, &indexed->whole.at[i]);
	if (!rc && gone.count) {
		qsort(gone.at, gone.count, sizeof(*gone.at), by_id);
		rc = ckpt_index_drop_packs(s->index, gone.at, gone.count);
	}
	free(gone.at);
	return rc ? rc : index_packs(s, stored, &indexed->whole);
}

static int look(struct ckpt_store *s)
{
	struct packs stored = {0};
	struct indexed indexed = {0};
	int rc = ckpt_index_each_pack(s->index, add_indexed, &indexed);

	if (!rc)
		rc = ckpt_objects_list(s->objects, "packs/", NULL, add_stored, &stored);
	if (!rc)
		rc = compare(s, &stored, &indexed);
	free(stored.at);
	free(indexed.whole.at);
	free(indexed.part.at);
	return rc;
}

// A damaged index is emptied, as by all who see it: the store says it all again.
static void see(struct ckpt_store *s, int rc)
{
	if (rc == -EBADMSG)
		(void)ckpt_index_reset(s->index);
}

static void set_known(struct ckpt_store *s, uint64_t indexed)
{
	__atomic_store_n(&ckpt_looked_of(s)->packs_indexed, indexed, __ATOMIC_RELAXED);
}

static bool is_known(const struct ckpt_store *s)
{
	return s->index &&
	       __atomic_load_n(&ckpt_looked_of(s)->packs_indexed, __ATOMIC_RELAXED) == ckpt_index_resets(s->index) + 1;
}

// It is known from the beginning, so that what fails meanwhile can say that it is not.
static int look_locked(struct ckpt_store *s)
{
	int rc = -EBADMSG;

	for (int tries = 0; tries < 2 && rc == -EBADMSG; tries++) {
		set_known(s, ckpt_index_resets(s->index) + 1); // another thread may reset it meanwhile
		rc = look(s);
		see(s, rc);
		if (rc)
			set_known(s, 0);
	}
	return rc;
}

void ckpt_dedupe_look(struct ckpt_store *s)
{
	if (!s->index || is_known(s) || !ckpt_lock_try_ns(&ckpt_looked_of(s)->lock, 0))
		return;
	(void)look_locked(s);
	ckpt_lock_drop(&ckpt_looked_of(s)->lock);
}

int ckpt_dedupe_rebuild(struct ckpt_store *s, bool (*go_on)(void *arg), void *arg)
{
	int rc;

	if (!s->index)
		return -ENOENT;
	while (!ckpt_lock_try_ns(&ckpt_looked_of(s)->lock, LOOK_WAIT_NS))
		if (go_on && !go_on(arg))
			return -EINTR;
	rc = ckpt_index_reset(s->index);
	if (!rc)
		(void)look_locked(s);
	ckpt_lock_drop(&ckpt_looked_of(s)->lock);
	return rc;
}

bool ckpt_dedupe_find(struct ckpt_store *s, const struct ckpt_chunk *chunk, enum ckpt_codec_id with, bool has_base,
		      struct ckpt_chunk *ret_found, struct ckpt_pack *ret_pack)
{
	int rc = s->index ? ckpt_index_chunk(s->index, chunk->id, ret_found, ret_pack) : -ENOENT;

	see(s, rc);
	if (rc || ret_found->bytes != chunk->bytes)
		return false;
	return !ckpt_codec_base_bytes(ret_found->how.codec, 1) || (has_base && ret_found->how.codec == with);
}

bool ckpt_dedupe_read(struct ckpt_store *s, const struct ckpt_chunk *found, const struct ckpt_pack *pack,
		      struct ckpt_codec *codec, const void *base, void *plain)
{
	int rc = ckpt_pack_read(s->objects, pack, found, codec, base, plain);

	if (rc == -ENOENT)
		set_known(s, 0); // it went during a look
	return !rc;
}

void ckpt_dedupe_add(struct ckpt_store *s, const struct ckpt_pack *pack, const struct ckpt_chunk *chunks, size_t count)
{
	int rc = !s->index ? 0 : chunks ? ckpt_index_put_pack(s->index, pack, chunks, count) : -ENOMEM;

	see(s, rc);
	if (rc)
		set_known(s, 0);
}

void ckpt_dedupe_forget(struct ckpt_store *s, const struct ckpt_pack *packs, size_t count)
{
	int rc = s->index ? ckpt_index_drop_packs(s->index, packs, count) : 0;

	see(s, rc);
	if (rc)
		set_known(s, 0);
}

static void looked_init(void *store)
{
	ckpt_lock_init(&ckpt_looked_of(store)->lock, CKPT_LOCK_LOOK);
}

static void looked_done(void *store)
{
	ckpt_lock_done(&ckpt_looked_of(store)->lock);
}

struct ckpt_part ckpt_looked_part = {.bytes = sizeof(struct ckpt_looked), .init = looked_init, .done = looked_done};
