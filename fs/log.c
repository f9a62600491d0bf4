#include "fs/log.h"

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <fuse_log.h>
#include <stdarg.h>
#include <stdio.h>
#include <syslog.h>

#define LINES_MAX 1024
#define CLOSE_NS INT64_C(1000000000)

struct line {
	int64_t at_ns;
	enum ckpt_log_level level;
	char *text;
};

static struct {
	int fd; // -1: syslog
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	struct line lines[LINES_MAX]; // a ring
	size_t first, count;
	uint64_t dropped; // since the last line that was kept
	bool running, writing;
	pthread_t thread;
} sink = {.fd = -1, .lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF), .changed = PTHREAD_COND_INITIALIZER};

static const struct {
	const char *name;
	int priority; // of syslog(3)
} levels[] = {
	[CKPT_LOG_ERROR] = {"error", LOG_ERR},
	[CKPT_LOG_WARN] = {"warn", LOG_WARNING},
	[CKPT_LOG_INFO] = {"info", LOG_INFO},
	[CKPT_LOG_DEBUG] = {"debug", LOG_DEBUG},
};

static void write_line(const struct line *l)
{
	char when[CKPT_TIME_LEN + 1], line[CKPT_LOG_LINE_MAX + 64];
	int n;

	if (sink.fd < 0) {
		syslog(levels[l->level].priority, "%s", l->text);
		return;
	}
	ckpt_time_format(l->at_ns, when);
	n = snprintf(line, sizeof(line), "%s ckptfs: %s%s%s\n", when,
		     l->level < CKPT_LOG_INFO ? levels[l->level].name : "", l->level < CKPT_LOG_INFO ? ": " : "",
		     l->text);
	(void)!write(sink.fd, line, (size_t)n); // not by stdio, for whose streams the end of a process waits
}

static void *writer_thread(void *arg __attribute__((unused)))
{
	LOCK_SCOPE(&sink.lock);

	while (true) {
		struct line line;

		if (!sink.count) {
			sink.writing = false;
			pthread_cond_broadcast(&sink.changed);
			ckpt_lock_wait(&sink.changed, &sink.lock);
			continue;
		}
		line = sink.lines[sink.first];
		sink.first = (sink.first + 1) % LINES_MAX;
		sink.count--;
		sink.writing = true;
		ckpt_lock_drop(&sink.lock);
		write_line(&line);
		free(line.text);
		ckpt_lock_take(&sink.lock);
	}
	return NULL;
}

static bool push_locked(enum ckpt_log_level level, char *text)
{
	if (!text || sink.count == LINES_MAX)
		return false;
	sink.lines[(sink.first + sink.count++) % LINES_MAX] =
		(struct line){.at_ns = ckpt_sys.now_ns(), .level = level, .text = text};
	return true;
}

static void tell_dropped_locked(void)
{
	char *text = NULL;

	if (sink.dropped && sink.count + 1 < LINES_MAX &&
	    asprintf(&text, "%llu lines were dropped: the log is written too slowly",
		     (unsigned long long)sink.dropped) > 0 &&
	    push_locked(CKPT_LOG_WARN, text))
		sink.dropped = 0;
}

static void queue_line(enum ckpt_log_level level, const char *text)
{
	char *copy = strdup(text);
	LOCK_SCOPE(&sink.lock);

	tell_dropped_locked();
	if (!push_locked(level, copy)) {
		free(copy);
		sink.dropped++;
		return;
	}
	if (!sink.running)
		sink.running = !pthread_create(&sink.thread, NULL, writer_thread, NULL);
	pthread_cond_broadcast(&sink.changed);
}

// libfuse's levels are those of syslog. Why a mount fails is said by its errors alone, so who mounts by hand sees them, too;
// once in the background nobody does.
static void from_libfuse(enum fuse_log_level level, const char *format, va_list ap)
{
	char text[CKPT_LOG_LINE_MAX];

	vsnprintf(text, sizeof(text), format, ap);
	ckpt_log(level <= FUSE_LOG_ERR       ? CKPT_LOG_ERROR
		 : level <= FUSE_LOG_WARNING ? CKPT_LOG_WARN
		 : level <= FUSE_LOG_INFO    ? CKPT_LOG_INFO
					     : CKPT_LOG_DEBUG,
		 "%s", text);
	if (level <= FUSE_LOG_ERR && sink.fd != STDERR_FILENO)
		fputs(text, stderr);
}

static void tell_lock_order(const char *text)
{
	struct line line = {.at_ns = ckpt_sys.now_ns(), .level = CKPT_LOG_ERROR, .text = strdup(text)};

	if (line.text)
		write_line(&line); // at once: the process may abort, and locks are held
	free(line.text);
}

int log_open(const char *where, const char *level)
{
	size_t i = 0;

	while (level && i < ARRAY_LEN(levels) && strcmp(levels[i].name, level))
		i++;
	if (i == ARRAY_LEN(levels))
		return -EINVAL;
	if (!strcmp(where, "syslog")) {
		openlog("ckptfs", LOG_PID, LOG_DAEMON);
	} else {
		sink.fd = strcmp(where, "-") ? open(where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)
					     : STDERR_FILENO;
		if (sink.fd < 0)
			return -errno;
	}
	ckpt_log_to(queue_line, level ? (enum ckpt_log_level)i : CKPT_LOG_INFO);
	fuse_set_log_func(from_libfuse);
	ckpt_lock_order_tell = tell_lock_order;
	return 0;
}

void log_close(void)
{
	int64_t until_ns = ckpt_sys.mono_ns() + CLOSE_NS;
	LOCK_SCOPE(&sink.lock);

	while (sink.running && (sink.count || sink.writing) &&
	       !ckpt_lock_wait_ns(&sink.changed, &sink.lock, until_ns - ckpt_sys.mono_ns()))
		;
}
