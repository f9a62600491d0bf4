// The S3 backend in front of a server that answers as the test says (httpd.h). For suites of backends/s3*.c.
#pragma once

#include "tests/support/httpd.h"
#include "tests/support/suite.h"

#include "backends/s3.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#define DATE "Date: Fri, 27 Nov 2026 21:01:13 GMT\r\n"
#define TIME "Last-Modified: Fri, 27 Nov 2026 21:01:13 GMT\r\n"
#define ETAG "ETag: \"e1\"\r\n"
#define EMPTY "Content-Length: 0\r\n\r\n"
#define OK_PUT "HTTP/1.1 200 OK\r\n" ETAG DATE EMPTY
#define CANARY "canary-of-a-secret"

// The server's answers, one for each request; the last one again and again.
static struct script {
	struct httpd_reply replies[8];
	size_t count;
	char requests[8][4096];
} script;

static inline struct httpd_reply play(void *arg, size_t n, const char *request)
{
	size_t at = MIN(n, script.count - 1);

	(void)arg;
	snprintf(script.requests[MIN(n, ARRAY_LEN(script.requests) - 1)], sizeof(script.requests[0]), "%s", request);
	return script.replies[at];
}

static struct httpd server;
static struct ckpt_objects *s3;
static char why[CKPT_OBJECTS_WHY_MAX];
static char logged[65536];

static inline void keep_log(enum ckpt_log_level level, const char *line)
{
	(void)level;
	strncat(logged, line, sizeof(logged) - strlen(logged) - 1);
}

static inline void open_with(const char *url, const char *const *options, bool writable)
{
	struct ckpt_s3_config config;

	ck_ok(ckpt_s3_config_parse(url, options, &config, why));
	config.quiet_ns = INT64_C(3000000000);
	ck_assert_msg(!ckpt_s3_new(&config, writable, why, &s3), "%s", why);
}

static inline void setup(void)
{
	char option[64];

	script = (struct script){0};
	server = (struct httpd){.serve = play};
	httpd_start(&server);
	setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
	setenv("AWS_SECRET_ACCESS_KEY", CANARY, 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null/none", 1);
	setenv("AWS_CONFIG_FILE", "/dev/null/none", 1);
	unsetenv("AWS_SESSION_TOKEN");
	unsetenv("AWS_PROFILE");
	unsetenv("AWS_REGION");
	ckpt_log_to(keep_log, CKPT_LOG_DEBUG);
	snprintf(option, sizeof(option), "endpoint=%s", server.url);
	open_with("s3://bucket/run", (const char *const[]){option, NULL}, true);
}

static inline void teardown(void)
{
	ckpt_objects_close(s3);
	httpd_stop(&server);
	ck_assert_ptr_null(strstr(logged, CANARY)); // at the highest level, after anything that may go wrong
}

static inline void say(size_t n, const char *text, int then)
{
	script.replies[n] = (struct httpd_reply){text, then};
	script.count = MAX(script.count, n + 1);
	httpd_step(&server);
}

static inline const char *asked(size_t n)
{
	httpd_step(&server);
	return script.requests[n];
}

// Formats "HTTP/1.1 STATUS x" with the body of an error.
static inline const char *error(int status, const char *code, const char *more)
{
	static char texts[8][1024];
	static unsigned next;
	char *text = texts[next++ % 8], body[512];

	snprintf(body, sizeof(body), "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>no</Message>%s</Error>",
		 code, more);
	snprintf(text, sizeof(texts[0]), "HTTP/1.1 %d x\r\n" DATE "Content-Length: %zu\r\n\r\n%s", status, strlen(body),
		 *code ? body : "");
	if (!*code)
		snprintf(text, sizeof(texts[0]), "HTTP/1.1 %d x\r\n" EMPTY, status);
	return text;
}

static inline int put(void)
{
	int rc = ckpt_objects_put(s3, "log/0001", "hello", 5, NULL);

	httpd_step(&server);
	return rc;
}

static char buf[64];
static size_t got;

static inline int get(uint64_t offset, size_t len)
{
	struct ckpt_object object;

	int rc = ckpt_objects_get(s3, "m/x", offset, buf, len, &got, &object);

	httpd_step(&server);
	return rc;
}
