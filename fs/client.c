#include "fs/client.h"

#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PF_EXITING 0x4 // include/linux/sched.h

static bool read_proc(pid_t tid, const char *file, char *buf, size_t cap)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, file);
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	n = read(fd, buf, cap - 1);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	return true;
}

static const char *status_field(const char *status, const char *name)
{
	const char *at = strstr(status, name);

	return at && (at == status || at[-1] == '\n') ? at + strlen(name) : NULL;
}

pid_t client_process(pid_t tid)
{
	char status[4096];
	const char *tgid;

	if (!tid || !read_proc(tid, "status", status, sizeof(status)))
		return 0;
	tgid = status_field(status, "Tgid:");
	return tgid ? (pid_t)strtol(tgid, NULL, 10) : 0;
}

bool client_comm(pid_t tid, char *ret_comm)
{
	pid_t process = client_process(tid); // a thread may be called otherwise

	if (!process || !read_proc(process, "comm", ret_comm, CLIENT_COMM_BYTES))
		return false;
	ret_comm[strcspn(ret_comm, "\n")] = '\0';
	return true;
}

// execve(2) closes descriptors while it holds a lock that /proc/TID/stat waits for: read from a FLUSH, it would wait for
// our own answer, and ps with it. /proc/TID/status takes no such lock, and tells: who exits has given up its memory
// before its files, who executes has not.
static bool may_be_exiting(pid_t tid)
{
	char status[4096];

	return read_proc(tid, "status", status, sizeof(status)) && !status_field(status, "VmSize:");
}

#define STAT_FIELDS 53

// proc(5): fields are numbered from 1; the second, the name, is in parentheses and may hold anything.
static bool read_stat(pid_t tid, unsigned long long fields[STAT_FIELDS])
{
	char stat[2048], *at, *save = NULL;
	int field = 3;

	if (!read_proc(tid, "stat", stat, sizeof(stat)) || !(at = strrchr(stat, ')')))
		return false;
	for (char *word = strtok_r(at + 1, " \n", &save); word && field < STAT_FIELDS;
	     word = strtok_r(NULL, " \n", &save), field++)
		fields[field] = strtoull(word, NULL, 10);
	return true;
}

bool client_was_killed(pid_t tid)
{
	unsigned long long fields[STAT_FIELDS] = {0};

	return tid && may_be_exiting(tid) && read_stat(tid, fields) && (fields[9] & PF_EXITING) && (fields[52] & 0x7f);
}

// /proc has the start in ticks, rounded down: a tick less is what is certain.
int64_t client_age_ns(pid_t tid)
{
	const int64_t tick_ns = INT64_C(1000000000) / sysconf(_SC_CLK_TCK);
	unsigned long long fields[STAT_FIELDS] = {0};
	pid_t process = client_process(tid);
	struct timespec now;

	if (!process || !read_stat(process, fields) || clock_gettime(CLOCK_BOOTTIME, &now))
		return -1;
	int64_t age_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec - ((int64_t)fields[22] + 1) * tick_ns;
	return age_ns < 0 ? 0 : age_ns;
}

// fdinfo holds the number of the file and the flags of the open, in octal, without asking any filesystem.
static bool descriptor_writes(int dirfd, const char *name, uint64_t number)
{
	CLEANUP_FD int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	const char *flags, *ino;
	char text[512];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return false;
	text[n] = '\0';
	flags = status_field(text, "flags:");
	ino = status_field(text, "ino:");
	return flags && ino && strtoull(ino, NULL, 10) == number && (strtoul(flags, NULL, 8) & O_ACCMODE) != O_RDONLY;
}

bool client_can_write(pid_t tid, uint64_t number)
{
	char path[64];
	struct dirent *e;
	bool can = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)tid);
	dir = tid ? opendir(path) : NULL;
	if (!dir)
		return false;
	while (!can && (e = readdir(dir)))
		can = e->d_name[0] != '.' && descriptor_writes(dirfd(dir), e->d_name, number);
	closedir(dir);
	return can;
}

bool client_has_as_output(pid_t tid, uint64_t number)
{
	static const char *const names[] = {"1", "2"};
	char path[64];

	if (!tid)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)tid);
	CLEANUP_FD int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; i < ARRAY_LEN(names) && dirfd >= 0; i++)
		if (descriptor_writes(dirfd, names[i], number))
			return true;
	return false;
}

bool client_is_dying(pid_t tid)
{
	char status[4096];
	const char *pending;

	if (!tid || !read_proc(tid, "status", status, sizeof(status)))
		return false;
	pending = status_field(status, "SigPnd:");
	return pending && (strtoull(pending, NULL, 16) >> (SIGKILL - 1) & 1);
}
