// New metadata of a committed step.
#include "tests/support/fixture_step.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/temporary.h"
#include "core/save/version.h"

#include <stdio.h>

static void setup(void)
{
	ckpt_fixture_step_open("1000");
	close(ckpt_staged_put(step, "model.bin", "weights"));
}

// --- New metadata -------------------------------------------------------------------------------------------------------

// As much as a record takes, in one of the extras; malloc'ed.
static char *much(const char *name)
{
	char *text = malloc(CKPT_METADATA_BYTES_MAX + 1);
	int frame = snprintf(NULL, 0, "{\"extras\":{\"%s\":\"\"}}", name);

	sprintf(text, "{\"extras\":{\"%s\":\"%*s\"}}", name, (int)CKPT_METADATA_BYTES_MAX - frame, "");
	ck_assert_uint_eq(strlen(text), CKPT_METADATA_BYTES_MAX);
	return text;
}

static void says(const char *metadata, bool temporary)
{
	struct ckpt_record r;

	ck_ok(ckpt_step_record(step, step->version->is.version, &r));
	ck_assert_str_eq(r.metadata, metadata);
	ck_assert_int_eq(r.summary.temporary, temporary);
	ckpt_record_done(&r);
}

START_TEST(metadata_that_is_too_much_with_what_was_there_takes_its_place)
{
	CLEANUP_FREE char *first = much("first"), *next = much("next"), *last = much("last");

	ck_ok(ckpt_staged_commit(step, 0, first));
	says(first, false);
	ck_ok(ckpt_commit_metadata(step, next));
	says(next, false);
	ck_assert_uint_eq(ckpt_save_errors(s, "its earlier extras and metrics are dropped"), 1);
	ck_ok(ckpt_commit_metadata(step, next)); // says nothing new
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_ok(ckpt_commit_metadata(step, last));
	says(last, false);
	ck_assert_uint_eq(ckpt_save_errors(s, "its earlier extras and metrics are dropped"), 2);
}
END_TEST

START_TEST(a_step_stays_temporary_though_there_is_no_room_to_say_it_again)
{
	CLEANUP_FREE char *first = much("first"), *next = much("next");

	ck_ok(ckpt_staged_commit(step, 0, "{\"temporary\":true}"));
	says("{\"temporary\":true}", true);
	ck_ok(ckpt_commit_metadata(step, first));
	says(first, true);
	ck_ok(ckpt_promote(step));
	ck_ok(ckpt_commit_metadata(step, next));
	says(next, false);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("version");
	TCase *t = tcase_create("version");

	tcase_add_checked_fixture(t, setup, ckpt_fixture_step_close);
	tcase_add_test(t, metadata_that_is_too_much_with_what_was_there_takes_its_place);
	tcase_add_test(t, a_step_stays_temporary_though_there_is_no_room_to_say_it_again);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
