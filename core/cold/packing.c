#include "core/cold/packing.h"

#include "core/base/util.h"
#include "core/codec/codec.h"
#include "core/cold/dedupe.h"
#include "core/cold/garbage.h"
#include "core/cold/pack_pins.h"
#include "core/state/condemned.h"
#include "core/step/step.h"
#include "core/step/store.h"

#include <assert.h>

struct ckpt_packing_place {
	struct ckpt_chunk chunk;
	bool used;
};

struct ckpt_packing_pack {
	struct ckpt_pack pack;
	bool put;    // by us; else it was there
	bool pinned; // until it was dropped
};

int ckpt_packing_init(struct ckpt_packing *p, struct ckpt_store *s, uint64_t pack_bytes)
{
	*p = (struct ckpt_packing){.store = s, .pack_bytes = pack_bytes};
	return ckpt_packing_ready(p);
}

int ckpt_packing_ready(struct ckpt_packing *p)
{
	int rc = p->codec ? 0 : ckpt_codec_new(&p->codec);

	return rc || p->writer ? rc : ckpt_pack_writer_new(&p->writer);
}

void ckpt_packing_rest(struct ckpt_packing *p)
{
	ckpt_pack_writer_free(TAKE_PTR(p->writer));
	ckpt_codec_free(TAKE_PTR(p->codec));
	p->making_count = 0;
}

void ckpt_packing_done(struct ckpt_packing *p)
{
	for (size_t i = 0; i < p->pack_count; i++)
		if (p->packs[i].pinned)
			ckpt_pack_unpin(*ckpt_pack_pins_of(p->store), p->packs[i].pack.id);
	ckpt_packing_rest(p);
	free(p->places);
	free(p->making);
	free(p->packs);
}

// --- The table ----------------------------------------------------------------------------------------------------------

static struct ckpt_packing_place *place_at(const struct ckpt_packing *p, const uint8_t *id)
{
	size_t at;

	memcpy(&at, id, sizeof(at));
	for (at &= p->place_cap - 1; p->places[at].used; at = (at + 1) & (p->place_cap - 1))
		if (!memcmp(p->places[at].chunk.id, id, CKPT_SHA256_LEN))
			break;
	return &p->places[at];
}

const struct ckpt_chunk *ckpt_packing_find(const struct ckpt_packing *p, const uint8_t id[CKPT_SHA256_LEN])
{
	const struct ckpt_packing_place *place = p->place_cap ? place_at(p, id) : NULL;

	return place && place->used ? &place->chunk : NULL;
}

static int grow_places(struct ckpt_packing *p)
{
	struct ckpt_packing grown = {.place_cap = MAX(p->place_cap * 2, (size_t)256)};

	grown.places = ckpt_calloc(grown.place_cap, sizeof(*grown.places));
	if (!grown.places)
		return -ENOMEM;
	for (size_t i = 0; i < p->place_cap; i++)
		if (p->places[i].used)
			*place_at(&grown, p->places[i].chunk.id) = p->places[i];
	free(p->places);
	p->places = grown.places;
	p->place_cap = grown.place_cap;
	return 0;
}

static int add_place(struct ckpt_packing *p, const struct ckpt_chunk *chunk)
{
	int rc = p->place_count * 2 < p->place_cap ? 0 : grow_places(p);

	if (rc)
		return rc;
	*place_at(p, chunk->id) = (struct ckpt_packing_place){.chunk = *chunk, .used = true};
	p->place_count++;
	return 0;
}

// --- Packs --------------------------------------------------------------------------------------------------------------

// Its row + 1; 0: it has none. Most often it is one of the last.
static uint32_t row_of(const struct ckpt_packing *p, const struct ckpt_pack *pack)
{
	size_t i = p->pack_count;

	while (i && memcmp(p->packs[i - 1].pack.id, pack->id, sizeof(pack->id)))
		i--;
	return (uint32_t)i;
}

