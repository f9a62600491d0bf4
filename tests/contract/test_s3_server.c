// The S3 backend on a real server (tests/support/stacks.h says which): what the table of functions does not show.
//
// With CKPT_TEST_S3_SERVER=rclone-s3 it is one that ignores conditions: the probe must find that.
#include "tests/support/stacks.h"

#include "backends/s3.h"
#include "core/base/uuid.h"
#include "core/objects/probe.h"

#include <stdio.h>

static char why[CKPT_OBJECTS_WHY_MAX];

static const char *bucket(void)
{
	const char *name = getenv("CKPT_TEST_S3_BUCKET");

	return name ? name : "ckptfs";
}

static struct ckpt_objects *open_at(const char *endpoint, const char *in_bucket, const char *option)
{
	char uuid[CKPT_UUID_LEN + 1], url[256], at_option[256];
	const char *options[] = {at_option, option, NULL};
	struct ckpt_objects_at at = {.url = url, .writable = true, .options = options, .why = why};
	struct ckpt_objects *o;

	ck_ok(ckpt_uuid_make(uuid));
	snprintf(url, sizeof(url), "s3://%s/server test/%s", in_bucket, uuid);
	snprintf(at_option, sizeof(at_option), "endpoint=%s", endpoint);
	ck_assert_msg(!ckpt_objects_open(&at, &o), "%s", why);
	return o;
}

static struct ckpt_objects *open_usual(void)
{
	return open_at(getenv("CKPT_TEST_S3_ENDPOINT"), bucket(), NULL);
}

START_TEST(the_probe_passes)
{
	struct ckpt_objects *o = open_usual();
	char probe_why[CKPT_PROBE_WHY_MAX];

	ck_assert_msg(!ckpt_objects_probe(o, true, probe_why), "%s", probe_why);
	ckpt_objects_close(o);
}
END_TEST

START_TEST(a_server_that_ignores_conditions_is_found)
{
	struct ckpt_objects *o = open_usual();
	char probe_why[CKPT_PROBE_WHY_MAX];

	ck_error(ckpt_objects_probe(o, false, probe_why), ENOTSUP);
	ck_assert_str_eq(probe_why, "a put of a key that was taken: it was done");
	ckpt_objects_close(o);
}
END_TEST

// It answers a range with 200 and Content-Range.
START_TEST(a_range_of_a_server_that_answers_in_its_own_way_is_right)
{
	struct ckpt_objects *o = open_usual();
	char buf[8];
	size_t got;

	ck_ok(ckpt_objects_put(o, "m/x", "0123456789", 10, NULL));
	ck_ok(ckpt_objects_get(o, "m/x", 3, buf, 4, &got, NULL));
	ck_assert_uint_eq(got, 4);
	ck_assert_mem_eq(buf, "3456", 4);
	ckpt_objects_close(o);
}
END_TEST

START_TEST(the_host_may_have_the_buckets_name)
{
	const char *port = strrchr(getenv("CKPT_TEST_S3_ENDPOINT"), ':');
	char endpoint[128];
	struct ckpt_objects *o;
	struct ckpt_object object;

	snprintf(endpoint, sizeof(endpoint), "http://%s.localhost%s", bucket(), port);
	o = open_at(endpoint, bucket(), NULL);
	ck_ok(ckpt_objects_put(o, "m/x", "x", 1, NULL));
	ck_ok(ckpt_objects_head(o, "m/x", &object));
	ckpt_objects_close(o);
}
END_TEST

START_TEST(a_pack_in_parts_comes_back_as_it_was)
{
	size_t len = (70u << 20) + 5;
	CLEANUP_FREE uint8_t *data = malloc(len), *all = malloc(len);
	struct ckpt_range ranges[3] = {{.offset = 0, .len = 30 << 20, .buf = all},
				       {.offset = 30 << 20, .len = 1, .buf = all + (30 << 20)},
				       {.offset = (30 << 20) + 1, .len = len, .buf = all + (30 << 20) + 1}};
	struct ckpt_objects *o = open_usual();
	struct ckpt_object put, got;
	int rc;

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 31 + (i >> 12));
	ranges[2].len = len - ranges[2].offset;
	rc = ckpt_objects_put(o, "packs/p", data, len, &put);
	ckpt_objects_why(o, why);
	ck_assert_msg(!rc, "%s", why);
	ck_ok(ckpt_objects_get_ranges(o, "packs/p", ranges, 3, NULL, &got));
	ck_assert_uint_eq(got.bytes, len);
	ck_assert_str_eq(got.etag, put.etag);
	ck_assert(!memcmp(data, all, len));
	ckpt_objects_close(o);
}
END_TEST

START_TEST(refusals_say_why)
{
	struct ckpt_objects *o = open_at(getenv("CKPT_TEST_S3_ENDPOINT"), "no-such-bucket-here", NULL);

	ck_error(ckpt_objects_put(o, "m/x", "x", 1, NULL), EINVAL);
	ckpt_objects_why(o, why);
	ck_assert_msg(strstr(why, "NoSuchBucket") != NULL, "%s", why);
	ckpt_objects_close(o);
	o = open_at(getenv("CKPT_TEST_S3_ENDPOINT"), bucket(), "no_sign_request");
	ck_error(ckpt_objects_put(o, "m/x", "x", 1, NULL), EACCES);
	ckpt_objects_close(o);
	setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
	o = open_usual();
	ck_error(ckpt_objects_put(o, "m/x", "x", 1, NULL), EACCES);
	ckpt_objects_why(o, why);
	ck_assert_msg(strstr(why, "the secret key is wrong") != NULL, "%s", why);
	ckpt_objects_close(o);
}
END_TEST

int main(void)
{
	const char *kind = getenv("CKPT_TEST_S3_SERVER");
	Suite *suite = suite_create("s3 server");
	TCase *tcase = tcase_create("server");

	if (!getenv("CKPT_TEST_S3_ENDPOINT")) {
		printf("without S3: CKPT_TEST_S3_ENDPOINT names no server\n");
	} else if (kind && !strcmp(kind, "rclone-s3")) {
		tcase_add_test(tcase, a_server_that_ignores_conditions_is_found);
		tcase_add_test(tcase, a_range_of_a_server_that_answers_in_its_own_way_is_right);
	} else {
		tcase_add_test(tcase, the_probe_passes);
		tcase_add_test(tcase, the_host_may_have_the_buckets_name);
		tcase_add_test(tcase, a_pack_in_parts_comes_back_as_it_was);
		tcase_add_test(tcase, refusals_say_why);
	}
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
