// Lists of the S3 backend: pages are joined and sorted; a list that strays or does not get on is refused.
#include "tests/support/s3_script.h"

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

int main(void)
{
	Suite *suite = suite_create("s3 list");
	TCase *tcase = tcase_create("s3 list");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, pages_are_joined_and_sorted);
	tcase_add_test(tcase, a_page_that_is_the_one_before_is_asked_for_again);
	tcase_add_test(tcase, a_page_of_the_same_list_is_asked_for_again);
	tcase_add_test(tcase, a_list_that_does_not_get_on_or_strays_is_refused);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
