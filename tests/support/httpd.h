// A server on loopback that answers as a test says: right, wrong, cut off, late, or not at all. A thread for each connection.
//
// Calling sequence: httpd_start(), requests, httpd_stop(). serve() is called on these threads for each request.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTPD_REQUEST_MAX 16384

struct httpd_reply {
	const char *text; // sent as it is, with status line and headers; NULL: nothing
	enum { HTTPD_GO_ON, HTTPD_CLOSE, HTTPD_RESET, HTTPD_STALL } then;
};

// request has its headers and the start of its body, with a NUL; n counts from 0.
typedef struct httpd_reply httpd_serve_fn(void *arg, size_t n, const char *request);

struct httpd {
	httpd_serve_fn *serve;
	void *arg;
	bool resets_early; // each connection, once the headers are there
	int fd;
	uint16_t port;
	char url[32];   // "http://127.0.0.1:PORT"
	size_t count;   // of requests, atomic
	unsigned steps; // atomic: what a test wrote before, a later answer has seen, and the other way round
	size_t connections;
	bool stopping;
	unsigned long thread;
};

void httpd_start(struct httpd *h);
void httpd_stop(struct httpd *h);
// How many requests came. What serve() wrote for them can be read now, and what is written before the next call of this or of
// httpd_step() is seen by later answers: TSan does not know that bytes of a socket come after what was done before they were sent.
size_t httpd_count(struct httpd *h);
void httpd_step(struct httpd *h);
