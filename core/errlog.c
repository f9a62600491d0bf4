#include "core/errlog.h"

#include "core/clock.h"
#include "core/limits.h"
#include "core/sys.h"
#include "core/util.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

#define ERRORS_FILE "errors"
#define LINE_MAX_BYTES 2048

// Lines live in a ring; the file is appended to, and written anew from the ring when it holds twice the ring.
struct ckpt_errlog {
	int dirfd, fd; // fd -1: not writable, or could not be opened
	pthread_mutex_t lock;
	char *lines[CKPT_ERRORS_LINES_MAX]; // guarded by lock, as is all below
	size_t next, count;
	off_t file_bytes;
	size_t file_lines;
	int64_t last_at_ns;
};

const char *ckpt_errno_name(int error)
{
	const char *name = strerrorname_np(error < 0 ? -error : error);

	return name ? name : "E?";
}

// Text that was cut to fit ends with a whole character: half of one would make the line no UTF-8, and with it the file.
static void end_whole(char *text)
{
	size_t len = strlen(text), start = len, want;
	unsigned char first;

	while (start && len - start < 4 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
		start--;
	if (!start)
		return;
	first = (unsigned char)text[start - 1];
	want = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
	if (len - (start - 1) < want)
		text[start - 1] = '\0';
}

static void push_locked(struct ckpt_errlog *log, char *line)
{
	free(log->lines[log->next]);
	log->lines[log->next] = line;
	log->next = (log->next + 1) % CKPT_ERRORS_LINES_MAX;
	if (log->count < CKPT_ERRORS_LINES_MAX)
		log->count++;
}

static const char *line_at(const struct ckpt_errlog *log, size_t i)
{
	size_t first = (log->next + CKPT_ERRORS_LINES_MAX - log->count) % CKPT_ERRORS_LINES_MAX;

	return log->lines[(first + i) % CKPT_ERRORS_LINES_MAX];
}

static void load(struct ckpt_errlog *log)
{
	CLEANUP_FD int fd = ckpt_sys.open(log->dirfd, ERRORS_FILE, O_RDONLY, 0);
	CLEANUP_FREE char *text = NULL;
	struct stat st;
	ssize_t got;

	if (fd < 0 || fstat(fd, &st) || st.st_size <= 0)
		return;
	// A file of lines of full length would be this long; more is not of our making.
	off_t from = MAX((off_t)0, st.st_size - (off_t)(2 * CKPT_ERRORS_LINES_MAX) * LINE_MAX_BYTES);

	text = malloc((size_t)(st.st_size - from) + 1);
	if (!text)
		return;
	got = ckpt_sys.pread(fd, text, (size_t)(st.st_size - from), from);
	if (got <= 0)
		return;
	text[got] = '\0';
	log->file_bytes = from + got;
	log->last_at_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
	for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *copy = strndup(line, LINE_MAX_BYTES);

		if (!copy)
			return;
		if (strlen(line) > LINE_MAX_BYTES)
			end_whole(copy);
		push_locked(log, copy);
		log->file_lines++;
	}
}

int ckpt_errlog_open(int dirfd, bool writable, struct ckpt_errlog **ret_log)
{
	struct ckpt_errlog *log = calloc(1, sizeof(*log));

	if (!log)
		return -ENOMEM;
	log->dirfd = dirfd;
	log->fd = -1;
	pthread_mutex_init(&log->lock, NULL);
	load(log);
	if (writable)
		log->fd = ckpt_sys.open(dirfd, ERRORS_FILE, O_WRONLY | O_CREAT, 0600);
	*ret_log = log;
	return 0;
}

void ckpt_errlog_close(struct ckpt_errlog *log)
{
	if (!log)
		return;
	for (size_t i = 0; i < CKPT_ERRORS_LINES_MAX; i++)
		free(log->lines[i]);
	if (log->fd >= 0)
		ckpt_sys.close(log->fd);
	pthread_mutex_destroy(&log->lock);
	free(log);
}

int ckpt_errlog_text(struct ckpt_errlog *log, char **ret_text)
{
	LOCK_SCOPE(&log->lock);
	size_t bytes = 1, at = 0;
	char *text;

	for (size_t i = 0; i < log->count; i++)
		bytes += strlen(line_at(log, i)) + 1;
	text = malloc(bytes);
	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < log->count; i++)
		at += (size_t)sprintf(text + at, "%s\n", line_at(log, i));
	text[at] = '\0';
	*ret_text = text;
	return 0;
}

int ckpt_errlog_last(struct ckpt_errlog *log, int64_t *ret_at_ns, char **ret_message)
{
	LOCK_SCOPE(&log->lock);

	*ret_at_ns = log->last_at_ns;
	*ret_message = log->last_at_ns && log->count ? strdup(line_at(log, log->count - 1)) : NULL;
	return 0;
}

// The file is a convenience for people: it is not fsynced, and a failure to write it must not hide the failure it tells.
static void append_locked(struct ckpt_errlog *log, const char *line)
{
	char buf[LINE_MAX_BYTES + 2];
	int n = snprintf(buf, sizeof(buf), "%s\n", line);

	if (log->fd < 0)
		return;
	if (log->file_lines >= 2 * CKPT_ERRORS_LINES_MAX) {
		if (ckpt_sys.ftruncate(log->fd, 0))
			return;
		log->file_bytes = 0;
		log->file_lines = 0;
		for (size_t i = 0; i + 1 < log->count; i++) {
			char old[LINE_MAX_BYTES + 2];
			int m = snprintf(old, sizeof(old), "%s\n", line_at(log, i));

			if (ckpt_sys.pwrite(log->fd, old, (size_t)m, log->file_bytes) < 0)
				return;
			log->file_bytes += m;
			log->file_lines++;
		}
	}
	if (ckpt_sys.pwrite(log->fd, buf, (size_t)n, log->file_bytes) < 0)
		return;
	log->file_bytes += n;
	log->file_lines++;
}

void ckpt_errlog_add(struct ckpt_errlog *log, const char *subject, int error, const char *hint, const char *what, ...)
{
	char text[1024], line[LINE_MAX_BYTES], when[CKPT_TIME_LEN + 1];
	int64_t now = ckpt_sys.now_ns();
	char *copy;
	va_list ap;
	int n;

	if (!log)
		return;
	va_start(ap, what);
	n = vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	if (n >= (int)sizeof(text))
		end_whole(text);
	ckpt_time_format(now, when);
	n = snprintf(line, sizeof(line), "%s\t%s\t%s\t%s\t%s", when, subject, error ? ckpt_errno_name(error) : "note",
		     text, hint ? hint : "");
	if (n >= (int)sizeof(line))
		end_whole(line);
	for (char *p = line; *p; p++)
		if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
			*p = '?';
	copy = strdup(line);
	if (!copy)
		return;
	LOCK_SCOPE(&log->lock);
	log->last_at_ns = now;
	push_locked(log, copy);
	append_locked(log, copy);
}
