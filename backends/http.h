// HTTP/1.1 requests: many in flight, on one thread of libcurl's multi interface. The only unit that includes curl.
//
// Calling sequence: ckpt_http_new(); for each request a struct ckpt_http_call that is zeroed but for `request`, ckpt_http_start()
// and ckpt_http_wait(), or both as ckpt_http_run(); ckpt_http_free() after the last wait.
// Ownership: the call, and all that its request points to, stay the caller's and stay where they are until the wait has returned.
// Threads: any. Take functions run on the thread of the requests: they must not block, and not call this unit. Sources are read there,
// too: a local file at most.
// Blocks: new and start for no I/O, wait until the request has ended.
// Connections are reused. TLS is verified always, with the certificates of $AWS_CA_BUNDLE, else $SSL_CERT_FILE, else the system.
// $HTTPS_PROXY and $NO_PROXY count. Redirects are never followed, and no netrc is read.
// Errors of a request:
//   0            an answer came; its status may say anything
//   -ENOTCONN    no connection: nothing was sent
//   -EACCES      the other side's certificate is not trusted: nothing was sent
//   -ETIMEDOUT   the deadline, or too little came for too long; -ECANCELED: until->cancelled
//   -EIO         the connection broke, or the answer is not whole. Like after -ETIMEDOUT and -ECANCELED, the outcome is unknown.
//   -EINVAL      not a URL, or http:// without allow_http; -ENOMEM; or what `take` has returned
#pragma once

#include "core/objects/objects.h"

#include <pthread.h>

#define CKPT_HTTP_HEADERS_MAX 8192 // bytes of an answer's; more of them is -EIO
#define CKPT_HTTP_WHY_MAX 256

struct ckpt_http;

struct ckpt_http_config {
	unsigned connections_max; // other requests wait; 0: 32
	uint64_t bytes_per_s;     // of all together, each way; 0: no limit
	int64_t quiet_ns;         // a request ends when less than 1 KiB/s came and went for so long; 0: 30 s
};

struct ckpt_http_answer {
	int status;
	char headers[CKPT_HTTP_HEADERS_MAX]; // lines, each with a NUL behind it
	size_t headers_len;
	char why[CKPT_HTTP_WHY_MAX]; // of a failure, for people; no secret is in it
};

// Gets the body, piece by piece, when all headers are there. 0: go on; 1: that is enough, the request has succeeded; -errno.
typedef int ckpt_http_take_fn(void *arg, const struct ckpt_http_answer *answer, const void *data, size_t len);

struct ckpt_http_request {
	const char *method;
	const char *url;
	const char *const *headers; // "name: value"; NULL behind the last, or NULL
	const void *body;
	size_t body_len;
	const struct ckpt_source
		*source;  // has the body_len bytes of the body, instead of `body`; read on the thread of the requests
	bool once;        // what was sent in part is never sent again on another connection, not even by libcurl
	bool direct;      // through no proxy
	bool allow_http;  // without TLS
	int64_t limit_ns; // for all of it, once a connection is free; 0: a minute, and a second for each 100 KB of `len`
	size_t len;       // of the body that is expected, for that limit
	const struct ckpt_until *until; // NULL: limit_ns is all
	ckpt_http_take_fn *take;        // NULL: the body is dropped
	void *arg;
};

struct ckpt_http_call {
	struct ckpt_http_request request;
	struct ckpt_http_answer answer;
	// The unit's own.
	struct ckpt_http_call *next;
	void *easy, *lines;
	size_t sent; // of the body
	int result, taken, stop;
	bool is_started, is_done;
};

int ckpt_http_new(const struct ckpt_http_config *config, struct ckpt_http **ret_http);
void ckpt_http_free(struct ckpt_http *http); // NULL is fine

// On failure the call has ended, and ckpt_http_wait() says the same.
int ckpt_http_start(struct ckpt_http *http, struct ckpt_http_call *call);
int ckpt_http_wait(struct ckpt_http *http, struct ckpt_http_call *call);
int ckpt_http_run(struct ckpt_http *http, struct ckpt_http_call *call);

// The value of a header, "" where the answer has none or a longer one.
void ckpt_http_header(const struct ckpt_http_answer *answer, const char *name, char *ret_value, size_t size);
// Of "Fri, 27 Nov 2026 20:34:32 GMT"; 0 where it is not one.
int64_t ckpt_http_time_ns(const char *text);

// A take function that keeps the body.
struct ckpt_http_text {
	char *data; // malloc'ed, the caller's
	size_t len, cap;
	size_t max; // a longer one is -EFBIG
};
ckpt_http_take_fn ckpt_http_take_text;
