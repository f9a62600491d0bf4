#include "core/base/hash.h"

#include <errno.h>
#include <string.h>

// OpenSSL 3 would have EVP instead, which makes a context for each digest: these need no memory, and so do not fail.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(((struct ckpt_sha256 *)0)->state), "it fits");

static SHA256_CTX *context(struct ckpt_sha256 *sum)
{
	return (SHA256_CTX *)sum->state;
}

void ckpt_sha256_begin(struct ckpt_sha256 *sum)
{
	SHA256_Init(context(sum));
}

void ckpt_sha256_add(struct ckpt_sha256 *sum, const void *data, size_t len)
{
	SHA256_Update(context(sum), len ? data : "", len);
}

void ckpt_sha256_end(struct ckpt_sha256 *sum, uint8_t ret_digest[CKPT_SHA256_LEN])
{
	SHA256_Final(ret_digest, context(sum));
}

void ckpt_sha256(const void *data, size_t len, uint8_t ret_digest[CKPT_SHA256_LEN])
{
	struct ckpt_sha256 sum;

	ckpt_sha256_begin(&sum);
	ckpt_sha256_add(&sum, data, len);
	ckpt_sha256_end(&sum, ret_digest);
}

uint64_t ckpt_checksum(const void *data, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed);
}

static const char digits[] = "0123456789abcdef";

void ckpt_hex(const uint8_t *data, size_t len, char *ret_hex)
{
	for (size_t i = 0; i < len; i++) {
		ret_hex[2 * i] = digits[data[i] >> 4];
		ret_hex[2 * i + 1] = digits[data[i] & 15];
	}
	ret_hex[2 * len] = '\0';
}

int ckpt_unhex(const char *hex, size_t len, uint8_t *ret_data)
{
	if (strlen(hex) != 2 * len || strspn(hex, digits) != 2 * len)
		return -EINVAL;
	for (size_t i = 0; i < len; i++)
		ret_data[i] = (uint8_t)((strchr(digits, hex[2 * i]) - digits) << 4 |
					(strchr(digits, hex[2 * i + 1]) - digits));
	return 0;
}
