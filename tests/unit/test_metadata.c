#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/limits.h"
#include "core/record/metadata.h"

#include <stdio.h>

static const struct {
	const char *text;
	const char *json; // NULL: refused, or empty
	bool empty, temporary;
	const char *why; // part of what is said when it is refused
} table[] = {
	{"", NULL, true, false, NULL},
	{" \n\t ", NULL, true, false, NULL},
	{"{}", "{}", false, false, NULL},
	{"{}\n", "{}", false, false, NULL},
	{"{ \"temporary\" : true }", "{\"temporary\":true}", false, true, NULL},
	{"{\"temporary\":false}", "{\"temporary\":false}", false, false, NULL},
	{"{\"world_size\": 8, \"extras\": {\"b\": [1, {}], \"a\": null}}",
	 "{\"extras\":{\"a\":null,\"b\":[1,{}]},\"world_size\":8}", false, false, NULL},
	{"{\"metrics\": {\"loss\": 0.5, \"step\": 3}}", "{\"metrics\":{\"loss\":0.5,\"step\":3}}", false, false, NULL},
	{"{\"metrics\": {\"loss\": NaN, \"acc\": 1}}", "{\"metrics\":{\"acc\":1}}", false, false, NULL},
	{"{\"metrics\": {\"loss\": -Infinity}, \"temporary\": true}", "{\"metrics\":{},\"temporary\":true}", false,
	 true, NULL},
	{"{\"extras\": {\"caf\xc3\xa9\": \"\\u00e9\"}}", "{\"extras\":{\"caf\xc3\xa9\":\"\xc3\xa9\"}}", false, false,
	 NULL},
	{"{", NULL, false, false, "line 1"},
	{"{}\n}", NULL, false, false, "line 2"},
	{"nothing", NULL, false, false, "not JSON"},
	{"{\"temporary\": true, \"temporary\": false}", NULL, false, false, "not JSON"},
	{"{\"extras\": {\"\xff\": 1}}", NULL, false, false, "not JSON"},
	{"[]", NULL, false, false, "not a JSON object"},
	{"3", NULL, false, false, "not JSON"},
	{"{\"temporary\": 1}", NULL, false, false, "temporary"},
	{"{\"extras\": []}", NULL, false, false, "extras"},
	{"{\"metrics\": {\"loss\": \"low\"}}", NULL, false, false, "the metric \"loss\""},
	{"{\"metrics\": 1}", NULL, false, false, "metrics"},
	{"{\"extras\": {\"loss\": NaN}}", NULL, false, false, "only metrics may be NaN"},
	{"{\"metrics\": {NaN: 1}}", NULL, false, false, "only metrics may be NaN"},
	{"{\"metrics\": {\"loss\": \"\"}}", NULL, false, false, "the metric \"loss\""},
	{"{\"metrics\": {\"loss\": 1e999}}", NULL, false, false, "not JSON"},
	{"{\"world_size\": 0}", NULL, false, false, "world_size"},
	{"{\"world_size\": 1.5}", NULL, false, false, "world_size"},
	{"{\"world_size\": 99999999999999999999}", NULL, false, false, "not JSON"},
	{"{\"metric\": {}}", NULL, false, false, "no field \"metric\""},
};

START_TEST(metadata_is_read_as_the_table_says)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		CLEANUP_FREE char *json = NULL;
		CLEANUP_FREE char *why = NULL;
		int rc = ckpt_metadata_parse(table[i].text, strlen(table[i].text), &json, &why);
		bool temporary;

		if (table[i].why) {
			ck_assert_msg(rc == -EINVAL, "%s: %d", table[i].text, rc);
			ck_assert_msg(why && strstr(why, table[i].why), "%s: %s", table[i].text,
				      why ? why : "no reason");
			continue;
		}
		ck_assert_msg(rc == 0, "%s: %s", table[i].text, why);
		ck_assert_ptr_null(why);
		ck_assert(table[i].empty == !json);
		if (json)
			ck_assert_str_eq(json, table[i].json);
		ck_ok(ckpt_metadata_temporary(json, &temporary));
		ck_assert_int_eq(temporary, table[i].temporary);
	}
}
END_TEST

START_TEST(a_nul_byte_is_not_the_end_of_the_text)
{
	static const char text[] = "{}\0{}";
	char *json, *why;

	ck_error(ckpt_metadata_parse(text, sizeof(text) - 1, &json, &why), EINVAL);
	free(why);
	ck_error(ckpt_metadata_parse("{\"extras\":{\"a\\u0000b\":1}}", 26, &json, &why), EINVAL);
	free(why);
}
END_TEST

START_TEST(what_is_too_large_or_too_deep_is_refused)
{
	CLEANUP_FREE char *text = malloc(2 * CKPT_METADATA_BYTES_MAX);
	char *json, *why;
	int n;

	n = sprintf(text, "{\"extras\":{\"pad\":\"%*s\"}}", (int)CKPT_METADATA_BYTES_MAX - 21, "");
	ck_assert_int_eq(n, CKPT_METADATA_BYTES_MAX);
	ck_ok(ckpt_metadata_parse(text, (size_t)n, &json, &why));
	free(json);
	n = sprintf(text, "{\"extras\":{\"pad\":\"%*s\"}}", (int)CKPT_METADATA_BYTES_MAX - 20, "");
	ck_error(ckpt_metadata_parse(text, (size_t)n, &json, &why), EFBIG);
	free(why);
	for (int depth = 10; depth <= 5000; depth *= 4) {
		n = sprintf(text, "{\"extras\":{\"a\":");
		memset(text + n, '[', (size_t)depth);
		memset(text + n + depth, ']', (size_t)depth);
		strcpy(text + n + 2 * depth, "}}");
		int rc = ckpt_metadata_parse(text, strlen(text), &json, &why);

		ck_assert_int_eq(rc, depth + 2 > CKPT_METADATA_DEPTH_MAX ? -EINVAL : 0);
		free(rc ? why : json);
	}
}
END_TEST

