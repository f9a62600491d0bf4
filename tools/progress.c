#include "tools/progress.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "tools/output.h"
#include "tools/units.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>

#define FIRST_NS INT64_C(1000000000)
#define EVERY_NS INT64_C(100000000)

static struct {
	const char *label; // NULL: no bar
	uint64_t total, done;
	bool bytes, wanted;
	volatile bool shown; // read by the signal handler
	int64_t began_ns, drawn_ns;
} bar;

static int64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

void ckpt_progress_start(const char *label, uint64_t total, int bytes)
{
	bar.label = label;
	bar.total = total;
	bar.done = 0;
	bar.bytes = bytes;
	bar.wanted = !ckpt_output.quiet && isatty(STDERR_FILENO);
	bar.began_ns = mono_ns();
	bar.drawn_ns = 0;
}

void ckpt_progress_total(uint64_t total)
{
	bar.total = total;
}

static void amount(uint64_t n, char text[CKPT_SIZE_MAX + 8])
{
	if (bar.bytes)
		ckpt_size_text(n, text);
	else
		snprintf(text, CKPT_SIZE_MAX + 8, "%llu", (unsigned long long)n);
}

static void draw(int64_t now_ns)
{
	char done[CKPT_SIZE_MAX + 8], total[CKPT_SIZE_MAX + 8], rate[CKPT_SIZE_MAX + 8], line[128];
	double seconds = (double)(now_ns - bar.began_ns) / 1e9;
	struct winsize size;
	int columns = 80, n;

	if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col > 20)
		columns = size.ws_col;
	amount(bar.done, done);
	amount(bar.total, total);
	amount((uint64_t)((double)bar.done / seconds), rate);
	if (bar.total)
		n = snprintf(line, sizeof(line), "%s  %3u%%  %s of %s  %s/s", bar.label,
			     (unsigned)((double)MIN(bar.done, bar.total) / (double)bar.total * 100), done, total, rate);
	else if (bar.done)
		n = snprintf(line, sizeof(line), "%s  %s  %ds", bar.label, done, (int)seconds);
	else
		n = snprintf(line, sizeof(line), "%s  %ds", bar.label, (int)seconds);
	fprintf(stderr, "\r%.*s\033[K", MIN(n, columns - 1), line);
	fflush(stderr);
	bar.shown = true;
}

void ckpt_progress_update(uint64_t done)
{
	int64_t now;

	bar.done = done;
	if (!bar.label || !bar.wanted)
		return;
	now = mono_ns();
	if (now - bar.began_ns < FIRST_NS || now - bar.drawn_ns < EVERY_NS)
		return;
	bar.drawn_ns = now;
	draw(now);
}

void ckpt_progress_add(uint64_t done)
{
	static struct ckpt_lock lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF);
	LOCK_SCOPE(&lock);

	ckpt_progress_update(bar.done + done);
}

void ckpt_progress_hide(void)
{
	if (!bar.shown)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	bar.shown = false;
	bar.drawn_ns = 0;
}

void ckpt_progress_hide_in_signal(void)
{
	if (bar.shown)
		(void)!write(STDERR_FILENO, "\r\033[K", 4);
}

void ckpt_progress_stop(void)
{
	ckpt_progress_hide();
	bar.label = NULL;
}
