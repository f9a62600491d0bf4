#include "core/base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

static struct {
	ckpt_log_fn *sink;
	enum ckpt_log_level level_max;
} out;

void ckpt_log_to(ckpt_log_fn *sink, enum ckpt_log_level level_max)
{
	out.sink = sink;
	out.level_max = level_max;
}

bool ckpt_log_wants(enum ckpt_log_level level)
{
	return out.sink && level <= out.level_max;
}

// A name may hold any byte: one line stays one line, and a terminal that shows it does nothing else.
static void tame(char *line)
{
	for (; *line; line++)
		if ((unsigned char)*line < 0x20 || *line == 0x7f)
			*line = '?';
}

void ckpt_log(enum ckpt_log_level level, const char *format, ...)
{
	char line[CKPT_LOG_LINE_MAX];
	va_list ap;
	int n;

	if (!ckpt_log_wants(level))
		return;
	va_start(ap, format);
	n = vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	if (n > 0 && n < (int)sizeof(line) && line[n - 1] == '\n')
		line[n - 1] = '\0';
	tame(line);
	out.sink(level, line);
}
