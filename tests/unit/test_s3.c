// The S3 backend against a server that answers as the test says: each wrong answer, each way to lose one, and what becomes of it.
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

// What the server says, one answer for each request; the last one again and again.
static struct script {
	struct httpd_reply replies[8];
	size_t count;
	char requests[8][4096];
} script;

static struct httpd_reply play(void *arg, size_t n, const char *request)
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

static void keep_log(enum ckpt_log_level level, const char *line)
{
	(void)level;
	strncat(logged, line, sizeof(logged) - strlen(logged) - 1);
}

static void open_with(const char *url, const char *const *options, bool writable)
{
	struct ckpt_s3_config config;

	ck_ok(ckpt_s3_config_parse(url, options, &config, why));
	config.quiet_ns = INT64_C(3000000000);
	ck_assert_msg(!ckpt_s3_new(&config, writable, why, &s3), "%s", why);
}

static void setup(void)
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

static void teardown(void)
{
	ckpt_objects_close(s3);
	httpd_stop(&server);
	ck_assert_ptr_null(strstr(logged, CANARY)); // at the highest level, after anything that may go wrong
}

static void say(size_t n, const char *text, int then)
{
	script.replies[n] = (struct httpd_reply){text, then};
	script.count = MAX(script.count, n + 1);
	httpd_step(&server);
}

static const char *asked(size_t n)
{
	httpd_step(&server);
	return script.requests[n];
}

// Formats "HTTP/1.1 STATUS x" with the body of an error.
static const char *error(int status, const char *code, const char *more)
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

static int put(void)
{
	int rc = ckpt_objects_put(s3, "log/0001", "hello", 5, NULL);

	httpd_step(&server);
	return rc;
}

static char buf[64];
static size_t got;

static int get(uint64_t offset, size_t len)
{
	struct ckpt_object object;

	int rc = ckpt_objects_get(s3, "m/x", offset, buf, len, &got, &object);

	httpd_step(&server);
	return rc;
}

// ---- Put

START_TEST(a_put_is_conditional_signed_and_carries_its_sum)
{
	struct ckpt_object object;

	say(0, OK_PUT, HTTPD_GO_ON);
	ck_ok(ckpt_objects_put(s3, "log/0001", "hello", 5, &object));
	ck_assert_str_eq(object.etag, "e1");
	ck_assert_int_eq(object.mtime_ns, INT64_C(1795813273000000000));
	ck_assert_ptr_nonnull(strstr(asked(0), "PUT /bucket/run/log/0001 HTTP/1.1\r\n"));
	ck_assert_ptr_nonnull(strstr(asked(0), "if-none-match: *\r\n"));
	ck_assert_ptr_nonnull(strstr(asked(0), "x-amz-content-sha256: "
					       "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\r\n"));
	ck_assert_ptr_nonnull(
		strstr(asked(0), "x-amz-checksum-sha256: LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=\r\n"));
	ck_assert_ptr_nonnull(strstr(asked(0), "/us-east-1/s3/aws4_request,SignedHeaders=host;if-none-match;"));
	ck_assert_ptr_null(strcasestr(asked(0), "expect:"));
	ck_assert_ptr_null(strstr(asked(0), CANARY));
}
END_TEST

static const struct {
	int status;
	const char *code;
	int put, get; // -errno
} statuses[] = {
	{412, "PreconditionFailed", -EEXIST, -EIO},
	{409, "ConditionalRequestConflict", -EAGAIN, -EAGAIN},
	{409, "", -EAGAIN, -EAGAIN},
	{503, "SlowDown", -EAGAIN, -EAGAIN},
	{429, "", -EAGAIN, -EAGAIN},
	{503, "ServiceUnavailable", -EIO, -EAGAIN},
	{500, "InternalError", -EIO, -EAGAIN},
	{502, "", -EIO, -EAGAIN},
	{504, "", -EIO, -EAGAIN},
	{403, "AccessDenied", -EACCES, -EACCES},
	{403, "InvalidAccessKeyId", -EACCES, -EACCES},
	{403, "", -EACCES, -EACCES},
	{404, "NoSuchKey", -EIO, -ENOENT},
	{404, "NoSuchBucket", -EINVAL, -EINVAL},
	{403, "QuotaExceeded", -EDQUOT, -EDQUOT},
	{507, "", -ENOSPC, -ENOSPC},
	{501, "NotImplemented", -EINVAL, -EINVAL},
	{400, "RequestTimeout", -EAGAIN, -EAGAIN},
	{400, "BadDigest", -EAGAIN, -EAGAIN},
	{418, "", -EIO, -EIO},
};

START_TEST(each_status_has_its_errno)
{
	say(0, error(statuses[_i].status, statuses[_i].code, ""), HTTPD_GO_ON);
	ck_assert_int_eq(put(), statuses[_i].put);
	ck_assert_int_eq(get(0, 5), statuses[_i].get);
	ckpt_objects_why(s3, why);
	if (*statuses[_i].code && statuses[_i].get != -ENOENT)
		ck_assert_msg(strstr(why, statuses[_i].code) != NULL, "%s", why);
}
END_TEST

