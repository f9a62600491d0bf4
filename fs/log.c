#include "fs/log.h"

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <fuse_log.h>
#include <stdio.h>
#include <syslog.h>

static struct {
	FILE *file; // NULL: syslog
	int priority_max;
} sink = {NULL, LOG_WARNING};

static void write_line(int priority, const char *format, va_list ap)
{
	char text[1024], when[CKPT_TIME_LEN + 1];
	size_t len;

	if (priority > sink.priority_max)
		return;
	vsnprintf(text, sizeof(text), format, ap);
	len = strlen(text);
	while (len && text[len - 1] == '\n')
		text[--len] = '\0';
	if (!sink.file) {
		syslog(priority, "%s", text);
		return;
	}
	ckpt_time_format(ckpt_sys.now_ns(), when);
	fprintf(sink.file, "%s ckptfs: %s\n", when, text);
	fflush(sink.file);
}

void log_line(int priority, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	write_line(priority, format, ap);
	va_end(ap);
}

// libfuse's levels are those of syslog. Why a mount fails is said by its errors alone, so who mounts by hand sees them, too;
// once in the background nobody does.
static void from_libfuse(enum fuse_log_level level, const char *format, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	write_line((int)level, format, ap);
	if (level <= FUSE_LOG_ERR && sink.file != stderr)
		vfprintf(stderr, format, again);
	va_end(again);
}

static void tell_lock_order(const char *text)
{
	log_line(LOG_ERR, "%s", text);
}

int log_open(const char *where, const char *level)
{
	static const struct {
		const char *name;
		int priority;
	} levels[] = {{"error", LOG_ERR}, {"warn", LOG_WARNING}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}};
	size_t i = 0;

	while (level && i < ARRAY_LEN(levels) && strcmp(levels[i].name, level))
		i++;
	if (i == ARRAY_LEN(levels))
		return -EINVAL;
	sink.priority_max = level ? levels[i].priority : LOG_WARNING;
	if (!strcmp(where, "syslog")) {
		openlog("ckptfs", LOG_PID, LOG_DAEMON);
	} else {
		sink.file = strcmp(where, "-") ? fopen(where, "ae") : stderr;
		if (!sink.file)
			return -errno;
	}
	fuse_set_log_func(from_libfuse);
	ckpt_lock_order_tell = tell_lock_order;
	return 0;
}
