#include "core/cold/stored.h"

#include "core/base/util.h"

// A chunk is where it is stored, its pack and its offset there: the same bytes in two packs are stored twice. base: a file that has it
// is counted elsewhere.
static int add_chunk(struct ckpt_stored *s, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk, bool base)
{
	uint64_t key[CKPT_SHA256_LEN / sizeof(uint64_t) + 1] = {0};
	struct ckpt_pack pack;
	bool is_new;
	int rc;

	ckpt_manifest_pack(m, chunk->pack - 1, &pack);
	memcpy(key, pack.id, CKPT_SHA256_LEN);
	key[ARRAY_LEN(key) - 1] = chunk->offset;
	rc = ckpt_keys_add(&s->seen, key, ARRAY_LEN(key), &is_new);
	if (rc)
		return rc;
	if (!is_new) {
		s->again_bytes += base ? 0 : chunk->bytes;
		return 0;
	}
	s->in_bytes += chunk->bytes;
	s->out_bytes += chunk->how.bytes;
	if ((unsigned)chunk->how.codec < CKPT_STORED_CODECS) {
		s->codecs[chunk->how.codec].in_bytes += chunk->bytes;
		s->codecs[chunk->how.codec].out_bytes += chunk->how.bytes;
	}
	return 0;
}

int ckpt_stored_add_file(struct ckpt_stored *s, const struct ckpt_manifest *m, uint32_t index)
{
	struct ckpt_seal seal;
	int rc = 0;

	if (!ckpt_manifest_seal(m, index, &seal))
		return 0;
	for (uint32_t i = 0; i < seal.count && !rc; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		if (chunk.pack && chunk.offset)
			rc = add_chunk(s, m, &chunk, false);
	}
	return rc;
}

static int add_bases(struct ckpt_stored *s, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk)
{
	int rc = 0;

	for (uint32_t i = 0; i < chunk->base_count && !rc; i++) {
		struct ckpt_chunk base;

		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		if (base.offset)
			rc = add_chunk(s, m, &base, true);
		if (!rc)
			rc = add_bases(s, m, &base);
	}
	return rc;
}

int ckpt_stored_add_bases(struct ckpt_stored *s, const struct ckpt_manifest *m, uint32_t index)
{
	struct ckpt_seal seal;
	int rc = 0;

	if (!ckpt_manifest_seal(m, index, &seal))
		return 0;
	for (uint32_t i = 0; i < seal.count && !rc; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		rc = add_bases(s, m, &chunk);
	}
	return rc;
}

int ckpt_stored_add(struct ckpt_stored *s, const struct ckpt_manifest *m)
{
	uint32_t count = ckpt_manifest_pack_count(m) ? ckpt_manifest_count(m) : 0;
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++)
		if (ckpt_manifest_first_link(m, i) == i)
			rc = ckpt_stored_add_file(s, m, i);
	for (uint32_t i = 0; i < count && !rc; i++)
		if (ckpt_manifest_first_link(m, i) == i)
			rc = ckpt_stored_add_bases(s, m, i);
	return rc;
}

void ckpt_stored_done(struct ckpt_stored *s)
{
	ckpt_keys_done(&s->seen);
	*s = (struct ckpt_stored){0};
}
