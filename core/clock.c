#include "core/clock.h"

#include <stdio.h>
#include <time.h>

void ckpt_time_format(int64_t ns, char ret_text[CKPT_TIME_LEN + 1])
{
	time_t seconds = (time_t)(ns / 1000000000);
	char date[24];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(ret_text, CKPT_TIME_LEN + 1, "%.19s.%09dZ", date, (int)(ns % 1000000000));
}
