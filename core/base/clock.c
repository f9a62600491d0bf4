#include "core/base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

#define SECOND_NS INT64_C(1000000000)

int64_t ckpt_time_between(int64_t from_ns, int64_t to_ns)
{
	int64_t ns;

	if (__builtin_sub_overflow(to_ns, from_ns, &ns))
		return to_ns < from_ns ? INT64_MIN : INT64_MAX;
	return ns;
}

// --- As text ----------------------------------------------------------------------------------------------------------

void ckpt_time_format(int64_t ns, char ret_text[CKPT_TIME_LEN + 1])
{
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;
	size_t len;

	gmtime_r(&seconds, &tm);
	len = strftime(ret_text, CKPT_TIME_LEN + 1, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(ret_text + len, CKPT_TIME_LEN + 1 - len, ".%09uZ", (unsigned)(ns % 1000000000) % 1000000000u);
}

// Exactly so many digits; false: other characters, or above most.
static bool take_number(const char **at, int digits, int most, int *ret)
{
	int n = 0;

	for (int i = 0; i < digits; i++) {
		if (!isdigit((unsigned char)(*at)[i]))
			return false;
		n = n * 10 + ((*at)[i] - '0');
	}
	*at += digits;
	*ret = n;
	return n <= most;
}

static bool take(const char **at, char c)
{
	if (**at != c)
		return false;
	++*at;
	return true;
}

static bool take_date(const char **at, struct tm *tm)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int year, month, day, leap;

	if (!take_number(at, 4, 9999, &year) || !take(at, '-') || !take_number(at, 2, 12, &month) || !take(at, '-') ||
	    !take_number(at, 2, 31, &day) || !year || !month || !day)
		return false;
	leap = month == 2 && year % 4 == 0 && (year % 100 || year % 400 == 0);
	*tm = (struct tm){.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_isdst = -1};
	return day <= days[month - 1] + leap;
}

// What is not said is 0; digits behind the ninth are not looked at.
static bool take_time(const char **at, struct tm *tm, int64_t *ret_ns)
{
	int64_t scale = SECOND_NS / 10;

	*ret_ns = 0;
	if (!take(at, 'T') && !take(at, ' '))
		return true;
	if (!take_number(at, 2, 23, &tm->tm_hour))
		return false;
	if (!take(at, ':'))
		return true;
	if (!take_number(at, 2, 59, &tm->tm_min))
		return false;
	if (!take(at, ':'))
		return true;
	if (!take_number(at, 2, 59, &tm->tm_sec))
		return false;
	if (!take(at, '.') && !take(at, ','))
		return true;
	if (!isdigit((unsigned char)**at))
		return false;
	for (; isdigit((unsigned char)**at); ++*at, scale /= 10)
		*ret_ns += scale * (**at - '0');
	return true;
}

// *ret_seconds east of Greenwich; *ret_zoned false: nothing is said.
static bool take_zone(const char **at, bool *ret_zoned, int64_t *ret_seconds)
{
	bool west = **at == '-';
	int hours, minutes = 0;

	*ret_seconds = 0;
	*ret_zoned = **at;
	if (!**at || take(at, 'Z'))
		return true;
	if (!take(at, '+') && !take(at, '-'))
		return false;
	if (!take_number(at, 2, 23, &hours))
		return false;
	if ((take(at, ':') || **at) && !take_number(at, 2, 59, &minutes))
		return false;
	*ret_seconds = (west ? -60 : 60) * (hours * INT64_C(60) + minutes);
	return true;
}

int ckpt_time_parse(const char *text, bool local, int64_t *ret_ns)
{
	int64_t seconds, east, ns;
	struct tm tm;
	bool zoned;

	if (!take_date(&text, &tm) || !take_time(&text, &tm, &ns) || !take_zone(&text, &zoned, &east) || *text)
		return -EINVAL;
	seconds = local && !zoned ? (int64_t)mktime(&tm) : (int64_t)timegm(&tm) - east;
	if (__builtin_mul_overflow(seconds, SECOND_NS, &seconds) || __builtin_add_overflow(seconds, ns, &ns))
		ns = tm.tm_year < 70 ? INT64_MIN : INT64_MAX;
	*ret_ns = ns;
	return 0;
}