static const struct {
	const char *json, *below, *merged;
} merges[] = {
	{NULL, NULL, NULL},
	{"{}", NULL, "{}"},
	{NULL, "{\"extras\":{\"a\":1},\"temporary\":true,\"world_size\":8}",
	 "{\"extras\":{\"a\":1},\"temporary\":true,\"world_size\":8}"},
	{"{\"temporary\":false}", "{\"temporary\":true}", "{\"temporary\":false}"},
	{"{\"temporary\":true}", "{\"metrics\":{\"b\":2},\"extras\":{}}",
	 "{\"extras\":{},\"metrics\":{\"b\":2},\"temporary\":true}"},
	{"{\"extras\":{\"a\":null,\"c\":{\"x\":1}}}", "{\"extras\":{\"a\":1,\"b\":2,\"c\":{\"y\":1}}}",
	 "{\"extras\":{\"a\":null,\"b\":2,\"c\":{\"x\":1}}}"},
	{"{\"metrics\":{}}", "damaged", "{\"metrics\":{}}"},
	{"{\"extras\":{\"a\":1}}", "{\"extras\":5,\"metrics\":[1]}", "{\"extras\":{\"a\":1}}"},
};

START_TEST(merged_is_what_the_first_says_and_what_it_does_not)
{
	for (size_t i = 0; i < ARRAY_LEN(merges); i++) {
		CLEANUP_FREE char *merged = NULL;

		ck_ok(ckpt_metadata_merge(merges[i].json, merges[i].below, &merged));
		ck_assert_pstr_eq(merged, merges[i].merged);
	}
}
END_TEST

START_TEST(extras_are_given_as_text_or_json)
{
	static const char json[] = "{\"extras\":{\"f\":1.5,\"n\":null,\"o\":{\"b\":[1],\"a\":2},\"t\":\"text\"}}";
	static const char *const extras[][2] = {
		{"t", "text"}, {"n", "null"}, {"o", "{\"a\":2,\"b\":[1]}"}, {"f", "1.5"}};
	char *value;

	for (size_t i = 0; i < ARRAY_LEN(extras); i++) {
		ck_ok(ckpt_metadata_extra(json, extras[i][0], &value));
		ck_assert_str_eq(value, extras[i][1]);
		free(value);
	}
	ck_error(ckpt_metadata_extra(json, "none", &value), ENODATA);
	ck_error(ckpt_metadata_extra("{}", "t", &value), ENODATA);
	ck_error(ckpt_metadata_extra(NULL, "t", &value), ENODATA);
}
END_TEST

// Findings are no marker's to say, and no part of what nodes put together.
START_TEST(findings_stand_beside_what_a_step_says)
{
	static const char said[] = "{\"metrics\":{\"loss\":1.5}}", found[] = "{\"healthy\":false}",
			  both[] = "{\"findings\":{\"healthy\":false},\"metrics\":{\"loss\":1.5}}";
	char *json, *why, *value;

	ck_error(ckpt_metadata_parse(both, strlen(both), &json, &why), EINVAL);
	free(why);
	ck_error(ckpt_metadata_findings(said, &value), ENODATA);
	ck_error(ckpt_metadata_findings(NULL, &value), ENODATA);
	ck_ok(ckpt_metadata_set_findings(said, found, &json));
	ck_assert_str_eq(json, both);
	ck_ok(ckpt_metadata_findings(json, &value));
	ck_assert_str_eq(value, found);
	free(value);
	ck_ok(ckpt_metadata_set_findings(json, NULL, &value));
	ck_assert_str_eq(value, said);
	free(value);
	ck_ok(ckpt_metadata_merge(said, json, &value));
	ck_assert_str_eq(value, said);
	free(value);
	ck_ok(ckpt_metadata_changes(json, NULL, &value));
	ck_assert_str_eq(value, said);
	free(value);
	ck_ok(ckpt_metadata_changes(json, said, &value));
	ck_assert_ptr_null(value);
	free(json);
	ck_ok(ckpt_metadata_set_findings(NULL, NULL, &json));
	ck_assert_ptr_null(json);
}
END_TEST

static Suite *metadata_suite(void)
{
	Suite *suite = suite_create("metadata");
	TCase *tcase = tcase_create("metadata");

	tcase_add_test(tcase, metadata_is_read_as_the_table_says);
	tcase_add_test(tcase, a_nul_byte_is_not_the_end_of_the_text);
	tcase_add_test(tcase, what_is_too_large_or_too_deep_is_refused);
	tcase_add_test(tcase, merged_is_what_the_first_says_and_what_it_does_not);
	tcase_add_test(tcase, extras_are_given_as_text_or_json);
	tcase_add_test(tcase, findings_stand_beside_what_a_step_says);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(metadata_suite());
}
