// What a staged step says of itself: extended attributes of its directory, and metrics.json.
#include "core/save/reopen.h"
#include "tests/support/fixture.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/record/metadata.h"
#include "core/step/reopened.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

static struct ckpt_step *step;

static void setup(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
}

static void teardown(void)
{
	ckpt_step_unref(TAKE_PTR(step));
	ckpt_fixture_close();
}

static void set(const char *name, const char *value)
{
	char xattr[300];

	snprintf(xattr, sizeof(xattr), CKPT_META_XATTRS "%s", name);
	ck_ok(ckpt_sys.fsetxattr(step->dirfd, xattr, value, strlen(value), 0));
}

// What the step's record has now.
static void has(const char *json)
{
	struct ckpt_record r;

	ck_ok(ckpt_step_record(step, step->version->is.version, &r));
	ck_assert_msg(!r.metadata == !json && (!json || !strcmp(r.metadata, json)), "%s, not %s", r.metadata, json);
	ckpt_record_done(&r);
}

// --- metrics.json -------------------------------------------------------------------------------------------------------

static const struct {
	const char *text, *marker, *json;
	unsigned lines;
} metrics[] = {
	{"{\"loss\": 1.5, \"acc\": 0.25}\n", NULL, "{\"metrics\":{\"acc\":0.25,\"loss\":1.5}}", 0},
	{"{\"loss\":1.5,\"acc\":0.25}", "{\"metrics\":{\"loss\":9},\"temporary\":true}",
	 "{\"metrics\":{\"acc\":0.25,\"loss\":9},\"temporary\":true}", 0},
	{"{\"loss\":1.5}", "{\"extras\":{\"tag\":\"x\"}}", "{\"extras\":{\"tag\":\"x\"},\"metrics\":{\"loss\":1.5}}",
	 0},
	{"{}", NULL, "{\"metrics\":{}}", 0},
	{"{\"loss\": NaN, \"acc\": 1}", NULL, "{\"metrics\":{\"acc\":1}}", 1},
	{"{\"a\":Infinity,\"b\":-Infinity,\"c\":-0.5}", NULL, "{\"metrics\":{\"c\":-0.5}}", 1},
	{"{\"say \\\"NaN\": 2}", NULL, "{\"metrics\":{\"say \\\"NaN\":2}}", 0},
	{"{\"a\":\"1\",\"b\":true,\"c\":{\"d\":1},\"e\":[1],\"f\":null,\"g\":3}", NULL, "{\"metrics\":{\"g\":3}}", 1},
	{"", NULL, NULL, 1},
	{"{\"loss\":", NULL, NULL, 1},
	{"[1]", "{\"temporary\":false}", "{\"temporary\":false}", 1},
	{"3", NULL, NULL, 1},
	{"{\"a\":1e999}", NULL, NULL, 1},
	{"{\"a\xff\":1}", NULL, NULL, 1},
	{"{\"a\\u0000b\":1}", NULL, NULL, 1},
};

START_TEST(metrics_json_is_what_the_marker_does_not_say_and_fails_no_commit)
{
	close(ckpt_staged_put(step, "metrics.json", metrics[_i].text));
	ck_ok(ckpt_staged_commit(step, 0, metrics[_i].marker));
	has(metrics[_i].json);
	ck_assert_uint_eq(ckpt_save_errors(s, "left out of its metadata"), metrics[_i].lines);
	ckpt_staged_check(step, "metrics.json", metrics[_i].text);
}
END_TEST

static void put_link(void)
{
	ck_ok(ckpt_sys.symlink("/etc/passwd", step->dirfd, "metrics.json"));
}

static void put_directory(void)
{
	ck_ok(ckpt_sys.mkdir(step->dirfd, "metrics.json", 0755));
}

static void put_large(void)
{
	CLEANUP_FD int fd = ckpt_staged_put(step, "metrics.json", "{\"loss\":1}");

	ck_ok(ckpt_sys.ftruncate(fd, CKPT_METADATA_BYTES_MAX + 1));
}

