#include "core/hash.h"

// OpenSSL 3 would have EVP instead, which makes a context for each digest: these need no memory, and so do not fail.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

void ckpt_sha256(const void *data, size_t len, uint8_t ret_digest[CKPT_SHA256_LEN])
{
	SHA256_CTX c;

	SHA256_Init(&c);
	SHA256_Update(&c, len ? data : "", len);
	SHA256_Final(ret_digest, &c);
}

void ckpt_hex(const uint8_t *data, size_t len, char *ret_hex)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		ret_hex[2 * i] = digits[data[i] >> 4];
		ret_hex[2 * i + 1] = digits[data[i] & 15];
	}
	ret_hex[2 * len] = '\0';
}
