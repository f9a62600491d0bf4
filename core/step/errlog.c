#include "core/step/errlog.h"

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/jobs/jobs.h"
#include "core/limits.h"
#include "core/record/name.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#define ERRORS_FILE "errors"
#define LINE_MAX_BYTES 2048

#define WRITE_WAIT_NS INT64_C(100000000)

// Lines live in a ring; the file is appended to, and written anew from the ring when it holds twice the ring. A job
// writes it: the failure to tell may be that this very disk hangs.
struct ckpt_errlog {
	int dirfd, fd;        // fd -1: not writable, or could not be opened
	struct ckpt_job *job; // NULL: not writable
	// The job's.
	off_t file_bytes;
	size_t file_lines;
	struct ckpt_lock lock;
	// Guarded by lock.
	pthread_cond_t changed;
	char *lines[CKPT_ERRORS_LINES_MAX];
	size_t next, count;
	uint64_t added, written; // lines, ever
	uint64_t failures;       // of them with an error, written or not
	int64_t last_at_ns;
};

const char *ckpt_errno_hint(int error)
{
	switch (error < 0 ? -error : error) {
	case ENOSPC:
		return "make room (`ckptfs status` shows what takes it; see also `df -i`), then try again";
	case EDQUOT:
		return "make room below the quota, or raise it, then try again";
	case EMFILE:
	case ENFILE:
		return "raise the limit of open files (`ulimit -n`), then try again";
	case EIO:
		return "look at the disk (`dmesg`), then try again";
	case EINTR:
	case ENOMEM:
		return "try again";
	default:
		return NULL;
	}
}

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

// A terminal that shows the line shall do nothing else.
static void tame(char *line)
{
	for (char *p = line; *p; p++)
		if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
			*p = '?';
}

// The file may be anybody's who could write the store.
static char *line_of_file(const char *text)
{
	CLEANUP_FREE char *copy = strndup(text, LINE_MAX_BYTES);

	if (!copy)
		return NULL;
	if (strlen(text) > LINE_MAX_BYTES)
		end_whole(copy);
	tame(copy);
	return ckpt_name_clean(copy);
}

static void load(struct ckpt_errlog *log)
{
	CLEANUP_FD int fd = ckpt_sys.open(log->dirfd, ERRORS_FILE, O_RDONLY | O_NONBLOCK, 0);
	CLEANUP_FREE char *text = NULL;
	struct stat st;
	ssize_t got;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size <= 0)
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
		char *copy = line_of_file(line);

		if (!copy)
			return;
		push_locked(log, copy);
		log->file_lines++;
	}
}

// The newest `lines` of the ring, malloc'ed.
static char *text_locked(const struct ckpt_errlog *log, size_t lines)
{
	size_t bytes = 1, at = 0;
	char *text;

	for (size_t i = log->count - lines; i < log->count; i++)
		bytes += strlen(line_at(log, i)) + 1;
	text = malloc(bytes);
	if (!text)
		return NULL;
	for (size_t i = log->count - lines; i < log->count; i++)
		at += (size_t)sprintf(text + at, "%s\n", line_at(log, i));
	text[at] = '\0';
	return text;
}

int ckpt_errlog_text(struct ckpt_errlog *log, char **ret_text)
{
	LOCK_SCOPE(&log->lock);

	*ret_text = text_locked(log, log->count);
	return *ret_text ? 0 : -ENOMEM;
}

int ckpt_errlog_last(struct ckpt_errlog *log, int64_t *ret_at_ns, char **ret_message)
{
	LOCK_SCOPE(&log->lock);

	*ret_at_ns = log->last_at_ns;
	*ret_message = log->last_at_ns && log->count ? strdup(line_at(log, log->count - 1)) : NULL;
	return 0;
}

uint64_t ckpt_errlog_failures(struct ckpt_errlog *log)
{
	LOCK_SCOPE(&log->lock);

	return log->failures;
}

