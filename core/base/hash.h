// Hashes, and bytes as hex digits.
//
// Pure functions, any thread, nothing blocks. They need no memory and cannot fail: no caller could go on, and none may go on
// with a wrong digest.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_SHA256_LEN 32
#define CKPT_SHA256_HEX_LEN 64

void ckpt_sha256(const void *data, size_t len, uint8_t ret_digest[CKPT_SHA256_LEN]);

// The same, piece by piece: _begin, _add as often as there are pieces, _end. Nothing has to be freed.
struct ckpt_sha256 {
	uint64_t state[16];
};
void ckpt_sha256_begin(struct ckpt_sha256 *sum);
void ckpt_sha256_add(struct ckpt_sha256 *sum, const void *data, size_t len);
// Bytes to two sums, the same or others. Where the processor has instructions for SHA-256 this takes about as long as the longer of them.
void ckpt_sha256_add_both(struct ckpt_sha256 *one, const void *one_data, size_t one_len, struct ckpt_sha256 *two,
			  const void *two_data, size_t two_len);
bool ckpt_sha256_both_is_cheap(void); // it has them
void ckpt_sha256_end(struct ckpt_sha256 *sum, uint8_t ret_digest[CKPT_SHA256_LEN]);

// XXH3-64: against accidents, not against people.
uint64_t ckpt_checksum(const void *data, size_t len, uint64_t seed);

// ret_hex gets 2 * len lowercase digits and a NUL.
void ckpt_hex(const uint8_t *data, size_t len, char *ret_hex);
int ckpt_unhex(const char *hex, size_t len, uint8_t *ret_data); // -EINVAL: that is not len bytes, in small letters
