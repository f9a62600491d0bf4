// Signatures of requests as AWS wants them (Signature Version 4).
//
// libcurl can sign, too. It is not used for it, because
//   - up to 8.3 it sorts "x-amz-server-side-encryption-aws-kms-key-id" before "x-amz-server-side-encryption": with sse= and
//     sse_kms_key= a server refuses every put;
//   - it keeps copies of the secret on the heap, and signs with this machine's clock, which may be wrong.
//
// Pure functions, any thread, nothing blocks. The secret is wiped from all that these functions use.
// Source: "AWS Signature Version 4 for API requests", and its examples, which are tests.
#pragma once

#include "core/base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_KEYS_ID_MAX 256 // with the NUL, as those below
#define CKPT_KEYS_SECRET_MAX 512
#define CKPT_KEYS_TOKEN_MAX 8192

struct ckpt_keys {
	char id[CKPT_KEYS_ID_MAX]; // "": no signature
	char secret[CKPT_KEYS_SECRET_MAX];
	char token[CKPT_KEYS_TOKEN_MAX]; // "": none
	int64_t expires_ns;              // of the real time; 0: never
};
void ckpt_keys_wipe(struct ckpt_keys *keys);

#define CKPT_SIGN_HEADERS_MAX 24
#define CKPT_SIGN_TIME_MAX 17                          // "20130524T000000Z"
#define CKPT_SIGN_MAX (1024 + CKPT_KEYS_ID_MAX)        // of an Authorization header
#define CKPT_SHA256_TEXT_MAX (CKPT_SHA256_HEX_LEN + 1) // with the NUL

struct ckpt_sign {
	const char *method;
	const char *path;  // percent-encoded, once
	const char *query; // sorted, percent-encoded, each name with its "="; "" is none
	// "name: value" in small letters, at most CKPT_SIGN_HEADERS_MAX, NULL behind the last; "host" and "x-amz-date" are among them.
	const char *const *headers;
	const char *payload; // its SHA-256 in hex digits
	const char *time;    // the value of x-amz-date
	const char *region, *service;
};

void ckpt_sign_time(int64_t now_ns, char ret_time[CKPT_SIGN_TIME_MAX]);
// "authorization: AWS4-HMAC-SHA256 ..." -E2BIG: too many headers, or too long ones.
int ckpt_sign(const struct ckpt_keys *keys, const struct ckpt_sign *what, char ret_header[CKPT_SIGN_MAX]);

// Percent-encodes all but letters, digits and "-._~", and with keep_slash '/'. False: it does not fit; ret_text is "" then.
bool ckpt_sign_encode(const char *text, bool keep_slash, char *ret_text, size_t size);