START_TEST(a_redirect_is_an_error_that_names_the_region_and_is_not_followed)
{
	say(0, "HTTP/1.1 301 x\r\nx-amz-bucket-region: eu-west-1\r\nLocation: http://127.0.0.1:1/\r\n" EMPTY,
	    HTTPD_GO_ON);
	ck_error(put(), EINVAL);
	ckpt_objects_why(s3, why);
	ck_assert_msg(strstr(why, "say region=eu-west-1") != NULL, "%s", why);
	say(0, error(400, "AuthorizationHeaderMalformed", "<Region>eu-north-1</Region>"), HTTPD_GO_ON);
	ck_error(get(0, 1), EINVAL);
	ckpt_objects_why(s3, why);
	ck_assert_msg(strstr(why, "say region=eu-north-1") != NULL, "%s", why);
	say(0, "HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:1/bucket/run/log/0001\r\n" EMPTY, HTTPD_GO_ON);
	ck_error(put(), EINVAL);
	ckpt_objects_why(s3, why);
	ck_assert_msg(strstr(why, "redirects are not followed") != NULL, "%s", why);
	ck_assert_uint_eq(httpd_count(&server), 3);
}
END_TEST

START_TEST(an_error_inside_of_200_is_an_error)
{
	say(0,
	    "HTTP/1.1 200 OK\r\n" ETAG "Content-Length: 69\r\n\r\n"
	    "<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>      \n",
	    HTTPD_GO_ON);
	ck_error(put(), EIO);
	say(0,
	    "HTTP/1.1 200 OK\r\n" ETAG "Content-Length: 36\r\n\r\n"
	    "<Error><Code>SlowDown</Code></Error>",
	    HTTPD_GO_ON);
	ck_error(put(), EAGAIN);
	say(0, "HTTP/1.1 200 OK\r\n" EMPTY, HTTPD_GO_ON); // without an etag
	ck_error(put(), EIO);
}
END_TEST

START_TEST(a_lost_answer_is_unknown_and_nothing_is_sent_twice)
{
	say(0, OK_PUT, HTTPD_GO_ON); // so that the connection is an old one, which libcurl would give up for a new one
	say(1, NULL, HTTPD_RESET);
	say(2, OK_PUT, HTTPD_GO_ON);
	ck_ok(put());
	ck_error(put(), EIO);
	ck_assert_uint_eq(httpd_count(&server), 2);
	say(2, NULL, HTTPD_CLOSE);
	ck_error(put(), EIO);
	say(3, "HTTP/1.1 200 OK\r\nETa", HTTPD_CLOSE);
	ck_error(put(), EIO);
	ck_assert_uint_eq(httpd_count(&server), 4);
}
END_TEST

static struct httpd_reply leave(void *arg, size_t n, const char *request)
{
	(void)arg, (void)request;
	if (!n)
		return (struct httpd_reply){OK_PUT, HTTPD_GO_ON};
	shutdown(server.fd, SHUT_RDWR);
	return (struct httpd_reply){NULL, HTTPD_CLOSE};
}

// The old connection breaks, and there is no new one: what went over the old one may have arrived.
START_TEST(a_store_that_goes_away_leaves_an_unknown_outcome)
{
	server.serve = leave;
	httpd_step(&server);
	ck_ok(put());
	ck_error(put(), EIO);
	ck_error(put(), EAGAIN);
}
END_TEST

START_TEST(an_empty_put_is_not_sent_twice_either)
{
	say(0, OK_PUT, HTTPD_GO_ON);
	say(1, NULL, HTTPD_CLOSE);
	say(2, OK_PUT, HTTPD_GO_ON);
	ck_ok(put());
	ck_error(ckpt_objects_put(s3, "parts/a/1", NULL, 0, NULL), EIO);
	ck_assert_uint_eq(httpd_count(&server), 2);
}
END_TEST

START_TEST(a_reset_before_the_body_is_there_is_unknown)
{
	size_t len = 8 << 20;
	CLEANUP_FREE char *data = calloc(1, len);

	server.resets_early = true;
	say(0, NULL, HTTPD_RESET);
	ck_error(ckpt_objects_put(s3, "log/0001", data, len, NULL), EIO);
	ck_assert_uint_eq(httpd_count(&server), 1);
}
END_TEST

START_TEST(a_store_that_is_not_there_was_asked_for_nothing)
{
	httpd_stop(&server);
	ck_error(put(), EAGAIN);
	ck_error(get(0, 1), EAGAIN);
	ckpt_objects_why(s3, why);
	ck_assert_msg(strstr(why, "127.0.0.1") != NULL, "%s", why);
	httpd_start(&server);
}
END_TEST

