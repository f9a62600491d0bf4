#include "core/base/units.h"

#include "core/base/util.h"

#include <stdio.h>

#define NS_PER_S INT64_C(1000000000)

// A decimal number at the start of text; *ret_rest is what follows. Signs, hex and exponents are none of ours.
static int number(const char *text, double *ret_value, const char **ret_rest)
{
	size_t digits = strspn(text, "0123456789."), len = strlen(text);
	char copy[32], *end;

	if (digits == 0 || digits >= sizeof(copy) || digits > len)
		return -EINVAL;
	memcpy(copy, text, digits);
	copy[digits] = '\0';
	*ret_value = strtod(copy, &end);
	if (*end || end == copy)
		return -EINVAL;
	*ret_rest = text + digits;
	return 0;
}

static const struct {
	const char *name;
	double bytes;
} size_units[] = {
	{"", 1},       {"B", 1},        {"K", 0x1p10}, {"KiB", 0x1p10}, {"kB", 1e3},     {"KB", 1e3},
	{"M", 0x1p20}, {"MiB", 0x1p20}, {"MB", 1e6},   {"G", 0x1p30},   {"GiB", 0x1p30}, {"GB", 1e9},
	{"T", 0x1p40}, {"TiB", 0x1p40}, {"TB", 1e12},  {"P", 0x1p50},   {"PiB", 0x1p50}, {"PB", 1e15},
};

int ckpt_size_parse(const char *text, uint64_t *ret_bytes)
{
	const char *unit;
	double value;
	int rc = number(text, &value, &unit);

	if (rc)
		return rc;
	for (size_t i = 0; i < ARRAY_LEN(size_units); i++) {
		if (strcmp(unit, size_units[i].name))
			continue;
		value *= size_units[i].bytes;
		if (value >= 0x1p63)
			return -ERANGE;
		*ret_bytes = (uint64_t)value;
		return 0;
	}
	return -EINVAL;
}

const char *ckpt_size_exact(uint64_t bytes, char text[CKPT_SIZE_EXACT_MAX])
{
	static const char *const names[] = {"", "KiB", "MiB", "GiB", "TiB", "PiB"};
	size_t i = 0;

	for (; bytes && !(bytes % 1024) && i + 1 < ARRAY_LEN(names); i++)
		bytes /= 1024;
	snprintf(text, CKPT_SIZE_EXACT_MAX, "%llu%s", (unsigned long long)bytes, names[i]);
	return text;
}

static const struct {
	const char *name;
	double seconds;
} duration_units[] = {
	{"", 1},   {"s", 1},    {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9},
	{"m", 60}, {"min", 60}, {"h", 3600},  {"d", 86400}, {"w", 604800},
};

int ckpt_duration_parse(const char *text, int64_t *ret_ns)
{
	const char *unit;
	double value;
	int rc = number(text, &value, &unit);

	if (rc)
		return rc;
	for (size_t i = 0; i < ARRAY_LEN(duration_units); i++) {
		if (strcmp(unit, duration_units[i].name))
			continue;
		value *= duration_units[i].seconds * 1e9;
		if (value >= 0x1p62)
			return -ERANGE;
		*ret_ns = (int64_t)(value + 0.5);
		return 0;
	}
	return -EINVAL;
}

const char *ckpt_duration_exact(int64_t ns, char text[CKPT_DURATION_EXACT_MAX])
{
	static const struct {
		int64_t ns;
		const char *name;
	} units[] = {{INT64_C(86400000000000), "d"},
		     {INT64_C(3600000000000), "h"},
		     {INT64_C(60000000000), "m"},
		     {INT64_C(1000000000), "s"},
		     {1000000, "ms"},
		     {1000, "us"},
		     {1, "ns"}};
	size_t i = 0;

	while (units[i].ns > 1 && ns % units[i].ns)
		i++;
	if (ns)
		snprintf(text, CKPT_DURATION_EXACT_MAX, "%lld%s", (long long)(ns / units[i].ns), units[i].name);
	else
		snprintf(text, CKPT_DURATION_EXACT_MAX, "0s");
	return text;
}

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
