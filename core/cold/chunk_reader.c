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
