#include "core/index_value.h"

#include "core/util.h"

#include <stdio.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { VERSION_DIGITS = 8 };

static uint64_t checksum(const void *key, size_t key_len, const void *payload, size_t len)
{
	return XXH3_64bits_withSeed(payload, len, XXH3_64bits(key, key_len));
}

void ckpt_index_key_self(struct ckpt_index_key *k, const char *name)
{
	k->len = (size_t)snprintf((char *)k->bytes, sizeof(k->bytes), "%c%s", CKPT_INDEX_TABLE_SELF, name);
}

int ckpt_index_key_version(struct ckpt_index_key *k, const char *step_key, uint32_t version)
{
	size_t len = strnlen(step_key, CKPT_STEP_KEY_MAX);

	if (!len || len >= CKPT_STEP_KEY_MAX)
		return -EINVAL;
	k->len = (size_t)snprintf((char *)k->bytes, sizeof(k->bytes), "%c%s/%0*x", CKPT_INDEX_TABLE_VERSION, step_key,
				  VERSION_DIGITS, version);
	return 0;
}

void ckpt_index_key_manifest(struct ckpt_index_key *k, const uint8_t sha256[CKPT_INDEX_SHA_BYTES])
{
	k->bytes[0] = CKPT_INDEX_TABLE_MANIFEST;
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

int ckpt_index_value_read_version(const void *key, size_t key_len, const void *value, size_t len, char *ret_step_key,
				  struct ckpt_summary *ret_summary)
{
	size_t around = 1 + 1 + VERSION_DIGITS, step_key_len, payload_len;
	char step_key[CKPT_STEP_KEY_MAX];
	struct ckpt_index_key expected;
	struct ckpt_summary summary;
	const void *payload;

	if (key_len <= around || key_len > CKPT_INDEX_KEY_MAX)
		return -EBADMSG;
	step_key_len = key_len - around;
	if (step_key_len >= sizeof(step_key) || memchr(key, 0, key_len))
		return -EBADMSG;
	memcpy(step_key, (const char *)key + 1, step_key_len);
	step_key[step_key_len] = '\0';
	if (ckpt_index_value_read(key, key_len, value, len, &payload, &payload_len) ||
	    payload_len < CKPT_INDEX_TIME_BYTES ||
	    ckpt_summary_decode(payload, payload_len - CKPT_INDEX_TIME_BYTES, &summary))
		return -EBADMSG;
	summary.stored_ns = (int64_t)ckpt_get64((const uint8_t *)payload + payload_len - CKPT_INDEX_TIME_BYTES);
	// The key is the one that this summary would get.
	if (ckpt_index_key_version(&expected, step_key, summary.version) || expected.len != key_len ||
	    memcmp(expected.bytes, key, key_len))
		return -EBADMSG;
	memcpy(ret_step_key, step_key, step_key_len + 1);
	*ret_summary = summary;
	return 0;
}