// The file is a convenience for people: it is not fsynced, and a failure to write it must not hide the failure it tells.
static void write_text(struct ckpt_errlog *log, const char *text, size_t lines, bool anew)
{
	size_t len = strlen(text);

	if (anew && ckpt_sys.ftruncate(log->fd, 0))
		return;
	if (anew)
		log->file_bytes = (off_t)(log->file_lines = 0);
	if (ckpt_sys.pwrite(log->fd, text, len, log->file_bytes) != (ssize_t)len)
		return; // the next one goes over it
	log->file_bytes += (off_t)len;
	log->file_lines += lines;
}

// False: there was nothing to write.
static bool write_added(struct ckpt_errlog *log)
{
	CLEANUP_FREE char *text = NULL;
	bool anew = log->file_lines >= 2 * CKPT_ERRORS_LINES_MAX;
	uint64_t added;
	size_t lines;

	ckpt_lock_take(&log->lock);
	added = log->added;
	lines = anew ? log->count : (size_t)MIN(added - log->written, log->count);
	text = log->written < added ? text_locked(log, lines) : NULL;
	ckpt_lock_drop(&log->lock);
	if (text)
		write_text(log, text, lines, anew);
	LOCK_SCOPE(&log->lock);
	if (log->written == added)
		return false;
	log->written = added;
	pthread_cond_broadcast(&log->changed);
	return true;
}

static int64_t turn(void *arg, struct ckpt_job *job __attribute__((unused)))
{
	return write_added(arg) ? 0 : INT64_MAX;
}

int ckpt_errlog_open(int dirfd, struct ckpt_jobs *jobs, struct ckpt_errlog **ret_log)
{
	struct ckpt_errlog *log = calloc(1, sizeof(*log));

	if (!log)
		return -ENOMEM;
	log->dirfd = dirfd;
	log->fd = -1;
	ckpt_lock_init(&log->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&log->changed, NULL);
	load(log);
	if (jobs)
		log->fd = ckpt_sys.open(dirfd, ERRORS_FILE, O_WRONLY | O_CREAT | O_NONBLOCK, 0600);
	if (log->fd >= 0 &&
	    ckpt_job_new(jobs, &(struct ckpt_job_of){"errors", CKPT_JOB_PROMPT, turn, log, true}, &log->job)) {
		ckpt_errlog_close(log);
		return -ENOMEM;
	}
	*ret_log = log;
	return 0;
}

void ckpt_errlog_close(struct ckpt_errlog *log)
{
	if (!log)
		return;
	ckpt_job_stop(log->job);
	while (log->job && write_added(log))
		;
	for (size_t i = 0; i < CKPT_ERRORS_LINES_MAX; i++)
		free(log->lines[i]);
	if (log->fd >= 0)
		ckpt_sys.close(log->fd);
	pthread_cond_destroy(&log->changed);
	ckpt_lock_done(&log->lock);
	free(log);
}

// Until the last line is in the file, but not for long.
static void wait_written_locked(struct ckpt_errlog *log)
{
	uint64_t mine = log->added;
	int64_t until_ns = ckpt_sys.mono_ns() + WRITE_WAIT_NS;

	while (log->written < mine && !ckpt_lock_wait_ns(&log->changed, &log->lock, until_ns - ckpt_sys.mono_ns()))
		;
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
	tame(line);
	ckpt_log(error ? CKPT_LOG_WARN : CKPT_LOG_INFO, "%s: %s%s%s", subject, text, hint ? "; " : "",
		 hint ? hint : "");
	copy = strdup(line);
	if (!copy)
		return;
	LOCK_SCOPE(&log->lock);
	log->last_at_ns = now;
	log->failures += error != 0;
	push_locked(log, copy);
	if (!log->job)
		return;
	log->added++;
	if (ckpt_job_wake(log->job))
		wait_written_locked(log);
}