START_TEST(silence_ends_a_call)
{
	int64_t started_ns = ckpt_sys.mono_ns();

	say(0, NULL, HTTPD_STALL);
	ck_error(put(), ETIMEDOUT);
	ck_assert_int_lt(ckpt_sys.mono_ns() - started_ns, INT64_C(20000000000));
}
END_TEST

START_TEST(a_read_only_store_changes_nothing)
{
	char option[64];

	ckpt_objects_close(s3);
	snprintf(option, sizeof(option), "endpoint=%s", server.url);
	open_with("s3://bucket", (const char *const[]){option, NULL}, false);
	ck_error(put(), EROFS);
	ck_error(ckpt_objects_remove(s3, "m/x"), EROFS);
	ck_assert_uint_eq(httpd_count(&server), 0);
}
END_TEST

// ---- Get

#define PART(range, body, length)                                                                                      \
	"HTTP/1.1 206 x\r\n" ETAG TIME "Content-Range: " range "\r\nContent-Length: " length "\r\n\r\n" body

START_TEST(a_range_is_asked_for_and_checked)
{
	say(0, PART("bytes 2-4/5", "llo", "3"), HTTPD_GO_ON);
	ck_ok(get(2, 10));
	ck_assert_uint_eq(got, 3);
	ck_assert_mem_eq(buf, "llo", 3);
	ck_assert_ptr_nonnull(strstr(asked(0), "range: bytes=2-11\r\n"));
}
END_TEST

static const char *const wrong_parts[] = {
	PART("bytes 1-3/5", "ell", "3"), // of another place
	PART("bytes 1-4/5", "llo", "3"),
	PART("bytes 2-3/5", "ll", "2"),                                                 // not all of it
	PART("bytes 2-4/5", "ll", "2"),                                                 // fewer bytes than it says
	PART("bytes 2-4/5", "lloo", "4"),                                               // more
	PART("bytes 2-4/*", "llo", "3"),                                                // of nobody knows what
	PART("bytes 2-4/4", "llo", "3"),                                                // that does not fit
	PART("bytes 18446744073709551618-4/5", "llo", "3"),                             // beyond a number
	PART("octets 2-4/5", "llo", "3"),                                               // in other words
	"HTTP/1.1 206 x\r\n" ETAG "Content-Length: 3\r\n\r\nllo",                       // without a range
	"HTTP/1.1 206 x\r\nContent-Range: bytes 2-4/5\r\nContent-Length: 3\r\n\r\nllo", // without an etag
	"HTTP/1.1 204 x\r\n" ETAG "\r\n",
};

START_TEST(a_wrong_part_is_refused)
{
	say(0, wrong_parts[_i], HTTPD_CLOSE);
	ck_error(get(2, 10), EIO);
}
END_TEST

START_TEST(an_answer_without_its_body_is_refused)
{
	say(0, PART("bytes 0-0/1", "", "0"), HTTPD_CLOSE);
	ck_error(get(0, 10), EIO);
	say(1, "HTTP/1.1 200 x\r\n" ETAG "Content-Length: 0\r\nContent-Range: bytes 0-0/1\r\n\r\n", HTTPD_CLOSE);
	ck_error(get(0, 10), EIO);
}
END_TEST

START_TEST(a_body_that_is_cut_off_is_refused)
{
	say(0, PART("bytes 2-4/5", "ll", "3"), HTTPD_CLOSE);
	ck_error(get(2, 10), EIO);
	say(1, "HTTP/1.1 200 x\r\n" ETAG "Content-Length: 5\r\n\r\nhel", HTTPD_CLOSE);
	ck_error(get(2, 3), EIO);
	say(2, "HTTP/1.1 200 x\r\n" ETAG "\r\nhello", HTTPD_CLOSE); // however long it is
	ck_error(get(2, 3), EIO);
}
END_TEST

START_TEST(the_whole_object_is_taken_for_a_range_of_it)
{
	say(0, "HTTP/1.1 200 x\r\n" ETAG TIME "Content-Length: 11\r\n\r\nhello world", HTTPD_GO_ON);
	ck_ok(get(2, 3));
	ck_assert_uint_eq(got, 3);
	ck_assert_mem_eq(buf, "llo", 3);
	ck_ok(get(6, 64));
	ck_assert_uint_eq(got, 5);
	ck_assert_mem_eq(buf, "world", 5);
	ck_ok(get(11, 4));
	ck_assert_uint_eq(got, 0);
	say(0, "HTTP/1.1 200 x\r\n" ETAG TIME "Content-Range: bytes 2-4/5\r\nContent-Length: 3\r\n\r\nllo",
	    HTTPD_GO_ON);
	ck_ok(get(2, 10));
	ck_assert_mem_eq(buf, "llo", 3);
}
END_TEST

