#include "core/save/pack_hold.h"

#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/cold/pack_pins.h"
#include "core/state/condemned.h"
#include "core/step/store.h"

struct ckpt_held_pack {
	uint8_t id[CKPT_SHA256_LEN];
};

static int hold_pack(struct ckpt_store *s, const struct ckpt_pack *pack)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;
	int rc;

	if (ckpt_journal_pack_condemned(s->journal, pack->id))
		return -ENODATA; // it is gone from the remote, or about to go
	rc = ckpt_pack_pin(*ckpt_pack_pins_of(s), pack->id);
	if (rc)
		return rc == -ESTALE ? -ENODATA : rc;
	ckpt_pack_key(pack->id, key);
	rc = ckpt_objects_head(s->objects, key, &object);
	if (rc)
		ckpt_pack_unpin(*ckpt_pack_pins_of(s), pack->id);
	return rc == -ENOENT ? -ENODATA : rc;
}

static int hold_once(struct ckpt_pack_hold *h, const struct ckpt_manifest *m, uint32_t row)
{
	struct ckpt_pack pack;
	int rc;

	ckpt_manifest_pack(m, row, &pack);
	for (size_t i = 0; i < h->pack_count; i++)
		if (!memcmp(h->packs[i].id, pack.id, CKPT_SHA256_LEN))
			return 0;
	rc = ckpt_grow((void **)&h->packs, &h->pack_cap, h->pack_count + 1, sizeof(*h->packs));
	if (!rc)
		rc = hold_pack(h->store, &pack);
	if (!rc)
		memcpy(h->packs[h->pack_count++].id, pack.id, CKPT_SHA256_LEN);
	return rc;
}

int ckpt_pack_hold_add(struct ckpt_pack_hold *h, struct ckpt_manifest *m)
{
	int rc = ckpt_grow((void **)&h->held, &h->cap, h->count + 1, sizeof(struct ckpt_manifest *));

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m) && !rc; i++)
		rc = hold_once(h, m, i);
	if (!rc)
		h->held[h->count++] = ckpt_manifest_ref(m);
	return rc;
}

// No deeper than a manifest that was parsed may be.
static void mark_packs(const struct ckpt_manifest *m, const struct ckpt_chunk *chunk, bool *rows)
{
	struct ckpt_chunk base;

	if (!chunk->pack)
		return;
	rows[chunk->pack - 1] = true;
	for (uint32_t i = 0; i < chunk->base_count; i++) {
		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		mark_packs(m, &base, rows);
	}
}

int ckpt_pack_hold_file(struct ckpt_pack_hold *h, const struct ckpt_manifest *m, uint32_t index)
{
	uint32_t count = ckpt_manifest_pack_count(m);
	CLEANUP_FREE bool *rows = ckpt_calloc(count, sizeof(*rows));
	struct ckpt_seal seal = {0};
	int rc = rows || !count ? 0 : -ENOMEM;

	if (!rc && !ckpt_manifest_seal(m, index, &seal))
		return -ENODATA;
	for (uint32_t i = 0; i < seal.count && !rc; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		mark_packs(m, &chunk, rows);
	}
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = rows[i] ? hold_once(h, m, i) : 0;
	return rc;
}

void ckpt_pack_hold_done(struct ckpt_pack_hold *h)
{
	while (h->count)
		ckpt_manifest_unref(h->held[--h->count]);
	while (h->pack_count)
		ckpt_pack_unpin(*ckpt_pack_pins_of(h->store), h->packs[--h->pack_count].id);
	free(h->held);
	free(h->packs);
	*h = (struct ckpt_pack_hold){.store = h->store};
}
