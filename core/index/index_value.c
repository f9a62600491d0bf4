#include "core/index/index_value.h"

#include "core/base/hash.h"
#include "core/base/util.h"

#include <stdio.h>

enum {
	CHUNK_PACK = 0,
	CHUNK_PACK_LEN = 32,
	CHUNK_OFFSET = 40,
	CHUNK_LEN = 48,
	CHUNK_STORED = 52,
	CHUNK_CODEC = 56,
	CHUNK_WIDTH = 58,
};

enum {
	PACK_LEN = 0,
	PACK_COUNT = 8,
	PACK_DIGEST = 12,
};

static uint64_t checksum(const void *key, size_t key_len, const void *payload, size_t len)
{
	return ckpt_checksum(payload, len, ckpt_checksum(key, key_len, 0));
}

void ckpt_index_key_self(struct ckpt_index_key *k, const char *name)
{
	k->len = (size_t)snprintf((char *)k->bytes, sizeof(k->bytes), "%c%s", CKPT_INDEX_TABLE_SELF, name);
}

void ckpt_index_key_digest(struct ckpt_index_key *k, char table, const uint8_t sha256[CKPT_INDEX_SHA_BYTES])
{
	k->bytes[0] = (uint8_t)table;
	memcpy(k->bytes + 1, sha256, CKPT_INDEX_SHA_BYTES);
	k->len = 1 + CKPT_INDEX_SHA_BYTES;
}

void ckpt_index_value_write(const struct ckpt_index_key *k, const void *payload, size_t len, void *out)
{
	uint8_t *p = out;

	ckpt_put64(p, checksum(k->bytes, k->len, payload, len));
	if (len)
		memcpy(p + CKPT_INDEX_CHECKSUM_BYTES, payload, len);
}

int ckpt_index_value_read(const void *key, size_t key_len, const void *value, size_t len, const void **ret_payload,
			  size_t *ret_len)
{
	const uint8_t *p = value;

	if (len < CKPT_INDEX_CHECKSUM_BYTES || len > CKPT_INDEX_CHECKSUM_BYTES + (size_t)CKPT_MANIFEST_BYTES_MAX)
		return -EBADMSG;
	len -= CKPT_INDEX_CHECKSUM_BYTES;
	if (ckpt_get64(p) != checksum(key, key_len, p + CKPT_INDEX_CHECKSUM_BYTES, len))
		return -EBADMSG;
	*ret_payload = p + CKPT_INDEX_CHECKSUM_BYTES;
	*ret_len = len;
	return 0;
}

// --- Chunks and packs ---------------------------------------------------------------------------------------------------

// The payload of a value of just this length, under a key that is a digest.
static const uint8_t *read_fixed(const void *key, size_t key_len, const void *value, size_t len, size_t want)
{
	const void *payload;
	size_t payload_len;

	if (key_len != 1 + CKPT_INDEX_SHA_BYTES ||
	    ckpt_index_value_read(key, key_len, value, len, &payload, &payload_len) || payload_len != want)
		return NULL;
	return payload;
}

void ckpt_index_chunk_write(const struct ckpt_chunk *chunk, const struct ckpt_pack *pack,
			    uint8_t out[CKPT_INDEX_CHUNK_BYTES])
{
	memcpy(out + CHUNK_PACK, pack->id, CKPT_SHA256_LEN);
	ckpt_put64(out + CHUNK_PACK_LEN, pack->bytes);
	ckpt_put64(out + CHUNK_OFFSET, chunk->offset);
	ckpt_put32(out + CHUNK_LEN, chunk->bytes);
	ckpt_put32(out + CHUNK_STORED, chunk->how.bytes);
	ckpt_put16(out + CHUNK_CODEC, (uint16_t)chunk->how.codec);
	ckpt_put16(out + CHUNK_WIDTH, (uint16_t)chunk->how.width);
}

int ckpt_index_value_read_chunk(const void *key, size_t key_len, const void *value, size_t len,
				struct ckpt_chunk *ret_chunk, struct ckpt_pack *ret_pack)
{
	const uint8_t *p = read_fixed(key, key_len, value, len, CKPT_INDEX_CHUNK_BYTES);
	struct ckpt_chunk chunk = {0};
	struct ckpt_pack pack = {0};
	uint64_t end;

	if (!p)
		return -EBADMSG;
	memcpy(chunk.id, (const uint8_t *)key + 1, sizeof(chunk.id));
	chunk.bytes = ckpt_get32(p + CHUNK_LEN);
	chunk.offset = ckpt_get64(p + CHUNK_OFFSET);
	chunk.how = (struct ckpt_encoded){ckpt_get16(p + CHUNK_CODEC), ckpt_get16(p + CHUNK_WIDTH),
					  ckpt_get32(p + CHUNK_STORED)};
	memcpy(pack.id, p + CHUNK_PACK, sizeof(pack.id));
	pack.bytes = ckpt_get64(p + CHUNK_PACK_LEN);
	if (!chunk.bytes || chunk.bytes > CKPT_CHUNK_BYTES_MAX || !ckpt_encoded_ok(&chunk.how, chunk.bytes) ||
	    __builtin_add_overflow(chunk.offset, chunk.how.bytes, &end) || end > pack.bytes ||
	    pack.bytes > CKPT_PACK_BYTES_MAX)
		return -EBADMSG;
	*ret_chunk = chunk;
	*ret_pack = pack;
	return 0;
}

void ckpt_index_pack_write(const struct ckpt_pack *pack, uint32_t count, uint8_t out[CKPT_INDEX_PACK_BYTES])
{
	ckpt_put64(out + PACK_LEN, pack->bytes);
	ckpt_put32(out + PACK_COUNT, count);
	memcpy(out + PACK_DIGEST, pack->digest, CKPT_SHA256_LEN);
}

int ckpt_index_value_read_pack(const void *key, size_t key_len, const void *value, size_t len,
			       struct ckpt_pack *ret_pack, uint32_t *ret_count)
{
	const uint8_t *p = read_fixed(key, key_len, value, len, CKPT_INDEX_PACK_BYTES);

	if (!p || ckpt_get64(p + PACK_LEN) > CKPT_PACK_BYTES_MAX)
		return -EBADMSG;
	memcpy(ret_pack->id, (const uint8_t *)key + 1, sizeof(ret_pack->id));
	ret_pack->bytes = ckpt_get64(p + PACK_LEN);
	memcpy(ret_pack->digest, p + PACK_DIGEST, sizeof(ret_pack->digest));
	*ret_count = ckpt_get32(p + PACK_COUNT);
	return 0;
}
