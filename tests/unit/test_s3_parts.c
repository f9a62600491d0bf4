// Large objects of the S3 backend, which are put in parts; and uploads that nobody has ended.
#include "tests/support/s3_script.h"

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

int main(void)
{
	Suite *suite = suite_create("s3 parts");
	TCase *tcase = tcase_create("s3 parts");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_large_pack_is_put_in_parts_which_are_sent_again);
	tcase_add_test(tcase, parts_that_cannot_be_joined_are_taken_back);
	tcase_add_test(tcase, uploads_that_nobody_ended_are_given_up_once_they_are_old);
	tcase_add_test(tcase, an_entry_is_never_put_in_parts);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
