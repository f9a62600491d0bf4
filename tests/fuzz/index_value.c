// Hostile rows of the index: two bytes with the length of the key, the key, the value. Each is tried as it is, and with
// its checksum made right, as whoever can write the file can make it.

#include "tests/fuzz/replay.h"

#include "core/base/util.h"
#include "core/index/index_value.h"

static void try_chunk(const void *key, size_t key_len, const void *value, size_t len)
{
	uint8_t again[CKPT_INDEX_CHUNK_BYTES];
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;
	uint32_t count;
	int rc = ckpt_index_value_read_chunk(key, key_len, value, len, &chunk, &pack);

	fuzz_assert(rc == 0 || rc == -EBADMSG);
	if (!rc) {
		fuzz_assert(key_len == 1 + CKPT_SHA256_LEN &&
			    !memcmp((const char *)key + 1, chunk.id, CKPT_SHA256_LEN));
		fuzz_assert(chunk.bytes && chunk.bytes <= CKPT_CHUNK_BYTES_MAX && !chunk.pack);
		fuzz_assert(chunk.offset <= pack.bytes && chunk.how.bytes <= pack.bytes - chunk.offset);
		ckpt_index_chunk_write(&chunk, &pack, again);
		fuzz_assert(!memcmp(again, (const char *)value + CKPT_INDEX_CHECKSUM_BYTES, sizeof(again)));
	}
	rc = ckpt_index_value_read_pack(key, key_len, value, len, &pack, &count);
	fuzz_assert(rc == 0 || rc == -EBADMSG);
	fuzz_assert(rc || pack.bytes <= CKPT_PACK_BYTES_MAX);
}

static void try_row(const void *key, size_t key_len, const void *value, size_t len)
{
	const void *payload;
	size_t payload_len;
	int rc = ckpt_index_value_read(key, key_len, value, len, &payload, &payload_len);

	fuzz_assert(rc == 0 || rc == -EBADMSG);
	fuzz_assert(rc || payload_len + CKPT_INDEX_CHECKSUM_BYTES == len);
	try_chunk(key, key_len, value, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct ckpt_index_key k;
	size_t key_len, value_len;

	if (len < 2)
		return 0;
	key_len = MIN((size_t)ckpt_get16(data), len - 2);
	value_len = len - 2 - key_len;
	CLEANUP_FREE uint8_t *key = malloc(key_len + !key_len), *value = malloc(value_len + !value_len);
	if (!key || !value)
		return 0;
	memcpy(key, data + 2, key_len);
	memcpy(value, data + 2 + key_len, value_len);
	try_row(key, key_len, value, value_len);
	if (value_len < CKPT_INDEX_CHECKSUM_BYTES || key_len > CKPT_INDEX_KEY_MAX)
		return 0;
	k.len = key_len;
	memcpy(k.bytes, key, key_len);
	ckpt_index_value_write(&k, data + 2 + key_len + CKPT_INDEX_CHECKSUM_BYTES,
			       value_len - CKPT_INDEX_CHECKSUM_BYTES, value);
	try_row(key, key_len, value, value_len);
	return 0;
}
