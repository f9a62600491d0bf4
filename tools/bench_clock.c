#include "tools/bench.h"

#include "core/base/util.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// CPU time is that of this process, of the daemon, and of all the kernel's threads: writing dirty pages back is done by
// the caller of fsync on one side and by a kernel thread on the other, and must count on both. Other processes' time
// does not count, so a busy machine spoils it less than /proc/stat's. All of it in nanoseconds, from the scheduler.

static double seconds(clockid_t clock)
{
	struct timespec t;

	return clock_gettime(clock, &t) ? 0 : (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double bench_now_s(void)
{
	return seconds(CLOCK_MONOTONIC);
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

double bench_median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static double cpu_of(pid_t pid)
{
	clockid_t clock;

	return pid <= 0 || clock_getcpuclockid(pid, &clock) ? 0 : seconds(clock);
}

// Not from "stat", which waits for a process in execve() that waits for a filesystem.
static bool is_kernel_thread(const char *pid)
{
	char path[64], text[4096];
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%.20s/status", pid);
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	if (len <= 0)
		return false;
	text[len] = '\0';
	// Linux 6.8 and newer say so; before, what has no memory of its own is one, or a zombie, which uses no time.
	return strstr(text, "\nKthread:\t1") || (!strstr(text, "\nKthread:") && !strstr(text, "\nVmSize:"));
}

// One that has ended since the last look keeps its time, or that would be missing from the work of others.
static struct kernel_thread {
	pid_t pid;
	double cpu_s, before_s; // of those that had the number before
} * kernel_threads;
static size_t kernel_thread_count, kernel_thread_cap;

static void note_kernel_thread(pid_t pid, double cpu_s)
{
	struct kernel_thread *t = kernel_threads, *end = t + kernel_thread_count;

	while (t < end && t->pid != pid)
		t++;
	if (t == end) {
		if (ckpt_grow((void **)&kernel_threads, &kernel_thread_cap, kernel_thread_count + 1, sizeof(*t)))
			return;
		t = &kernel_threads[kernel_thread_count++];
		*t = (struct kernel_thread){.pid = pid};
	}
	if (cpu_s < t->cpu_s)
		t->before_s += t->cpu_s;
	t->cpu_s = cpu_s;
}

static double cpu_of_kernel(void)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	double sum = 0;

	while (proc && (e = readdir(proc)))
		if (isdigit((unsigned char)e->d_name[0]) && is_kernel_thread(e->d_name)) {
			pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);

			note_kernel_thread(pid, cpu_of(pid));
		}
	if (proc)
		closedir(proc);
	for (size_t i = 0; i < kernel_thread_count; i++)
		sum += kernel_threads[i].before_s + kernel_threads[i].cpu_s;
	return sum;
}

// The client's clocks are read next to its work, the others outside: looking at them takes milliseconds.
void bench_clock_start(struct bench *b, struct bench_time *ret_start)
{
	bench_settle(b);
	ret_start->cpu_s = cpu_of(b->daemon) + cpu_of_kernel();
	ret_start->cpu_s += seconds(CLOCK_PROCESS_CPUTIME_ID);
	ret_start->wall_s = seconds(CLOCK_MONOTONIC);
}

void bench_clock_stop(struct bench *b, const struct bench_time *start, struct bench_time *ret_elapsed)
{
	ret_elapsed->wall_s = seconds(CLOCK_MONOTONIC) - start->wall_s;
	ret_elapsed->cpu_s = seconds(CLOCK_PROCESS_CPUTIME_ID) - start->cpu_s;
	bench_settle(b); // what the daemon still does behind is part of the cost
	ret_elapsed->cpu_s += cpu_of(b->daemon) + cpu_of_kernel();
}

void bench_settle(struct bench *b)
{
	struct timespec pause = {0, 5 * 1000 * 1000};
	double before = cpu_of(b->daemon), now;
	int still = 0;

	if (!b->daemon || b->seals)
		return;
	for (int i = 0; i < 2000 && still < 3; i++) {
		nanosleep(&pause, NULL);
		now = cpu_of(b->daemon);
		still = now - before < 50e-6 ? still + 1 : 0;
		before = now;
	}
}

static double status_field(pid_t pid, const char *field)
{
	char path[64], line[256];
	double value = NAN;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return NAN;
	while (isnan(value) && fgets(line, sizeof(line), file))
		if (!strncmp(line, field, strlen(field)))
			value = strtod(line + strlen(field), NULL) * 1024;
	fclose(file);
	return value;
}

double bench_rss(struct bench *b, bool peak)
{
	return b->daemon ? status_field(b->daemon, peak ? "VmHWM:" : "VmRSS:") : NAN;
}

void bench_rss_reset_peak(struct bench *b)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", (int)b->daemon);
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "5", 1) != 1)
		return; // then the peak is that since the mount, which is no lower
}

// --- Signals --------------------------------------------------------------------------------------------------------

static atomic_int stop_signal;

static void on_signal(int number)
{
	stop_signal = number;
}

void bench_signals_catch(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

bool bench_stopped(void)
{
	return stop_signal != 0;
}

int bench_stop_signal(void)
{
	return stop_signal;
}
