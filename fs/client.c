#include "fs/client.h"

#include "core/base/lock.h"
#include "core/base/proc.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PF_EXITING 0x4 // include/linux/sched.h

pid_t client_process(pid_t tid)
{
	return ckpt_proc_process(tid);
}

bool client_comm(pid_t tid, char *ret_comm)
{
	return ckpt_proc_comm(tid, ret_comm, CLIENT_COMM_BYTES);
}

// The files /proc/TID/statm of the threads that closed something last. To open one takes four times as long as to read it, and a
// save of small files has one thread that closes them all.
#define STATMS 32
static struct {
	struct ckpt_lock lock;
	pid_t tids[STATMS]; // 0: none
	int fds[STATMS];
} statms = {.lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF)};

static int open_statm(pid_t tid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

// An open file stays that of its thread. When the thread has ended, another one may have its number.
static ssize_t read_statm_locked(pid_t tid, char *buf, size_t len)
{
	size_t at = (size_t)tid % STATMS;
	bool known = statms.tids[at] == tid;
	ssize_t n = known ? pread(statms.fds[at], buf, len, 0) : -1;
	int fd;

	if (n > 0)
		return n;
	fd = open_statm(tid);
	if (fd < 0)
		return fd;
	if (statms.tids[at])
		close(statms.fds[at]);
	statms.tids[at] = tid;
	statms.fds[at] = fd;
	return pread(fd, buf, len, 0);
}

// A FLUSH may come from execve(2), and /proc/TID/stat would wait for our own answer then (proc.h). /proc/TID/statm tells the two
// apart, and is cheap enough for each close: a process that exits has given up its memory before its files, one that executes
// has not.
static bool may_be_exiting(pid_t tid)
{
	char statm[2];
	LOCK_SCOPE(&statms.lock);

	return read_statm_locked(tid, statm, sizeof(statm)) == sizeof(statm) && !memcmp(statm, "0 ", sizeof(statm));
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

// Calls that make an entry: which argument is the path, and which one the flags of an open (0: none). A program of another
// architecture than ours has other numbers: it is not understood.
static const struct maker {
	long call;
	int path, flags;
} makers[] = {
#ifdef SYS_mkdir
	{SYS_mkdir, 0, 0},   {SYS_mknod, 0, 0},   {SYS_symlink, 1, 0},   {SYS_link, 1, 0},   {SYS_open, 0, 1},
	{SYS_creat, 0, 0},
#endif
	{SYS_mkdirat, 1, 0}, {SYS_mknodat, 1, 0}, {SYS_symlinkat, 2, 0}, {SYS_linkat, 3, 0}, {SYS_openat, 1, 2},
};

static const struct maker *maker_of(long call)
{
	for (size_t i = 0; i < ARRAY_LEN(makers); i++)
		if (makers[i].call == call)
			return &makers[i];
	return NULL;
}

// Up to the end of its page, and then of the next one: what follows may not be mapped.
static bool read_string(pid_t tid, unsigned long at, char *ret_text, size_t cap)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t len = 0;

	while (len < cap - 1) {
		struct iovec to = {ret_text + len, MIN(page - (at + len) % page, cap - 1 - len)};
		struct iovec from = {(void *)(at + len), to.iov_len};
		ssize_t n = process_vm_readv(tid, &to, 1, &from, 1, 0);

		if (n <= 0)
			return false;
		if (memchr(ret_text + len, '\0', (size_t)n))
			return true;
		len += (size_t)n;
	}
	return false;
}

static bool is_last_part_alone(const char *path, const char *name)
{
	size_t len = strlen(name), part;
	bool last = false;

	for (; *path; path += part) {
		path += strspn(path, "/");
		part = strcspn(path, "/");
		if (last && part)
			return false; // there is one before the last part
		last = part == len && !strncmp(path, name, len);
	}
	return last;
}

bool client_makes(pid_t tid, const char *name)
{
	char text[256], path[PATH_MAX], *end;
	unsigned long args[4];
	const struct maker *m;

	if (!tid || !ckpt_proc_read(tid, "syscall", text, sizeof(text)))
		return false;
	m = maker_of(strtol(text, &end, 10));
	if (!m || end == text)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(args); i++)
		args[i] = strtoul(end, &end, 16);
	if (m->flags && !(args[m->flags] & O_CREAT))
		return false;
	return read_string(tid, args[m->path], path, sizeof(path)) && is_last_part_alone(path, name);
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
