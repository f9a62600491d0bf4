// One request to an S3 store: its URL, headers and signature, and what its answer means as an errno.
//
// Calling sequence: ckpt_s3_request_new(), fields and ckpt_s3_request_header(); ckpt_s3_request_start() and _end(), or both as
// _run(); ckpt_s3_request_free(). A request that the store refused for its clock, or for keys that have expired, is made once more by
// _end(): nothing was done then.
// Ownership: body, key and query stay the caller's until _end(). Threads: any, one for each request. Blocks: _end(); _start() where
// keys must be fetched.
// Errors: the vocabulary of objects.h. For a change the outcome is unknown after -EIO, -ETIMEDOUT and -ECANCELED, and after no other.
//   -EEXIST   412 to a change, -ESTALE to a read
//   -EAGAIN   409, 429, SlowDown, and no connection: nothing was done; any 5xx to a read
#pragma once

#include "backends/backoff.h"
#include "backends/credentials.h"
#include "backends/http.h"
#include "backends/s3_config.h"

#include "core/base/lock.h"

#include <stdarg.h>

#define CKPT_S3_HEADERS_MAX (CKPT_SIGN_HEADERS_MAX - 8) // that a caller may add
#define CKPT_S3_CODE_MAX 64

// The part that all requests of one store share.
struct ckpt_s3 {
	struct ckpt_objects base;
	struct ckpt_s3_config config;
	bool writable;
	struct ckpt_http *http;
	struct ckpt_credentials *credentials; // NULL: requests are not signed
	struct ckpt_backoff *backoff;
	struct ckpt_lock lock;
	// Guarded by lock.
	int64_t skew_ns; // of the store's clock, ahead of ours
	char why[CKPT_OBJECTS_WHY_MAX];
};

struct ckpt_s3_request {
	struct ckpt_s3 *s3;
	const char *method;
	const char *key;   // without the prefix of the store; NULL: the bucket
	const char *query; // sorted, percent-encoded, each name with its "="; NULL: none
	const void *body;
	size_t body_len;
	const struct ckpt_source *source; // of the body, instead of `body`
	bool changes;                     // the store: what may have been done matters
	bool once;                        // is never sent twice by itself
	bool is_quiet;                    // a failure is no cause for `why`: the one before it is
	size_t len;                       // of the body that is expected
	const struct ckpt_until *until;
	ckpt_http_take_fn *take; // of the body where the status is 2xx; NULL: it is kept in text
	void *arg;

	// Set by _end().
	int status;                  // 0: there was no answer
	char code[CKPT_S3_CODE_MAX]; // of the store's error, ""
	struct ckpt_http_text text;  // the body of an error, or where `take` is NULL
	// The unit's own, but for the answer.
	struct ckpt_http_call call;
	struct ckpt_keys *keys; // those that it was signed with
	char sha256[CKPT_SHA256_TEXT_MAX];
	bool again;
	int start_rc;
	int64_t started_ns;
	char url[5120];
	const char *lines[CKPT_SIGN_HEADERS_MAX + 2];
	size_t line_count, added;
	char *owned[CKPT_SIGN_HEADERS_MAX + 2]; // of lines
};

// NULL: no memory.
struct ckpt_s3_request *ckpt_s3_request_new(struct ckpt_s3 *s3, const char *method, const char *key);
void ckpt_s3_request_free(struct ckpt_s3_request **at); // for CLEANUP; *at may be NULL
// "name: value", the name in small letters.
__attribute__((format(printf, 2, 3))) int ckpt_s3_request_header(struct ckpt_s3_request *r, const char *format, ...);
// The SHA-256 of the body, which the request is signed with. Errors: the source's; -ENOMEM.
int ckpt_s3_request_hash(struct ckpt_s3_request *r, uint8_t ret_sha256[CKPT_SHA256_LEN]);
void ckpt_s3_request_start(struct ckpt_s3_request *r);
int ckpt_s3_request_end(struct ckpt_s3_request *r);
int ckpt_s3_request_run(struct ckpt_s3_request *r);
// The etag and the time of the answer. False: it has no etag.
bool ckpt_s3_request_object(const struct ckpt_s3_request *r, struct ckpt_object *ret_object);

// As vsnprintf(3), without control bytes: a store's own words are in it.
__attribute__((format(printf, 3, 0))) void ckpt_s3_text(char *ret_text, size_t size, const char *format, va_list args);
// Keeps a cause for `why`, and writes it to the log of debugging.
__attribute__((format(printf, 2, 3))) void ckpt_s3_say(struct ckpt_s3 *s3, const char *format, ...);
// True: a read that failed so may succeed later.
bool ckpt_s3_may_pass(int rc);
