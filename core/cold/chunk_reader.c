#include "core/cold/chunk_reader.h"

#include "core/base/util.h"

// A base is as long as it needs to be, and no deeper than the limit: the manifest was parsed.
int ckpt_chunk_read_bases(struct ckpt_objects *b, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
			  struct ckpt_codec *codec, uint8_t **ret_base)
{
	CLEANUP_FREE uint8_t *base = NULL;
	uint32_t at = 0;
	int rc = 0;

	*ret_base = NULL;
	if (chunk->base_count)
		base = malloc(ckpt_codec_base_bytes(chunk->how.codec, chunk->bytes));
	if (chunk->base_count && !base)
		return -ENOMEM;

	for (uint32_t i = 0; i < chunk->base_count && !rc; i++) {
		struct ckpt_chunk piece;

		ckpt_manifest_base(m, chunk->base - 1 + i, &piece);
		rc = ckpt_chunk_read(b, m, &piece, codec, base + at);
		at += piece.bytes;
	}
	if (!rc)
		*ret_base = TAKE_PTR(base);
	return rc;
}

int ckpt_chunk_read(struct ckpt_objects *b, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		    struct ckpt_codec *codec, void *plain)
{
	CLEANUP_FREE uint8_t *base = NULL;
	struct ckpt_pack pack;
	int rc = ckpt_chunk_read_bases(b, m, chunk, codec, &base);

	if (rc)
		return rc;
	ckpt_manifest_pack(m, chunk->pack - 1, &pack);
	return ckpt_pack_read(b, &pack, chunk, codec, base, plain);
}

// --- Runs ---------------------------------------------------------------------------------------------------------------

#define GAP_BYTES_MAX (64u << 10) // read for nothing, rather than asking once more

static bool follows(const struct ckpt_chunk *next, const struct ckpt_chunk *before)
{
	uint64_t end = before->offset + before->how.bytes;

	return next->pack == before->pack && !next->base_count && next->offset >= end &&
	       next->offset - end <= GAP_BYTES_MAX;
}

uint32_t ckpt_chunk_run(const struct ckpt_manifest *m, uint32_t first, uint32_t end, uint64_t bytes_max)
{
	struct ckpt_chunk before, next;
	uint64_t plain, stored;
	uint32_t count = 1;

	ckpt_manifest_chunk(m, first, &before);
	if (!before.pack || before.base_count)
		return 0;
	plain = before.bytes;
	stored = before.how.bytes;
	for (; first + count < end; count++) {
		ckpt_manifest_chunk(m, first + count, &next);
		plain += next.bytes;
		stored += next.how.bytes;
		if (!follows(&next, &before) || plain > bytes_max || stored > bytes_max)
			break;
		before = next;
	}
	return count;
}

uint64_t ckpt_chunk_run_work(const struct ckpt_chunk *chunks, size_t count)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		bytes += chunks[i].how.codec == CKPT_CODEC_NONE ? 0 : chunks[i].how.bytes;
	return bytes;
}

// One that is stored as it is goes to its place at once.
static void place_ranges(const struct ckpt_chunk_run *run, uint8_t *stored, struct ckpt_range *ranges)
{
	for (size_t i = 0; i < run->count; i++) {
		const struct ckpt_chunk *c = &run->chunks[i];

		ranges[i] = (struct ckpt_range){.offset = c->offset, .len = c->how.bytes, .buf = run->plain[i]};
		if (c->how.codec == CKPT_CODEC_NONE)
			continue;
		ranges[i].buf = stored;
		stored += c->how.bytes;
	}
}

static int get_run(struct ckpt_objects *b, const struct ckpt_chunk_run *run, struct ckpt_range *ranges)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;
	int rc;

	ckpt_pack_key(run->pack.id, key);
	rc = ckpt_objects_get_ranges(b, key, ranges, run->count, run->until, &object);
	return rc ? rc : object.bytes == run->pack.bytes ? 0 : -EBADMSG;
}

void ckpt_chunk_read_run(struct ckpt_objects *b, const struct ckpt_chunk_run *run, struct ckpt_codec *codec)
{
	CLEANUP_FREE struct ckpt_range *ranges = ckpt_calloc(run->count, sizeof(*ranges));
	CLEANUP_FREE uint8_t *stored = malloc((size_t)ckpt_chunk_run_work(run->chunks, run->count) + 1);
	int rc = ranges && stored ? 0 : -ENOMEM, one_rc;

	if (!rc) {
		place_ranges(run, stored, ranges);
		rc = get_run(b, run, ranges);
	}
	for (size_t i = 0; i < run->count; i++) {
		one_rc = rc ? rc : ranges[i].got < ranges[i].len ? -EBADMSG : 0;
		if (!one_rc)
			one_rc = ckpt_pack_decode(&run->chunks[i], codec, ranges[i].buf, NULL, run->plain[i]);
		run->done(run->arg, i, one_rc);
	}
}
