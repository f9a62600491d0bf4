#include "core/base/clock.h"

#include <stdio.h>
#include <time.h>

int64_t ckpt_time_between(int64_t from_ns, int64_t to_ns)
{
	int64_t ns;

	if (__builtin_sub_overflow(to_ns, from_ns, &ns))
		return to_ns < from_ns ? INT64_MIN : INT64_MAX;
	return ns;
}

void ckpt_time_format(int64_t ns, char ret_text[CKPT_TIME_LEN + 1])
{
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;
	size_t len;

	gmtime_r(&seconds, &tm);
	len = strftime(ret_text, CKPT_TIME_LEN + 1, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(ret_text + len, CKPT_TIME_LEN + 1 - len, ".%09uZ", (unsigned)(ns % 1000000000) % 1000000000u);
}