static void put_deep(void)
{
	char text[20001] = "{\"a\":";

	memset(text + 5, '[', sizeof(text) - 6);
	close(ckpt_staged_put(step, "metrics.json", text));
}

static void (*const others[])(void) = {put_link, put_directory, put_large, put_deep};

START_TEST(what_is_no_metrics_file_is_left_out)
{
	others[_i]();
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	has(NULL);
	ck_assert_uint_eq(ckpt_save_errors(s, "metrics.json is left out of its metadata"), 1);
}
END_TEST

START_TEST(metrics_in_a_folder_of_the_step_are_a_file)
{
	ck_ok(ckpt_sys.mkdir(step->dirfd, "eval", 0755));
	close(ckpt_staged_put(step, "eval/metrics.json", "{\"loss\":1}"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	has(NULL);
}
END_TEST

// --- Extended attributes ------------------------------------------------------------------------------------------------

START_TEST(attributes_are_extras_as_json_or_as_text)
{
	set("n", "3");
	set("list", "[1, {\"b\": null}]");
	set("text", "3 epochs");
	set("quoted", "\"3\"");
	set("empty", "");
	set("nan", "NaN");
	set("tag", "by hand");
	set("caf\xc3\xa9", "\xc3\xa9");
	ck_ok(ckpt_staged_commit(step, 0, "{\"extras\":{\"tag\":\"marker\"}}"));
	has("{\"extras\":{\"caf\xc3\xa9\":\"\xc3\xa9\",\"empty\":\"\",\"list\":[1,{\"b\":null}],\"n\":3,\"nan\":"
	    "\"NaN\","
	    "\"quoted\":\"3\",\"tag\":\"marker\",\"text\":\"3 epochs\"}}");
	ck_assert_uint_eq(ckpt_save_errors(s, "left out"), 0);
}
END_TEST

START_TEST(what_was_set_past_the_mount_and_is_neither_is_left_out)
{
	set("good", "1");
	set("bytes", "\xff\xfe");
	set("\xff", "1");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	has("{\"extras\":{\"good\":1}}");
	ck_assert_uint_eq(ckpt_save_errors(s, "left out"), 2);
}
END_TEST

START_TEST(what_is_too_much_with_the_marker_is_left_out)
{
	CLEANUP_FREE char *marker = malloc(CKPT_METADATA_BYTES_MAX + 1);
	int n = sprintf(marker, "{\"extras\":{\"pad\":\"%*s\"}}", (int)CKPT_METADATA_BYTES_MAX - 21, "");

	ck_assert_int_eq(n, CKPT_METADATA_BYTES_MAX);
	set("a", "1");
	close(ckpt_staged_put(step, "metrics.json", "{\"loss\":1}"));
	ck_ok(ckpt_staged_commit(step, 0, marker));
	has(marker);
	ck_assert_uint_eq(ckpt_save_errors(s, "more than 64 KiB"), 2);
}
END_TEST

static int may_set(const char *name, const char *value, size_t len, const char *want)
{
	const char *why = NULL;
	char xattr[300];
	int rc;

	snprintf(xattr, sizeof(xattr), CKPT_META_XATTRS "%s", name);
	rc = ckpt_metadata_may_set(step->dirfd, xattr, value, len, &why);
	ck_assert_msg(!why == !rc && !want == !rc && (!rc || strstr(why, want)), "%s: %s", name, why);
	return rc;
}

START_TEST(what_may_be_set_is_bounded)
{
	char large[CKPT_META_VALUE_MAX + 1], deep[CKPT_METADATA_DEPTH_MAX * 2];

	memset(large, 'x', sizeof(large));
	memset(deep, '[', sizeof(deep) / 2);
	memset(deep + sizeof(deep) / 2, ']', sizeof(deep) / 2);
	ck_ok(may_set("a", "1", 1, NULL));
	ck_ok(may_set("a", large, CKPT_META_VALUE_MAX, NULL));
	ck_error(may_set("a", large, CKPT_META_VALUE_MAX + 1, "4 KiB"), EINVAL);
	ck_error(may_set("", "1", 1, "empty"), EINVAL);
	ck_error(may_set("\xff", "1", 1, "no text"), EINVAL);
	ck_error(may_set("a", "\xff", 1, "neither"), EINVAL);
	ck_error(may_set("a", "a\0b", 3, "neither"), EINVAL);
	ck_error(may_set("a", deep, sizeof(deep), "too deep"), EINVAL);
	for (int i = 0; i < CKPT_META_XATTRS_MAX; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		set(name, "1");
	}
	ck_error(may_set("a", "1", 1, "64 of them"), EINVAL);
	ck_ok(may_set("n63", "2", 1, NULL));
}
END_TEST

// --- After the commit ---------------------------------------------------------------------------------------------------

START_TEST(a_later_marker_wins_and_takes_nothing_away)
{
	close(ckpt_staged_put(step, "metrics.json", "{\"loss\":1,\"acc\":2}"));
	set("tag", "x");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_staged_commit(step, 0, "{\"metrics\":{\"loss\":5},\"temporary\":true}"));
	has("{\"extras\":{\"tag\":\"x\"},\"metrics\":{\"acc\":2,\"loss\":5},\"temporary\":true}");
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_ok(ckpt_staged_commit(step, 0, "{\"metrics\":{\"loss\":5},\"temporary\":true}"));
	ck_assert_uint_eq(step->version->is.version, 2);
}
END_TEST

START_TEST(a_later_marker_that_is_too_much_with_what_is_there_stands_alone)
{
	CLEANUP_FREE char *large = malloc(CKPT_METADATA_BYTES_MAX + 1);

	sprintf(large, "{\"extras\":{\"pad\":\"%*s\"}}", (int)CKPT_METADATA_BYTES_MAX - 21, "");
	ck_ok(ckpt_staged_commit(step, 0, large));
	ck_ok(ckpt_staged_commit(step, 0, "{\"metrics\":{\"loss\":5}}"));
	has("{\"metrics\":{\"loss\":5}}");
	ck_assert_uint_eq(ckpt_save_errors(s, "more than 64 KiB"), 1);
}
END_TEST

START_TEST(a_step_that_is_written_anew_speaks_for_itself)
{
	struct ckpt_step *now;

	close(ckpt_staged_put(step, "metrics.json", "{\"loss\":1}"));
	set("tag", "x");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_reopen(step, &now));
	ckpt_step_unref(step);
	step = now;
	set("other", "y");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	has("{\"extras\":{\"other\":\"y\"},\"metrics\":{\"loss\":1}}");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("metadata_staged");
	TCase *tcase = tcase_create("metadata_staged");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, metrics_json_is_what_the_marker_does_not_say_and_fails_no_commit, 0,
			    (int)ARRAY_LEN(metrics));
	tcase_add_loop_test(tcase, what_is_no_metrics_file_is_left_out, 0, (int)ARRAY_LEN(others));
	tcase_add_test(tcase, metrics_in_a_folder_of_the_step_are_a_file);
	tcase_add_test(tcase, attributes_are_extras_as_json_or_as_text);
	tcase_add_test(tcase, what_was_set_past_the_mount_and_is_neither_is_left_out);
	tcase_add_test(tcase, what_is_too_much_with_the_marker_is_left_out);
	tcase_add_test(tcase, what_may_be_set_is_bounded);
	tcase_add_test(tcase, a_later_marker_wins_and_takes_nothing_away);
	tcase_add_test(tcase, a_later_marker_that_is_too_much_with_what_is_there_stands_alone);
	tcase_add_test(tcase, a_step_that_is_written_anew_speaks_for_itself);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
