#include "tools/units.h"

#include "core/base/util.h"

#include <stdio.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)

const char *ckpt_time_local(int64_t time_ns, char text[CKPT_TIME_MAX])
{
	struct tm tm;
	time_t s = (time_t)(time_ns / NS_PER_S);

	if (!time_ns) {
		strcpy(text, "-");
		return text;
	}
	localtime_r(&s, &tm);
	strftime(text, CKPT_TIME_MAX, "%Y-%m-%d %H:%M:%S", &tm);
	return text;
}
