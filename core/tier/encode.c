#include "core/tier/encode.h"

#include "core/base/util.h"
#include "core/cold/dedupe.h"
#include "core/cold/packing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ckpt_encode_need(struct ckpt_encode *e, uint32_t bytes)
{
	if (bytes <= e->bytes)
		return 0;
	ckpt_encode_done(e);
	e->plain = malloc(bytes);
	e->stored = malloc(bytes);
	e->back = malloc(bytes);
	if (!e->plain || !e->stored || !e->back)
		return -ENOMEM;
	e->bytes = bytes;
	return 0;
}

void ckpt_encode_done(struct ckpt_encode *e)
{
	free(e->plain);
	free(e->stored);
	free(e->back);
	*e = (struct ckpt_encode){0};
}

// Wrong bytes show before a raw file goes.
int ckpt_encode(struct ckpt_encode *e, struct ckpt_codec *codec, struct ckpt_chunk *chunk, unsigned width,
		enum ckpt_codec_id with, const void *base)
{
	bool rounds = base && with == CKPT_CODEC_ROUND;
	int rc = ckpt_codec_try(codec, e->plain, chunk->bytes, rounds ? 2 : width, with, base, e->stored, &chunk->how);

	if (rc || chunk->how.codec == CKPT_CODEC_NONE)
		return rc;
	rc = ckpt_codec_decode_beside(codec, &chunk->how, e->stored, base, e->back, chunk->bytes);
	if (!rc && memcmp(e->plain, e->back, chunk->bytes))
		rc = -EBADMSG;
	return rc == -EBADMSG ? -EIO : rc;
}

// Bytes that are stored as they are were not compared yet: what stands in the pack then is hashed.
int ckpt_encode_pack(struct ckpt_encode *e, struct ckpt_packing *packing, const struct ckpt_chunk *chunk)
{
	bool as_it_is = chunk->how.codec == CKPT_CODEC_NONE;
	int rc = ckpt_packing_add(packing, chunk, as_it_is ? e->plain : e->stored, as_it_is ? e->plain : NULL);

	return rc == -EBADMSG ? -EIO : rc;
}

int ckpt_encode_pack_unsure(struct ckpt_encode *e, struct ckpt_packing *packing, const struct ckpt_chunk *chunk)
{
	bool as_it_is = chunk->how.codec == CKPT_CODEC_NONE;

	return ckpt_packing_add(packing, chunk, as_it_is ? e->plain : e->stored, e->plain);
}

int ckpt_encode_share(struct ckpt_encode *e, struct ckpt_packing *packing, const struct ckpt_chunk *chunk,
		      enum ckpt_codec_id with, const void *base, struct ckpt_chunk *ret_found,
		      struct ckpt_pack *ret_pack)
{
	struct ckpt_store *s = packing->store;
	int rc;

	if (!ckpt_dedupe_find(s, chunk, with, base, ret_found, ret_pack))
		return 0;
	rc = ckpt_packing_hold(packing, ret_pack);
	if (rc)
		return rc == -ESTALE ? 0 : rc;
	return ckpt_dedupe_read(s, ret_found, ret_pack, packing->codec, base, e->back);
}