START_TEST(a_bit_that_is_not_the_one_that_was_put_is_found)
{
	static const char sum[] = "x-amz-checksum-sha256: LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=\r\n";
	char right[512], wrong[512];

	snprintf(right, sizeof(right),
		 "HTTP/1.1 206 x\r\n%s" ETAG "Content-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nhello", sum);
	say(0, right, HTTPD_GO_ON);
	ck_ok(get(0, 64));
	snprintf(wrong, sizeof(wrong),
		 "HTTP/1.1 206 x\r\n%s" ETAG "Content-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nhellp", sum);
	say(0, wrong, HTTPD_GO_ON);
	ck_error(get(0, 64), EIO);
	ckpt_objects_why(s3, why);
	ck_assert_msg(strstr(why, "SHA-256") != NULL, "%s", why);
}
END_TEST

START_TEST(ranges_of_two_versions_are_estale)
{
	static char many[2][400000];
	struct ckpt_range ranges[] = {{.offset = 0, .len = 4, .buf = many[0]},
				      {.offset = 1 << 20, .len = 4, .buf = many[1]}};

	script.count = 2;
	say(0, "HTTP/1.1 206 x\r\nETag: \"a\"\r\nContent-Range: bytes 0-3/2097152\r\nContent-Length: 4\r\n\r\nabcd",
	    HTTPD_GO_ON);
	// Which of the two requests comes first nobody knows: of one of them the range is wrong, or the etags differ.
	say(1,
	    "HTTP/1.1 206 x\r\nETag: \"b\"\r\nContent-Range: bytes 1048576-1048579/2097152\r\nContent-Length: "
	    "4\r\n\r\nabcd",
	    HTTPD_GO_ON);
	for (int i = 0, rc = -EIO; i < 50 && rc == -EIO; i++) {
		__atomic_store_n(&server.count, 0, __ATOMIC_RELAXED);
		rc = ckpt_objects_get_ranges(s3, "packs/p", ranges, 2, NULL, NULL);
		ck_assert(rc == -EIO || rc == -ESTALE);
		if (rc == -ESTALE)
			return;
	}
	ck_abort_msg("never ESTALE");
}
END_TEST

START_TEST(a_stalled_body_ends_at_the_deadline_or_when_it_is_called_off)
{
	bool cancelled = false;
	struct ckpt_range range = {.len = 5, .buf = buf};
	struct ckpt_until until = {.deadline_ns = ckpt_sys.mono_ns() + 100000000};
	int64_t started_ns = ckpt_sys.mono_ns();

	say(0, PART("bytes 0-4/5", "he", "5"), HTTPD_STALL);
	ck_error(ckpt_objects_get_ranges(s3, "m/x", &range, 1, &until, NULL), ETIMEDOUT);
	ck_assert_int_lt(ckpt_sys.mono_ns() - started_ns, INT64_C(2900000000));
	until = (struct ckpt_until){.cancelled = &cancelled};
	cancelled = true;
	ck_error(ckpt_objects_get_ranges(s3, "m/x", &range, 1, &until, NULL), ECANCELED);
}
END_TEST

static void *call_off(void *arg)
{
	usleep(200000);
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELAXED);
	return NULL;
}

START_TEST(a_call_is_called_off_while_it_waits)
{
	bool cancelled = false;
	struct ckpt_range range = {.len = 5, .buf = buf};
	struct ckpt_until until = {.cancelled = &cancelled};
	int64_t started_ns = ckpt_sys.mono_ns();
	pthread_t thread;

	say(0, NULL, HTTPD_STALL);
	ck_assert(!pthread_create(&thread, NULL, call_off, &cancelled));
	ck_error(ckpt_objects_get_ranges(s3, "m/x", &range, 1, &until, NULL), ECANCELED);
	ck_assert_int_lt(ckpt_sys.mono_ns() - started_ns, INT64_C(2900000000));
	pthread_join(thread, NULL);
}
END_TEST

static int read_nothing(void *arg, uint64_t offset, void *to, size_t len)
{
	unsigned *reads = arg;

	(void)offset;
	memset(to, 0, len);
	return (*reads)-- ? 0 : -EACCES;
}

START_TEST(a_put_is_called_off_while_it_waits)
{
	bool cancelled = false;
	unsigned reads = UINT_MAX;
	struct ckpt_until until = {.cancelled = &cancelled};
	const struct ckpt_source source = {.bytes = 5, .read = read_nothing, .arg = &reads};
	int64_t started_ns = ckpt_sys.mono_ns();
	pthread_t thread;

	say(0, NULL, HTTPD_STALL);
	ck_assert(!pthread_create(&thread, NULL, call_off, &cancelled));
	ck_error(ckpt_objects_put_from(s3, "packs/x", &source, &until, NULL), ECANCELED);
	ck_assert_int_lt(ckpt_sys.mono_ns() - started_ns, INT64_C(2900000000));
	pthread_join(thread, NULL);
}
END_TEST

