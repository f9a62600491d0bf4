#include "fs/client.h"

#include "core/base/proc.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PF_EXITING 0x4 // include/linux/sched.h

pid_t client_process(pid_t tid)
{
	return ckpt_proc_process(tid);
}

bool client_comm(pid_t tid, char *ret_comm)
{
	pid_t process = client_process(tid); // a thread may be called otherwise

	if (!process || !ckpt_proc_read(process, "comm", ret_comm, CLIENT_COMM_BYTES))
		return false;
	ret_comm[strcspn(ret_comm, "\n")] = '\0';
	return true;
}

// A FLUSH may come from execve(2), and /proc/TID/stat would wait for our own answer then (proc.h). /proc/TID/statm tells the two
// apart, and is cheap enough for each close: a process that exits has given up its memory before its files, one that executes
// has not.
static bool may_be_exiting(pid_t tid)
{
	char statm[CKPT_PROC_STATUS_MAX];

	return ckpt_proc_read(tid, "statm", statm, sizeof(statm)) && !strncmp(statm, "0 ", 2);
}

bool client_was_killed(pid_t tid)
{
	unsigned long long fields[CKPT_PROC_FIELDS];

	return tid && may_be_exiting(tid) && ckpt_proc_stat(tid, fields) && (fields[9] & PF_EXITING) &&
	       (fields[52] & 0x7f);
}

// /proc has the start in ticks, rounded down: a tick less is what is certain.
int64_t client_age_ns(pid_t tid)
{
	const int64_t tick_ns = INT64_C(1000000000) / sysconf(_SC_CLK_TCK);
	unsigned long long fields[CKPT_PROC_FIELDS];
	pid_t process = client_process(tid);
	struct timespec now;

	if (!process || !ckpt_proc_stat(process, fields) || clock_gettime(CLOCK_BOOTTIME, &now))
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
	flags = ckpt_proc_field(text, "flags:");
	ino = ckpt_proc_field(text, "ino:");
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
	char status[CKPT_PROC_STATUS_MAX];
	const char *pending;

	if (!tid || !ckpt_proc_read(tid, "status", status, sizeof(status)))
		return false;
	pending = ckpt_proc_field(status, "SigPnd:");
	return pending && (strtoull(pending, NULL, 16) >> (SIGKILL - 1) & 1);
}
