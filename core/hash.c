#include "core/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>

// Looked up once: a lookup costs more than hashing a small record.
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256_md;

static void sha256_fetch(void)
{
	sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
}

void ckpt_sha256(const void *data, size_t len, uint8_t ret_digest[CKPT_SHA256_LEN])
{
	pthread_once(&sha256_once, sha256_fetch);
	if (!sha256_md || !EVP_Digest(len ? data : "", len, ret_digest, NULL, sha256_md, NULL))
		abort();
}

void ckpt_hash_thread_end(void)
{
	OPENSSL_thread_stop();
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
