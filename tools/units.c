#include "tools/units.h"

#include "core/base/util.h"

#include <stdio.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)

const char *ckpt_size_text(uint64_t bytes, char text[CKPT_SIZE_MAX])
{
	static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	size_t i = 0;

	if (bytes < 1024) {
		snprintf(text, CKPT_SIZE_MAX, "%uB", (unsigned)bytes);
		return text;
	}
	// 1023.95 would be rounded up to four digits that are the next unit's one.
	while (value >= 1023.95 && i + 1 < ARRAY_LEN(names)) {
		value /= 1024;
		i++;
	}
	snprintf(text, CKPT_SIZE_MAX, value < 99.95 ? "%.1f%s" : "%.0f%s", value, names[i]);
	return text;
}

const char *ckpt_duration_text(int64_t ns, char text[CKPT_DURATION_MAX])
{
	int64_t s = ns / NS_PER_S;

	if (ns < NS_PER_S)
		snprintf(text, CKPT_DURATION_MAX, "%dms", (int)(ns / 1000000));
	else if (ns < 10 * NS_PER_S)
		snprintf(text, CKPT_DURATION_MAX, "%.1fs", (double)ns / 1e9);
	else if (s < 60)
		snprintf(text, CKPT_DURATION_MAX, "%ds", (int)s);
	else if (s < 3600)
		snprintf(text, CKPT_DURATION_MAX, "%dm%02ds", (int)(s / 60), (int)(s % 60));
	else if (s < 2 * 86400)
		snprintf(text, CKPT_DURATION_MAX, "%dh%02dm", (int)(s / 3600), (int)(s / 60 % 60));
	else
		snprintf(text, CKPT_DURATION_MAX, "%lldd", (long long)(s / 86400));
	return text;
}

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
