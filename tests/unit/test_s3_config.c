// Where an S3 store is: URLs, options and the environment, and what of them is refused.
#include "tests/support/suite.h"

#include "backends/s3_config.h"
#include "core/base/util.h"
#include "core/objects/stack.h"

#include <stdio.h>

static struct ckpt_s3_config config;
static char why[CKPT_OBJECTS_WHY_MAX];

static void setup(void)
{
	static const char *const names[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION",
					    "AWS_DEFAULT_REGION"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		unsetenv(names[i]);
}

#define OPTIONS(...)                                                                                                   \
	(const char *const[])                                                                                          \
	{                                                                                                              \
		__VA_ARGS__, NULL                                                                                      \
	}

static int parse(const char *url, const char *const *options)
{
	int rc = ckpt_s3_config_parse(url, options, &config, why);

	return rc ? rc : ckpt_s3_config_settle(&config, "", "", why);
}

START_TEST(urls_have_a_bucket_and_a_prefix)
{
	ck_ok(parse("s3://bucket", NULL));
	ck_assert_str_eq(config.prefix, "");
	ck_ok(parse("s3://bucket/", NULL));
	ck_assert_str_eq(config.prefix, "");
	ck_ok(parse("s3://bucket/a/b c//", NULL));
	ck_assert_str_eq(config.bucket, "bucket");
	ck_assert_str_eq(config.prefix, "a/b c/");
	ck_assert_str_eq(config.host, "bucket.s3.us-east-1.amazonaws.com");
	ck_assert(!config.path_style && !config.is_http);
}
END_TEST

START_TEST(wrong_urls_are_refused)
{
	static const char *const urls[] = {"s3://",           "s3:///a",          "s3://a",
					   "s3://bu..cket/a", "s3://bu cket/a",   "s3://.bucket/a",
					   "s3://bucket//a",  "s3://bucket/a//b", "s3://bucket/../a",
					   "s3://bucket/./a", "s3://bucket/a\nb", "s3://u@bucket/a"};
	char longer[600] = "s3://bucket/";

	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		ck_error(parse(urls[i], NULL), EINVAL);
		ck_assert_str_ne(why, "");
	}
	memset(longer + strlen(longer), 'a', CKPT_S3_PREFIX_MAX);
	ck_error(parse(longer, NULL), EINVAL);
}
END_TEST

START_TEST(an_option_that_is_not_known_or_makes_no_sense_is_named)
{
	static const char *const options[] = {"colour=red",
					      "region",
					      "region=",
					      "region=a b",
					      "region=x/y",
					      "allow_http=1",
					      "bwlimit=fast",
					      "bwlimit=0",
					      "max_connections=0",
					      "max_connections=257",
					      "max_connections=1x",
					      "page_keys=0",
					      "page_keys=1001",
					      "endpoint=ftp://x",
					      "endpoint=https://",
					      "endpoint=https://x/y",
					      "endpoint=https://u@x",
					      "sse=a\r\nb: c",
					      "acl"};
	struct ckpt_objects *o = NULL;

	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		struct ckpt_objects_at at = {.url = "s3://bucket", .options = OPTIONS(options[i]), .why = why};

		ck_error(ckpt_objects_open(&at, &o), EINVAL);
		ck_assert_str_ne(why, "");
	}
	ck_error(parse("s3://bucket", OPTIONS("colour=red")), EINVAL);
	ck_assert_str_eq(why, "an s3 store has no option 'colour=red'");
	ck_error(ckpt_objects_open(&(struct ckpt_objects_at){.dirfd = -1, .options = OPTIONS("region=x"), .why = why},
				   &o),
		 EINVAL);
	ck_assert_str_eq(why, "a directory has no option 'region=x'");
	ck_assert_ptr_null(o);
}
END_TEST

START_TEST(endpoints_are_asked_by_path_or_by_host)
{
	ck_ok(parse("s3://bucket", OPTIONS("endpoint=https://s3.example.org:9000/")));
	ck_assert_str_eq(config.host, "s3.example.org:9000");
	ck_assert(config.path_style && !config.is_loopback);
	ck_ok(parse("s3://bucket", OPTIONS("endpoint=https://bucket.s3.example.org")));
	ck_assert(!config.path_style);
	ck_ok(parse("s3://my.bucket", OPTIONS("region=eu-west-1")));
	ck_assert(config.path_style);
	ck_assert_str_eq(config.host, "s3.eu-west-1.amazonaws.com");
	ck_ok(parse("s3://bucket", OPTIONS("region=cn-north-1")));
	ck_assert_str_eq(config.host, "bucket.s3.cn-north-1.amazonaws.com.cn");
}
END_TEST

START_TEST(http_is_for_loopback_or_by_permission)
{
	ck_error(parse("s3://bucket", OPTIONS("endpoint=http://s3.example.org")), EINVAL);
	ck_assert_msg(strstr(why, "allow_http") != NULL, "%s", why);
	ck_ok(parse("s3://bucket", OPTIONS("endpoint=http://s3.example.org", "allow_http")));
	ck_assert(config.is_http && !config.is_loopback);
	ck_ok(parse("s3://bucket", OPTIONS("endpoint=http://127.0.0.1:80")));
	ck_ok(parse("s3://bucket", OPTIONS("endpoint=http://[::1]:80")));
	ck_ok(parse("s3://bucket", OPTIONS("endpoint=http://bucket.localhost:80")));
	ck_assert(config.is_loopback && !config.path_style);
	ck_error(parse("s3://bucket", OPTIONS("endpoint=http://127.0.0.1.example.org")), EINVAL);
	ck_error(parse("s3://bucket", OPTIONS("endpoint=http://localhost.example.org")), EINVAL);
	ck_error(parse("s3://bucket", OPTIONS("endpoint=http://xlocalhost")), EINVAL);
	setenv("AWS_ENDPOINT_URL", "http://s3.example.org", 1);
	ck_error(parse("s3://bucket", NULL), EINVAL);
}
END_TEST

START_TEST(the_environment_is_asked_where_options_say_nothing)
{
	setenv("AWS_ENDPOINT_URL", "https://a", 1);
	setenv("AWS_DEFAULT_REGION", "r1", 1);
	ck_ok(parse("s3://bucket", NULL));
	ck_assert_str_eq(config.host, "a");
	ck_assert_str_eq(config.region, "r1");
	setenv("AWS_ENDPOINT_URL_S3", "https://b", 1);
	setenv("AWS_REGION", "r2", 1);
	ck_ok(parse("s3://bucket", NULL));
	ck_assert_str_eq(config.host, "b");
	ck_assert_str_eq(config.region, "r2");
	ck_ok(parse("s3://bucket", OPTIONS("endpoint=https://c", "region=r3")));
	ck_assert_str_eq(config.host, "c");
	ck_assert_str_eq(config.region, "r3");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("s3_config");
	TCase *tcase = tcase_create("config");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, urls_have_a_bucket_and_a_prefix);
	tcase_add_test(tcase, wrong_urls_are_refused);
	tcase_add_test(tcase, an_option_that_is_not_known_or_makes_no_sense_is_named);
	tcase_add_test(tcase, endpoints_are_asked_by_path_or_by_host);
	tcase_add_test(tcase, http_is_for_loopback_or_by_permission);
	tcase_add_test(tcase, the_environment_is_asked_where_options_say_nothing);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
