#include "core/cold/pack_use.h"

#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/step/older.h"
#include "core/step/store.h"

int ckpt_pack_use_pack(struct ckpt_pack_use *u, const struct ckpt_pack *pack)
{
	int rc = ckpt_grow((void **)&u->packs, &u->cap, u->count + 1, sizeof(*u->packs));

	if (!rc)
		u->packs[u->count++] = (struct ckpt_used_pack){.pack = *pack};
	return rc;
}

void ckpt_pack_use_done(struct ckpt_pack_use *u)
{
	free(u->packs);
	ckpt_keys_done(&u->seen);
	*u = (struct ckpt_pack_use){0};
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct ckpt_used_pack *)a)->pack.id, ((const struct ckpt_used_pack *)b)->pack.id,
		      CKPT_SHA256_LEN);
}

// --- Manifests ----------------------------------------------------------------------------------------------------------

// A chunk is where it is stored: the row of its pack and its offset there, which is never 0, in eight bytes, for there may be a
// million of them.
static int add_chunk(struct ckpt_pack_use *u, struct ckpt_used_pack *p, const struct ckpt_chunk *chunk)
{
	const uint64_t key = (uint64_t)(p - u->packs) * CKPT_PACK_BYTES_MAX | chunk->offset;
	bool is_new;
	int rc = ckpt_keys_add(&u->seen, &key, 1, &is_new);

	if (rc || !is_new)
		return rc;
	p->used_bytes += chunk->how.bytes;
	p->used_chunks++;
	return 0;
}

static struct ckpt_used_pack *find_pack(const struct ckpt_pack_use *u, const struct ckpt_manifest *m, uint32_t pack)
{
	struct ckpt_used_pack want;

	ckpt_manifest_pack(m, pack, &want.pack);
	return u->count ? bsearch(&want, u->packs, u->count, sizeof(*u->packs), by_id) : NULL;
}

// With what it is decoded beside, which no file may have any more.
static int add_with_bases(struct ckpt_pack_use *u, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
			  struct ckpt_used_pack *const *packs)
{
	int rc = 0;

	if (chunk->pack && packs[chunk->pack - 1] && chunk->offset && chunk->offset < CKPT_PACK_BYTES_MAX)
		rc = add_chunk(u, packs[chunk->pack - 1], chunk);
	for (uint32_t i = 0; i < chunk->base_count && !rc; i++) {
		struct ckpt_chunk base;

		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		rc = add_with_bases(u, m, &base, packs);
	}
	return rc;
}

static int add_file(struct ckpt_pack_use *u, const struct ckpt_manifest *m, uint32_t index,
		    struct ckpt_used_pack *const *packs)
{
	struct ckpt_seal seal;
	int rc = 0;

	if (!ckpt_manifest_seal(m, index, &seal))
		return 0;
	for (uint32_t i = 0; i < seal.count && !rc; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		rc = add_with_bases(u, m, &chunk, packs);
	}
	return rc;
}

int ckpt_pack_use_add(struct ckpt_pack_use *u, const struct ckpt_manifest *m)
{
	uint32_t pack_count = ckpt_manifest_pack_count(m), count = pack_count ? ckpt_manifest_count(m) : 0;
	CLEANUP_FREE struct ckpt_used_pack **packs = ckpt_calloc(pack_count + 1, sizeof(struct ckpt_used_pack *));
	int rc = packs ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < pack_count && !rc; i++)
		packs[i] = find_pack(u, m, i);
	for (uint32_t i = 0; i < count && !rc; i++)
		if (ckpt_manifest_first_link(m, i) == i)
			rc = add_file(u, m, i, packs);
	return rc;
}

// --- What is not used ---------------------------------------------------------------------------------------------------

int ckpt_pack_use_unused(const struct ckpt_used_pack *p, struct ckpt_objects *b, uint64_t *ret_bytes)
{
	uint64_t chunk_bytes;
	int rc;

	*ret_bytes = p->pack.bytes;
	if (!p->used_bytes)
		return 0;
	rc = ckpt_pack_chunk_bytes(b, &p->pack, &chunk_bytes);
	if (!rc)
		*ret_bytes = chunk_bytes - MIN(p->used_bytes, chunk_bytes);
	return rc;
}

// Anything else there is no pack.
static int add_stored(void *arg, const char *key, const struct ckpt_object *object)
{
	struct ckpt_pack pack = {.bytes = object->bytes};

	return ckpt_pack_of_key(key, pack.id) ? ckpt_pack_use_pack(arg, &pack) : 0;
}

static int add_older(void *arg, const struct ckpt_manifest *m)
{
	return ckpt_pack_use_add(arg, m);
}

// One that has expired meanwhile needs nothing.
static int add_step(struct ckpt_pack_use *u, struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(step, &m);

	if (rc)
		return ckpt_step_has_manifest(ckpt_step_state(step)) ? rc : 0;
	rc = ckpt_pack_use_add(u, m);
	ckpt_manifest_unref(m);
	if (!rc)
		rc = ckpt_older_each_packs(step, add_older, u);
	return rc && !ckpt_step_has_manifest(ckpt_step_state(step)) ? 0 : rc;
}

static int add_steps(struct ckpt_pack_use *u, struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list_stored(s, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++)
		rc = add_step(u, steps[i]);
	ckpt_step_list_free(steps, count);
	return rc;
}

int ckpt_pack_use_garbage(struct ckpt_store *s, uint64_t *ret_bytes)
{
	struct ckpt_pack_use u = {0};
	uint64_t sum = 0;
	int rc = ckpt_objects_list(s->objects, "packs/", NULL, add_stored, &u);

	if (!rc && ckpt_journal_damaged(s->journal))
		rc = -EBADMSG; // who knows what that entry needs
	if (!rc && u.count)
		rc = add_steps(&u, s);
	for (size_t i = 0; i < u.count && !rc; i++) {
		uint64_t bytes = 0;

		rc = ckpt_pack_use_unused(&u.packs[i], s->objects, &bytes);
		sum += rc ? 0 : bytes;
		if (rc == -ENOENT)
			rc = 0; // it went meanwhile
	}
	ckpt_pack_use_done(&u);
	if (!rc)
		*ret_bytes = sum;
	return rc;
}
