// Hashes, and bytes as hex digits.
//
// Pure functions, any thread, nothing blocks. A libcrypto that cannot hash (no memory for its context) ends the
// process: no caller could go on, and none may go on with a wrong digest.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CKPT_SHA256_LEN 32
#define CKPT_SHA256_HEX_LEN 64

void ckpt_sha256(const void *data, size_t len, uint8_t ret_digest[CKPT_SHA256_LEN]);
// For a detached thread that nobody waits for, after its last digest: what the library keeps for it goes now, and not some
// time after others believe that it has ended.
void ckpt_hash_thread_end(void);
// ret_hex gets 2 * len lowercase digits and a NUL.
void ckpt_hex(const uint8_t *data, size_t len, char *ret_hex);
