#include "core/base/hash.h"

#include "core/base/sha256_pair.h"
#include "core/base/util.h"

#include <errno.h>
#include <string.h>

// OpenSSL 3 would have EVP instead, which makes a context for each digest: these need no memory, and so do not fail.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(((struct ckpt_sha256 *)0)->state), "it fits");

#define PAIR_MIN ((size_t)4 * CKPT_SHA256_BLOCK) // for less it is not worth it

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

// Bytes until the next block of this sum begins.
static size_t begun(const SHA256_CTX *c)
{
	return (CKPT_SHA256_BLOCK - c->num) % CKPT_SHA256_BLOCK;
}

// Its bits, which OpenSSL counts in two words.
static void count_blocks(SHA256_CTX *c, size_t blocks)
{
	uint64_t bits = ((uint64_t)c->Nh << 32 | c->Nl) + (uint64_t)blocks * CKPT_SHA256_BLOCK * 8;

	c->Nl = (SHA_LONG)bits;
	c->Nh = (SHA_LONG)(bits >> 32);
}

// First what fills the block that each has begun, then blocks of both, then what is left of each.
void ckpt_sha256_add_both(struct ckpt_sha256 *one, const void *one_data, size_t one_len, struct ckpt_sha256 *two,
			  const void *two_data, size_t two_len)
{
	SHA256_CTX *a = context(one), *b = context(two);
	const uint8_t *a_from = one_data, *b_from = two_data;
	size_t a_at = begun(a), b_at = begun(b), blocks, bytes;

	if (one_len < PAIR_MIN || two_len < PAIR_MIN || !ckpt_sha256_pair_is_there()) {
		ckpt_sha256_add(one, one_data, one_len);
		ckpt_sha256_add(two, two_data, two_len);
		return;
	}
	ckpt_sha256_add(one, a_from, a_at);
	ckpt_sha256_add(two, b_from, b_at);
	blocks = MIN(one_len - a_at, two_len - b_at) / CKPT_SHA256_BLOCK;
	bytes = blocks * CKPT_SHA256_BLOCK;
	ckpt_sha256_pair_blocks(a->h, a_from + a_at, b->h, b_from + b_at, blocks);
	count_blocks(a, blocks);
	count_blocks(b, blocks);
	ckpt_sha256_add(one, a_from + a_at + bytes, one_len - a_at - bytes);
	ckpt_sha256_add(two, b_from + b_at + bytes, two_len - b_at - bytes);
}

bool ckpt_sha256_both_is_cheap(void)
{
	return ckpt_sha256_pair_is_there();
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