// A pack for which there is room is pinned, so that it can be added.
static int pin(struct ckpt_packing *p, const uint8_t *name)
{
	int rc = ckpt_grow((void **)&p->packs, &p->pack_cap, p->pack_count + 1, sizeof(*p->packs));

	return rc ? rc : ckpt_pack_pin(*ckpt_pack_pins_of(p->store), name);
}

static void add_pinned(struct ckpt_packing *p, const struct ckpt_pack *pack, bool put)
{
	p->packs[p->pack_count++] = (struct ckpt_packing_pack){.pack = *pack, .put = put, .pinned = true};
}

// No new version names objects that the remote's log condemns.
static int pin_old(struct ckpt_packing *p, const struct ckpt_pack *pack)
{
	return ckpt_journal_pack_condemned(p->store->journal, pack->id) ? -ESTALE : pin(p, pack->id);
}

int ckpt_packing_hold(struct ckpt_packing *p, const struct ckpt_pack *pack)
{
	int rc = row_of(p, pack) ? 1 : pin_old(p, pack);

	if (!rc)
		add_pinned(p, pack, false);
	return MIN(rc, 0);
}

int ckpt_packing_use(struct ckpt_packing *p, const struct ckpt_chunk *chunk, const struct ckpt_pack *pack)
{
	struct ckpt_chunk used = *chunk;

	used.pack = row_of(p, pack);
	assert(used.pack);
	return add_place(p, &used);
}

// Without memory for its chunks others do not learn of them.
static void tell_others(const struct ckpt_packing *p, const struct ckpt_pack *pack)
{
	CLEANUP_FREE struct ckpt_chunk *chunks = ckpt_calloc(p->making_count, sizeof(*chunks));

	for (size_t i = 0; i < p->making_count && chunks; i++)
		chunks[i] = place_at(p, p->making[i])->chunk;
	ckpt_dedupe_add(p->store, pack, chunks, p->making_count);
}

int ckpt_packing_put(struct ckpt_packing *p)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	struct ckpt_pack pack;
	int rc;

	if (!p->writer || !ckpt_pack_writer_bytes(p->writer))
		return 0;
	memcpy(pack.id, ckpt_pack_writer_name(p->writer), sizeof(pack.id));
	rc = pin(p, pack.id); // a collection may see it before we know that it is there
	if (rc)
		return rc;
	rc = ckpt_pack_writer_put(p->writer, p->store->objects, &pack, sha256);
	if (rc) {
		ckpt_pack_unpin(*ckpt_pack_pins_of(p->store), pack.id);
		return rc;
	}
	add_pinned(p, &pack, true);
	p->put_bytes += pack.bytes;
	tell_others(p, &pack);
	if (p->told)
		p->told(p->told_arg, &pack, sha256);
	for (; p->making_count; p->making_count--)
		place_at(p, p->making[p->making_count - 1])->chunk.pack = (uint32_t)p->pack_count;
	return 0;
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct ckpt_pack *)a)->id, ((const struct ckpt_pack *)b)->id, CKPT_SHA256_LEN);
}

// Those that nobody else can have named.
static size_t condemn(struct ckpt_packing *p, struct ckpt_pack *ret_packs)
{
	size_t count = 0;

	for (size_t i = 0; i < p->pack_count; i++) {
		struct ckpt_packing_pack *own = &p->packs[i];

		if (!own->put || !own->pinned || !ckpt_pack_condemn_own(*ckpt_pack_pins_of(p->store), own->pack.id))
			continue;
		own->pinned = false;
		ret_packs[count++] = own->pack;
	}
	if (count)
		qsort(ret_packs, count, sizeof(*ret_packs), by_id);
	return count;
}

