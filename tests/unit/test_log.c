// Lines of the daemon's log, as core hands them to whoever writes them.
#include "tests/support/suite.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <stdio.h>

static char got[CKPT_LOG_LINE_MAX];
static enum ckpt_log_level got_level;
static int lines;

static void keep(enum ckpt_log_level level, const char *line)
{
	got_level = level;
	snprintf(got, sizeof(got), "%s", line);
	lines++;
}

START_TEST(a_line_comes_with_its_level_and_without_its_line_break)
{
	ckpt_log_to(keep, CKPT_LOG_INFO);
	ckpt_log(CKPT_LOG_INFO, "committed %s: %d files\n", "step_1", 2);
	ck_assert_int_eq(lines, 1);
	ck_assert_int_eq(got_level, CKPT_LOG_INFO);
	ck_assert_str_eq(got, "committed step_1: 2 files");
}
END_TEST

START_TEST(lines_above_the_level_are_dropped)
{
	ckpt_log_to(keep, CKPT_LOG_WARN);
	ck_assert(!ckpt_log_wants(CKPT_LOG_INFO));
	ckpt_log(CKPT_LOG_INFO, "a commit");
	ckpt_log(CKPT_LOG_DEBUG, "more");
	ck_assert_int_eq(lines, 0);
	ckpt_log(CKPT_LOG_WARN, "a warning");
	ckpt_log(CKPT_LOG_ERROR, "an error");
	ck_assert_int_eq(lines, 2);
}
END_TEST

START_TEST(without_a_sink_nothing_happens)
{
	ckpt_log_to(NULL, CKPT_LOG_DEBUG);
	ck_assert(!ckpt_log_wants(CKPT_LOG_ERROR));
	ckpt_log(CKPT_LOG_ERROR, "nobody hears it");
	ck_assert_int_eq(lines, 0);
}
END_TEST

START_TEST(a_name_of_any_bytes_is_one_line_and_moves_no_cursor)
{
	ckpt_log_to(keep, CKPT_LOG_INFO);
	ckpt_log(CKPT_LOG_INFO, "committed %s", "a\nb\x1b[2J\x7f");
	ck_assert_str_eq(got, "committed a?b?[2J?");
}
END_TEST

START_TEST(a_line_that_is_too_long_is_cut_off)
{
	char name[2 * CKPT_LOG_LINE_MAX];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	ckpt_log_to(keep, CKPT_LOG_INFO);
	ckpt_log(CKPT_LOG_INFO, "%s", name);
	ck_assert_uint_eq(strlen(got), CKPT_LOG_LINE_MAX - 1);
}
END_TEST

static Suite *log_suite(void)
{
	Suite *suite = suite_create("log");
	TCase *tcase = tcase_create("log");

	tcase_add_test(tcase, a_line_comes_with_its_level_and_without_its_line_break);
	tcase_add_test(tcase, lines_above_the_level_are_dropped);
	tcase_add_test(tcase, without_a_sink_nothing_happens);
	tcase_add_test(tcase, a_name_of_any_bytes_is_one_line_and_moves_no_cursor);
	tcase_add_test(tcase, a_line_that_is_too_long_is_cut_off);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(log_suite());
}
