// Times as text: what is read, and what is written is read again.
#include "tests/support/suite.h"

#include "core/base/clock.h"
#include "core/base/util.h"

#include <stdlib.h>
#include <time.h>

#define SECOND INT64_C(1000000000)
#define BAD INT64_C(-1)

static const struct {
	const char *text;
	int64_t ns;
} dates[] = {
	{"1970-01-02T00:00:01.5Z", 86401500000000},
	{"1970-01-02T00:00:01.123456", 86401123456000 - 7200 * SECOND}, // as isoformat() writes it, two hours east
	{"1970-01-02 00:00:01,25+00:00", 86401250000000},
	{"1970-01-02", 86400 * SECOND - 7200 * SECOND},
	{"1970-01-02T03", 86400 * SECOND + 3600 * SECOND},
	{"1970-01-02T03:30Z", 86400 * SECOND + 12600 * SECOND},
	{"1970-01-02T00:00:00+01:30", 86400 * SECOND - 5400 * SECOND},
	{"1970-01-02T00:00:00-0130", 86400 * SECOND + 5400 * SECOND},
	{"1970-01-02T00:00:00-01", 86400 * SECOND + 3600 * SECOND},
	{"1970-01-01T00:00:00.9999999999999Z", 999999999},
	{"2000-02-29T00:00:00Z", 951782400 * SECOND},
	{"9999-12-31T23:59:59.999999", INT64_MAX},
	{"0001-01-01", INT64_MIN},
	{"", BAD},
	{"now", BAD},
	{"1970", BAD},
	{"1970-1-2", BAD},
	{"1970-00-02", BAD},
	{"1970-13-02", BAD},
	{"1970-01-00", BAD},
	{"1970-01-32", BAD},
	{"1971-02-29", BAD},
	{"1900-02-29", BAD},
	{"0000-01-01", BAD},
	{"1970-01-02T24:00", BAD},
	{"1970-01-02T00:60", BAD},
	{"1970-01-02T00:00:60", BAD},
	{"1970-01-02T", BAD},
	{"1970-01-02T00:00:00.", BAD},
	{"1970-01-02T00:00:00Zulu", BAD},
	{"1970-01-02T00:00:00+1", BAD},
	{"1970-01-02T00:00:00+01:", BAD},
	{"1970-01-02T00:00:00+24:00", BAD},
	{" 1970-01-02", BAD},
	{"1970-01-02 ", BAD},
	{"-970-01-02", BAD},
};

static void two_hours_east(void)
{
	setenv("TZ", "UTC-2", 1);
	tzset();
}

START_TEST(a_date_is_read_as_the_table_says)
{
	int64_t ns = BAD;
	int rc = ckpt_time_parse(dates[_i].text, true, &ns);

	ck_assert_msg(rc == (dates[_i].ns == BAD ? -EINVAL : 0) && ns == dates[_i].ns, "%s: %d, %lld", dates[_i].text,
		      rc, (long long)ns);
}
END_TEST

START_TEST(without_a_zone_it_is_utc_unless_it_is_local)
{
	int64_t ns;

	ck_assert_int_eq(ckpt_time_parse("1970-01-02", false, &ns), 0);
	ck_assert_int_eq(ns, 86400 * SECOND);
	ck_assert_int_eq(ckpt_time_parse("1970-01-02T00:00:00+01:00", false, &ns), 0);
	ck_assert_int_eq(ns, 82800 * SECOND);
}
END_TEST

START_TEST(what_is_written_is_read_again)
{
	static const int64_t times[] = {0, 1, 999999999, 1732492800123456789, 4102444800000000000};
	char text[CKPT_TIME_LEN + 1];
	int64_t ns;

	ckpt_time_format(times[_i], text);
	ck_assert_int_eq(ckpt_time_parse(text, false, &ns), 0);
	ck_assert_int_eq(ns, times[_i]);
}
END_TEST

START_TEST(between_two_times_is_as_far_as_a_number_goes)
{
	ck_assert_int_eq(ckpt_time_between(3, 5), 2);
	ck_assert_int_eq(ckpt_time_between(INT64_MAX, INT64_MIN), INT64_MIN);
	ck_assert_int_eq(ckpt_time_between(INT64_MIN, INT64_MAX), INT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clock");
	TCase *tcase = tcase_create("clock");

	tcase_add_unchecked_fixture(tcase, two_hours_east, NULL);
	tcase_add_loop_test(tcase, a_date_is_read_as_the_table_says, 0, ARRAY_LEN(dates));
	tcase_add_test(tcase, without_a_zone_it_is_utc_unless_it_is_local);
	tcase_add_loop_test(tcase, what_is_written_is_read_again, 0, 5);
	tcase_add_test(tcase, between_two_times_is_as_far_as_a_number_goes);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