uint64_t ckpt_packing_drop(struct ckpt_packing *p)
{
	CLEANUP_FREE struct ckpt_pack *packs = ckpt_calloc(p->pack_count + 1, sizeof(*packs));
	size_t count = packs ? condemn(p, packs) : 0;
	uint64_t bytes = 0;

	if (!count)
		return 0;
	ckpt_dedupe_forget(p->store, packs, count);
	for (size_t i = 0; i < count; i++) {
		char key[CKPT_PACK_KEY_MAX];
		int rc;

		ckpt_pack_key(packs[i].id, key);
		rc = ckpt_objects_remove(p->store->objects, key);
		if (rc)
			ckpt_garbage_expect_pack(p->store, &packs[i]);
		else
			bytes += packs[i].bytes;
		ckpt_pack_condemned_end(*ckpt_pack_pins_of(p->store), packs[i].id, rc != 0);
	}
	return bytes;
}

void ckpt_packing_expect_garbage(const struct ckpt_packing *p)
{
	for (size_t i = 0; i < p->pack_count; i++)
		if (p->packs[i].put)
			ckpt_garbage_expect_pack(p->store, &p->packs[i].pack);
}

static bool names(const struct ckpt_manifest *m, const struct ckpt_pack *pack)
{
	struct ckpt_pack named;

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		ckpt_manifest_pack(m, i, &named);
		if (!memcmp(named.id, pack->id, sizeof(named.id)))
			return true;
	}
	return false;
}

void ckpt_packing_expect_unnamed(const struct ckpt_packing *p, const struct ckpt_manifest *m)
{
	for (size_t i = 0; i < p->pack_count; i++)
		if (p->packs[i].put && p->packs[i].pinned && !(m && names(m, &p->packs[i].pack)))
			ckpt_garbage_expect_pack(p->store, &p->packs[i].pack);
}

void ckpt_packing_leave(const struct ckpt_packing *p, struct ckpt_step *step)
{
	struct ckpt_unnamed *left = ckpt_unnamed_of(step);
	LOCK_SCOPE(&step->store->lock);
	struct ckpt_pack *unnamed =
		realloc(left->unnamed, (left->unnamed_count + p->pack_count + 1) * sizeof(*unnamed));

	if (!unnamed)
		return; // it is asked about, then
	left->unnamed = unnamed;
	for (size_t i = 0; i < p->pack_count; i++)
		if (p->packs[i].put)
			unnamed[left->unnamed_count++] = p->packs[i].pack;
}

int ckpt_packing_add(struct ckpt_packing *p, const struct ckpt_chunk *chunk, const void *stored, const void *plain)
{
	struct ckpt_chunk added = *chunk;
	int rc = ckpt_pack_writer_add(p->writer, &added, stored, plain);

	if (rc == -EFBIG) {
		rc = ckpt_packing_put(p);
		if (!rc)
			rc = ckpt_pack_writer_add(p->writer, &added, stored, plain);
	}
	added.pack = CKPT_PACKING_IN_THE_MAKING;
	if (!rc)
		rc = ckpt_grow((void **)&p->making, &p->making_cap, p->making_count + 1, sizeof(*p->making));
	if (!rc)
		rc = add_place(p, &added);
	if (!rc)
		memcpy(p->making[p->making_count++], chunk->id, CKPT_SHA256_LEN);
	if (!rc && ckpt_pack_writer_bytes(p->writer) >= p->pack_bytes)
		rc = ckpt_packing_put(p);
	return rc;
}

bool ckpt_packing_locate(const struct ckpt_packing *p, struct ckpt_chunk *chunk, struct ckpt_pack *pack)
{
	const struct ckpt_chunk *found = ckpt_packing_find(p, chunk->id);

	if (!found || found->pack == CKPT_PACKING_IN_THE_MAKING)
		return false;
	*chunk = *found;
	*pack = p->packs[found->pack - 1].pack;
	return true;
}

static void unnamed_done(void *step)
{
	free(ckpt_unnamed_of(step)->unnamed);
}

struct ckpt_part ckpt_unnamed_part = {.bytes = sizeof(struct ckpt_unnamed), .done = unnamed_done};