// First it is hashed, and then it is sent.
START_TEST(a_source_that_fails_sends_nothing_or_not_all)
{
	unsigned reads = 0;
	const struct ckpt_source source = {.bytes = 5, .read = read_nothing, .arg = &reads};

	say(0, OK_PUT, HTTPD_GO_ON);
	ck_error(ckpt_objects_put_from(s3, "packs/x", &source, NULL, NULL), EACCES);
	ck_assert_uint_eq(httpd_count(&server), 0);
	reads = 1;
	ck_error(ckpt_objects_put_from(s3, "packs/x", &source, NULL, NULL), EIO);
	ckpt_objects_why(s3, why);
	ck_assert_ptr_nonnull(strstr(why, "cannot be read"));
}
END_TEST

START_TEST(why_a_head_is_refused_says_a_get)
{
	struct ckpt_object object;

	say(0, "HTTP/1.1 403 x\r\n" EMPTY, HTTPD_GO_ON);
	say(1, error(403, "InvalidAccessKeyId", ""), HTTPD_GO_ON);
	ck_error(ckpt_objects_head(s3, "m/x", &object), EACCES);
	ckpt_objects_why(s3, why);
	ck_assert_msg(strstr(why, "InvalidAccessKeyId") != NULL, "%s", why);
	say(2, "HTTP/1.1 200 x\r\n" ETAG TIME "Content-Length: 77\r\n\r\n", HTTPD_GO_ON);
	ck_ok(ckpt_objects_head(s3, "m/x", &object));
	ck_assert_uint_eq(object.bytes, 77);
}
END_TEST

// ---- Clock, keys

START_TEST(a_wrong_clock_is_corrected_by_the_stores)
{
	char date[64];
	time_t theirs = (time_t)(ckpt_sys.now_ns() / 1000000000) + 7200;
	struct tm tm;

	gmtime_r(&theirs, &tm);
	ck_assert_int_gt(strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm), 0);
	char text[512];
	snprintf(text, sizeof(text),
		 "HTTP/1.1 403 x\r\nDate: %s\r\nContent-Length: "
		 "48\r\n\r\n<Error><Code>RequestTimeTooSkewed</Code></Error>",
		 date);
	say(0, text, HTTPD_GO_ON);
	say(1, OK_PUT, HTTPD_GO_ON);
	ck_ok(put());
	strftime(date, sizeof(date), "x-amz-date: %Y%m%dT%H", &tm);
	ck_assert_ptr_nonnull(strstr(asked(1), date));
}
END_TEST

START_TEST(keys_that_have_expired_are_fetched_again)
{
	setenv("AWS_SESSION_TOKEN", "old-token", 1);
	say(0, error(400, "ExpiredToken", ""), HTTPD_GO_ON);
	say(1, OK_PUT, HTTPD_GO_ON);
	ck_ok(put());
	ck_assert_uint_eq(httpd_count(&server), 2);
	ck_assert_ptr_nonnull(strstr(asked(1), "x-amz-security-token: old-token\r\n"));
	ck_assert_ptr_nonnull(strstr(asked(1), ";x-amz-security-token,"));
	script.count = 1; // for ever
	httpd_step(&server);
	__atomic_store_n(&server.count, 0, __ATOMIC_RELAXED);
	ck_error(put(), EACCES);
	ck_assert_uint_eq(httpd_count(&server), 2);
}
END_TEST

// ---- List

static int nothing(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)object;
	strcat(arg, key);
	strcat(arg, " ");
	return 0;
}

