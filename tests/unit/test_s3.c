// The S3 backend against a server that answers as the test says: each wrong answer, each way to lose one, and what becomes of it.
#include "tests/support/s3_script.h"

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