static const char *page(const char *keys, const char *token, bool truncated)
{
	static char texts[8][4096];
	static unsigned next;
	char *text = texts[next++ % ARRAY_LEN(texts)], body[3000] = "<ListBucketResult>", copy[256], *at;

	snprintf(copy, sizeof(copy), "%s", keys);
	for (char *key = strtok_r(copy, " ", &at); key; key = strtok_r(NULL, " ", &at))
		snprintf(body + strlen(body), sizeof(body) - strlen(body),
			 "<Contents><Key>%s</Key><LastModified>2026-11-27T21:01:13Z</LastModified><ETag>e</"
			 "ETag><Size>1</Size>"
			 "</Contents>",
			 key);
	snprintf(body + strlen(body), sizeof(body) - strlen(body),
		 "<IsTruncated>%s</IsTruncated>%s%s%s</ListBucketResult>", truncated ? "true" : "false",
		 *token ? "<NextContinuationToken>" : "", token, *token ? "</NextContinuationToken>" : "");
	snprintf(text, sizeof(texts[0]), "HTTP/1.1 200 x\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
	return text;
}

START_TEST(pages_are_joined_and_sorted)
{
	char keys[256] = "";

	say(0, page("run/parts/a/b run/parts/a-b run/foreign run/m/z", "t/1 +", true), HTTPD_GO_ON);
	say(1, error(503, "SlowDown", ""), HTTPD_GO_ON);
	say(2, page("run/m/a run/parts/a-b run/log/", "", false), HTTPD_GO_ON);
	ck_ok(ckpt_objects_list(s3, "", NULL, nothing, keys));
	ck_assert_str_eq(keys, "m/a m/z parts/a-b parts/a/b ");
	ck_assert_ptr_nonnull(
		strstr(asked(0), "GET /bucket?encoding-type=url&list-type=2&max-keys=1000&prefix=run%2F "));
	ck_assert_ptr_nonnull(strstr(asked(2), "?continuation-token=t%2F1%20%2B&encoding-type="));
}
END_TEST

// A store behind a proxy has answered so: the keys of the right page would be missing.
START_TEST(a_page_that_is_the_one_before_is_asked_for_again)
{
	char keys[256] = "";

	say(0, page("run/m/a run/m/b", "t", true), HTTPD_GO_ON);
	say(1, page("run/m/b run/m/a", "u", true), HTTPD_GO_ON);
	say(2, page("run/m/c run/m/d", "u", true), HTTPD_GO_ON);
	say(3, page("run/m/e", "", false), HTTPD_GO_ON);
	ck_ok(ckpt_objects_list(s3, "m/", NULL, nothing, keys));
	ck_assert_str_eq(keys, "m/a m/b m/c m/d m/e ");
	ck_assert_ptr_nonnull(strstr(asked(2), "?continuation-token=t&"));
}
END_TEST

START_TEST(a_page_of_the_same_list_is_asked_for_again)
{
	char keys[256] = "";

	say(0, page("run/m/a", "t", true), HTTPD_GO_ON);
	say(1, page("run/m/b", "u", true), HTTPD_GO_ON);
	say(2, page("run/m/a", "v", true), HTTPD_GO_ON);
	say(3, page("", "v", true), HTTPD_GO_ON);
	say(4, page("run/m/b", "", false), HTTPD_GO_ON);
	say(5, page("run/m/c", "", false), HTTPD_GO_ON);
	ck_ok(ckpt_objects_list(s3, "m/", NULL, nothing, keys));
	ck_assert_str_eq(keys, "m/a m/b m/c ");
	ck_assert_ptr_nonnull(strstr(asked(3), "?continuation-token=u&"));
	ck_assert_ptr_nonnull(strstr(asked(5), "?continuation-token=v&"));
}
END_TEST

START_TEST(a_list_that_does_not_get_on_or_strays_is_refused)
{
	char keys[256] = "";

	say(0, page("run/m/a", "t", true), HTTPD_GO_ON);
	ck_error(ckpt_objects_list(s3, "m/", NULL, nothing, keys), EIO);
	say(0, page("run/m/a", "", true), HTTPD_GO_ON);
	ck_error(ckpt_objects_list(s3, "m/", NULL, nothing, keys), EIO);
	say(0, page("other/m/a", "", false), HTTPD_GO_ON);
	ck_error(ckpt_objects_list(s3, "m/", NULL, nothing, keys), EIO);
	say(0, page("run/packs/a", "", false), HTTPD_GO_ON);
	ck_error(ckpt_objects_list(s3, "m/", NULL, nothing, keys), EIO);
	ck_assert_str_eq(keys, "");
}
END_TEST

// ---- Parts

#define PARTS_BYTES (((size_t)96 << 20) + 1)
#define LAST_BASE64 "bjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB0=" // of one zero byte
#define LAST_SUM "x-amz-checksum-sha256: " LAST_BASE64 "\r\n"
#define FULL_SUM "x-amz-checksum-sha256: g+5HJFOYre55vZwKi8V7gh6Sq6EPX5reil0frk2MQwI=\r\n"

static struct {
	unsigned begun, parts, completed, aborted, fails; // atomic
	unsigned summed;                                  // parts that say their SHA-256
	bool error_inside;
} upload;

static struct httpd_reply answer(const char *body)
{
	static _Thread_local char text[2048];

	snprintf(text, sizeof(text), "HTTP/1.1 200 x\r\n" DATE "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
	return (struct httpd_reply){text, HTTPD_GO_ON};
}

static struct httpd_reply serve_upload(void *arg, size_t n, const char *request)
{
	(void)arg, (void)n;
	if (strstr(request, "?uploads= ")) {
		upload.begun++;
		ck_assert_ptr_nonnull(strstr(request, "x-amz-checksum-algorithm: SHA256\r\n"));
		return answer(
			"<InitiateMultipartUploadResult><UploadId>a/b</UploadId></InitiateMultipartUploadResult>");
	}
	if (strstr(request, "?partNumber=")) {
		if (strstr(request, strstr(request, "?partNumber=4") ? LAST_SUM : FULL_SUM))
			__atomic_fetch_add(&upload.summed, 1, __ATOMIC_RELAXED);
		if (__atomic_fetch_add(&upload.parts, 1, __ATOMIC_RELAXED) < upload.fails)
			return (struct httpd_reply){NULL, HTTPD_RESET};
		return (struct httpd_reply){OK_PUT, HTTPD_GO_ON};
	}
	if (!strncmp(request, "DELETE ", 7)) {
		upload.aborted++;
		return (struct httpd_reply){"HTTP/1.1 204 x\r\n\r\n", HTTPD_GO_ON};
	}
	upload.completed++;
	if (upload.error_inside)
		return answer("<Error><Code>InternalError</Code></Error>");
	ck_assert_ptr_nonnull(strstr(request, "?uploadId=a%2Fb "));
	ck_assert_ptr_nonnull(strstr(request, "if-none-match: *\r\n"));
	ck_assert_ptr_nonnull(strstr(request, "<Part><PartNumber>4</PartNumber><ETag>\"e1\"</ETag>"
					      "<ChecksumSHA256>" LAST_BASE64 "</ChecksumSHA256></Part>"));
	return answer("<CompleteMultipartUploadResult><ETag>\"e-5\"</ETag></CompleteMultipartUploadResult>");
}

static int put_parts(const char *key, struct ckpt_object *object)
{
	CLEANUP_FREE char *data = calloc(1, PARTS_BYTES);
	int rc;

	server.serve = serve_upload;
	httpd_step(&server);
	rc = ckpt_objects_put(s3, key, data, PARTS_BYTES, object);
	httpd_step(&server);
	return rc;
}

START_TEST(a_large_pack_is_put_in_parts_which_are_sent_again)
{
	struct ckpt_object object;

	upload.fails = 2;
	ck_ok(put_parts("packs/p", &object));
	ck_assert_str_eq(object.etag, "e-5");
	ck_assert_uint_eq(object.bytes, PARTS_BYTES);
	ck_assert_uint_eq(upload.parts, 6);
	ck_assert_uint_eq(upload.summed, 6);
	ck_assert_uint_eq(upload.completed, 1);
	ck_assert_uint_eq(upload.aborted, 0);
}
END_TEST

START_TEST(parts_that_cannot_be_joined_are_taken_back)
{
	upload.error_inside = true;
	ck_error(put_parts("packs/p", NULL), EIO);
	ck_assert_uint_eq(upload.completed, 1);
	ck_assert_uint_eq(upload.aborted, 1);
}
END_TEST

#define LEFT(key, time) "<Upload><Key>" key "</Key><UploadId>a/b</UploadId><Initiated>" time "</Initiated></Upload>"
#define LEFT_PAGE(more, inner)                                                                                         \
	"<ListMultipartUploadsResult><IsTruncated>" more "</IsTruncated><NextKeyMarker>run/m/k</NextKeyMarker>"        \
	"<NextUploadIdMarker>i/1</NextUploadIdMarker>" inner "</ListMultipartUploadsResult>"
#define EARLY "2026-11-27T10:00:00.000Z"
#define LATE "2026-11-28T10:00:00.000Z"

static struct httpd_reply serve_left(void *arg, size_t n, const char *request)
{
	(void)arg, (void)n;
	if (!strncmp(request, "DELETE ", 7)) {
		ck_assert(strstr(request, "/bucket/run/packs/p1?uploadId=a%2Fb ") ||
			  strstr(request, "/bucket/run/m/k?uploadId=a%2Fb ") ||
			  strstr(request, "/bucket/run/probe/p?uploadId=a%2Fb "));
		upload.aborted++;
		return (struct httpd_reply){upload.aborted == 1 ? "HTTP/1.1 204 x\r\n\r\n"
								: "HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n",
					    HTTPD_GO_ON};
	}
	ck_assert_ptr_nonnull(strstr(request, "&prefix=run%2F"));
	if (strstr(request, "&key-marker=run%2Fm%2Fk&"))
		return answer(LEFT_PAGE("true", LEFT("run/packs/p3", LATE))); // and no further
	return answer(LEFT_PAGE("true", LEFT("run/packs/p1", EARLY) LEFT("run/packs/p2", LATE)
						LEFT("run/foreign", EARLY) LEFT("other/packs/p1", EARLY)
							LEFT("run/probe/p", EARLY) LEFT("run/m/k", EARLY)));
}

// Of a list that does not get on: the marker is the same again.
START_TEST(uploads_that_nobody_ended_are_given_up_once_they_are_old)
{
	uint64_t count = 7;
	int64_t before_ns;

	ck_ok(ckpt_time_parse("2026-11-28T00:00:00Z", false, &before_ns));
	server.serve = serve_left;
	httpd_step(&server);
	ck_ok(ckpt_objects_abort_uploads(s3, before_ns, &count));
	httpd_step(&server);
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(upload.aborted, 3);
}
END_TEST

START_TEST(an_entry_is_never_put_in_parts)
{
	server.serve = play;
	say(0, OK_PUT, HTTPD_GO_ON);
	CLEANUP_FREE char *data = calloc(1, PARTS_BYTES);

	ck_ok(ckpt_objects_put(s3, "log/0001", data, PARTS_BYTES, NULL));
	ck_assert_uint_eq(httpd_count(&server), 1);
}
END_TEST

// ---- Options

START_TEST(options_become_headers)
{
	char option[64];
	const char *const options[] = {
		option,           "storage_class=STANDARD_IA", "sse=aws:kms",    "sse_kms_key=k",     "acl=private",
		"requester_pays", "region=eu-west-1",          "bwlimit=100MiB", "max_connections=2", NULL};
	static const char *const headers[] = {"x-amz-storage-class: STANDARD_IA\r\n",
					      "x-amz-server-side-encryption: aws:kms\r\n",
					      "x-amz-server-side-encryption-aws-kms-key-id: k\r\n",
					      "x-amz-acl: private\r\n",
					      "x-amz-request-payer: requester\r\n",
					      "/eu-west-1/s3/aws4_request"};

	ckpt_objects_close(s3);
	snprintf(option, sizeof(option), "endpoint=%s", server.url);
	open_with("s3://bucket", options, true);
	say(0, OK_PUT, HTTPD_GO_ON);
	ck_ok(put());
	for (size_t i = 0; i < ARRAY_LEN(headers); i++)
		ck_assert_msg(strstr(asked(0), headers[i]) != NULL, "%s", headers[i]);
	ck_assert_ptr_nonnull(strstr(asked(0), "PUT /bucket/log/0001 "));
}
END_TEST

START_TEST(without_keys_nothing_is_signed_where_that_was_asked_for)
{
	char option[64];

	ckpt_objects_close(s3);
	snprintf(option, sizeof(option), "endpoint=%s", server.url);
	open_with("s3://bucket", (const char *const[]){option, "no_sign_request", NULL}, true);
	say(0, OK_PUT, HTTPD_GO_ON);
	ck_ok(put());
	ck_assert_ptr_null(strcasestr(asked(0), "authorization:"));
}
END_TEST

START_TEST(a_limit_of_the_rate_is_kept)
{
	size_t len = 3 << 20;
	CLEANUP_FREE char *data = calloc(1, len);
	char option[64];
	int64_t started_ns;

	ckpt_objects_close(s3);
	snprintf(option, sizeof(option), "endpoint=%s", server.url);
	open_with("s3://bucket", (const char *const[]){option, "bwlimit=2MiB", NULL}, true);
	say(0, OK_PUT, HTTPD_GO_ON);
	started_ns = ckpt_sys.mono_ns();
	ck_ok(ckpt_objects_put(s3, "packs/p", data, len, NULL));
	ck_assert_int_gt(ckpt_sys.mono_ns() - started_ns, 700000000);
}
END_TEST

static Suite *s3_suite(void)
{
	static const TTest *const *const tests[] = {
		&a_put_is_conditional_signed_and_carries_its_sum,
		&a_redirect_is_an_error_that_names_the_region_and_is_not_followed,
		&an_error_inside_of_200_is_an_error,
		&a_lost_answer_is_unknown_and_nothing_is_sent_twice,
		&a_store_that_goes_away_leaves_an_unknown_outcome,
		&an_empty_put_is_not_sent_twice_either,
		&a_reset_before_the_body_is_there_is_unknown,
		&a_store_that_is_not_there_was_asked_for_nothing,
		&silence_ends_a_call,
		&a_read_only_store_changes_nothing,
		&a_range_is_asked_for_and_checked,
		&an_answer_without_its_body_is_refused,
		&a_body_that_is_cut_off_is_refused,
		&the_whole_object_is_taken_for_a_range_of_it,
		&a_bit_that_is_not_the_one_that_was_put_is_found,
		&ranges_of_two_versions_are_estale,
		&a_stalled_body_ends_at_the_deadline_or_when_it_is_called_off,
		&a_call_is_called_off_while_it_waits,
		&a_put_is_called_off_while_it_waits,
		&a_source_that_fails_sends_nothing_or_not_all,
		&why_a_head_is_refused_says_a_get,
		&a_wrong_clock_is_corrected_by_the_stores,
		&keys_that_have_expired_are_fetched_again,
		&pages_are_joined_and_sorted,
		&a_page_that_is_the_one_before_is_asked_for_again,
		&a_page_of_the_same_list_is_asked_for_again,
		&a_list_that_does_not_get_on_or_strays_is_refused,
		&a_large_pack_is_put_in_parts_which_are_sent_again,
		&parts_that_cannot_be_joined_are_taken_back,
		&uploads_that_nobody_ended_are_given_up_once_they_are_old,
		&an_entry_is_never_put_in_parts,
		&options_become_headers,
		&without_keys_nothing_is_signed_where_that_was_asked_for,
		&a_limit_of_the_rate_is_kept,
	};
	Suite *suite = suite_create("s3");
	TCase *tcase = tcase_create("s3");

	tcase_add_checked_fixture(tcase, setup, teardown);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		tcase_add_test(tcase, *tests[i]);
	tcase_add_loop_test(tcase, each_status_has_its_errno, 0, ARRAY_LEN(statuses));
	tcase_add_loop_test(tcase, a_wrong_part_is_refused, 0, ARRAY_LEN(wrong_parts));
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(s3_suite());
}
