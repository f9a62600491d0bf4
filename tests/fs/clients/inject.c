// Runs a program of which one system call fails, is cut short or is the last.
//
//	inject REPORT PREFIX N HOW PROGRAM ARGUMENT...
//
// HOW is "kill", "stop" (of the program, which goes on from there with SIGCONT), the number of an error, or "short" (of a pread, a write or a copy half is done), with "+" behind it when all calls from
// the N-th on are to be so; N = 0: none is. N may also be the name of a file: it is the first call whose path ends with it. Counted are the calls of all threads and children that a disk or a full machine can fail,
// from the first one on whose path begins with PREFIX: what comes before is the loader's. A call that is to fail is not made.
//
// REPORT gets a line for each counted call, "NAME PATH": the path is that in the call, or of its first descriptor; before it stands "! " where
// the call was to fail, and "!! " where it is an fsync of a file of which one has failed before. The exit status is the program's; 128 and the
// signal's number, if one ended it.
//
// The kernel asks us before each call (seccomp_unotify(2)): no debugger, no signal, and the threads run as they would.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

// Which argument has a path, and which a descriptor of the file; -1: none.
static const struct call {
	const char *name;
	int number, path, fd;
} calls[] = {
#ifdef SYS_open
	{"open", SYS_open, 0, -1},
	{"mkdir", SYS_mkdir, 0, -1},
	{"rmdir", SYS_rmdir, 0, -1},
	{"unlink", SYS_unlink, 0, -1},
	{"rename", SYS_rename, 0, -1},
#endif
	{"openat", SYS_openat, 1, -1},
	{"openat2", SYS_openat2, 1, -1},
	{"read", SYS_read, -1, 0},
	{"pread64", SYS_pread64, -1, 0},
	{"getdents64", SYS_getdents64, -1, 0},
	{"write", SYS_write, -1, 0},
	{"pwrite64", SYS_pwrite64, -1, 0},
	{"pwritev", SYS_pwritev, -1, 0},
	{"copy_file_range", SYS_copy_file_range, -1, 2},
	{"ioctl", SYS_ioctl, -1, 0},
	{"fcntl", SYS_fcntl, -1, 0},
	{"flock", SYS_flock, -1, 0},
	{"ftruncate", SYS_ftruncate, -1, 0},
	{"fallocate", SYS_fallocate, -1, 0},
	{"fsync", SYS_fsync, -1, 0},
	{"fdatasync", SYS_fdatasync, -1, 0},
	{"syncfs", SYS_syncfs, -1, 0},
	{"sync_file_range", SYS_sync_file_range, -1, 0},
	{"mkdirat", SYS_mkdirat, 1, -1},
	{"symlinkat", SYS_symlinkat, 2, -1},
	{"linkat", SYS_linkat, 3, -1},
	{"renameat", SYS_renameat, 3, -1},
	{"renameat2", SYS_renameat2, 3, -1},
	{"unlinkat", SYS_unlinkat, 1, -1},
	{"fchmod", SYS_fchmod, -1, 0},
	{"fchown", SYS_fchown, -1, 0},
	{"fchownat", SYS_fchownat, 1, -1},
	{"utimensat", SYS_utimensat, -1, 0},
	{"fsetxattr", SYS_fsetxattr, -1, 0},
	{"setxattr", SYS_setxattr, 0, -1},
	{"mmap", SYS_mmap, -1, 4},
};

#define CALLS (sizeof(calls) / sizeof(calls[0]))
#define SYNCED_MAX 1000
#define HALF_MAX (1 << 20)

static FILE *report;
static const char *prefix, *name; // name: of the file that is waited for, or NULL
static long at, count, error;
static bool sticky, kills, stops, cuts, begun;
static pid_t program;
// A file, until it is removed: another one may get its inode's number then.
static union file {
	struct file_handle handle;
	char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
} lost[SYNCED_MAX]; // whose fsync has failed
static size_t lost_count;

static void fail(const char *what)
{
	perror(what);
	exit(125);
}

// --- The program ------------------------------------------------------------------------------------------------------

static int filter_install(void)
{
	struct sock_filter code[2 * CALLS + 2], *p = code;
	struct sock_fprog filter = {.filter = code};
	int fd;

	*p++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < CALLS; i++) {
		*p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].number, 0, 1);
		*p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
	}
	*p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	filter.len = (unsigned short)(p - code);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		fail("no_new_privs");
	fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			  SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &filter);
	if (fd < 0)
		fail("seccomp");
	return fd;
}

#define NONE_YET -1
#define TAKEN -2

// Starts the program; returns where the kernel asks. Between filter and exec the program must make no call that is asked
// about, so that the number of its descriptor reaches us through shared memory; exec closes it, and waits for us.
static int start(char **argv)
{
	volatile int *theirs = mmap(NULL, sizeof(*theirs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int pidfd, listener;

	*theirs = NONE_YET;
	program = fork();
	if (!program) {
		*theirs = filter_install();
		while (*theirs != TAKEN)
			usleep(100);
		execv(argv[0], argv);
		_exit(126);
	}
	while (*theirs == NONE_YET)
		if (waitpid(program, NULL, WNOHANG) || usleep(100))
			exit(125);
	pidfd = (int)syscall(SYS_pidfd_open, program, 0);
	listener = (int)syscall(SYS_pidfd_getfd, pidfd, *theirs, 0);
	if (listener < 0) {
		kill(program, SIGKILL);
		fail("the kernel does not ask");
	}
	close(pidfd);
	*theirs = TAKEN;
	return listener;
}

static void read_text(pid_t pid, uint64_t address, char *buf, size_t cap)
{
	struct iovec to = {buf, cap - 1}, from = {(void *)address, cap - 1};
	ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);

	if (n < 0) { // the end of what is mapped may be near
		to.iov_len = from.iov_len = 64;
		n = process_vm_readv(pid, &to, 1, &from, 1, 0);
	}
	buf[n > 0 ? n : 0] = '\0';
}

static void path_of(const struct seccomp_notif *n, const struct call *c, char *buf, size_t cap)
{
	char link[64];
	ssize_t len;

	if (c->path >= 0) {
		read_text((pid_t)n->pid, n->data.args[c->path], buf, cap);
		return;
	}
	snprintf(link, sizeof(link), "/proc/%u/fd/%d", n->pid, (int)n->data.args[c->fd]);
	len = readlink(link, buf, cap - 1);
	buf[len > 0 ? len : 0] = '\0';
}

// --- What becomes of a call ---------------------------------------------------------------------------------------------

static int their_fd(const struct seccomp_notif *n, int i)
{
	int pidfd = (int)syscall(SYS_pidfd_open, program, 0);
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, (int)n->data.args[i], 0);

	close(pidfd);
	return fd;
}

// Both descriptors are at their own places, or the offsets are in their memory.
static long half_copy(const struct seccomp_notif *n)
{
	loff_t from_at, to_at, *at[] = {&from_at, &to_at};
	int fd[2] = {their_fd(n, 0), their_fd(n, 2)};
	struct iovec ours[2], theirs[2];
	ssize_t done = 0;

	for (int i = 0; i < 2; i++) {
		ours[i] = (struct iovec){at[i], sizeof(*at[i])};
		theirs[i] = (struct iovec){(void *)n->data.args[2 * i + 1], sizeof(*at[i])};
		if (!n->data.args[2 * i + 1] ||
		    process_vm_readv((pid_t)n->pid, &ours[i], 1, &theirs[i], 1, 0) != (ssize_t)sizeof(*at[i]))
			at[i] = NULL;
	}
	if (n->data.args[4] > 1)
		done = copy_file_range(fd[0], at[0], fd[1], at[1], (size_t)n->data.args[4] / 2, 0);
	done = done < 0 ? -errno : done;
	for (int i = 0; i < 2; i++) {
		if (at[i])
			process_vm_writev((pid_t)n->pid, &ours[i], 1, &theirs[i], 1, 0);
		close(fd[i]);
	}
	return done;
}

// Half of a call, done for them: what it returns, or -errno; 0: it is not one that can be cut.
static long half(const struct seccomp_notif *n, const char *name)
{
	static char buf[HALF_MAX];
	size_t len = (size_t)n->data.args[2] / 2;
	struct iovec ours = {buf, len}, theirs = {(void *)n->data.args[1], len};
	bool reads = !strcmp(name, "pread64"), places = !strcmp(name, "pwrite64"), writes = !strcmp(name, "write");
	off_t offset = (off_t)n->data.args[3];
	ssize_t done = 0;
	int fd;

	if (!strcmp(name, "copy_file_range"))
		return half_copy(n);
	if ((!reads && !places && !writes) || !len || len > sizeof(buf))
		return 0;
	fd = their_fd(n, 0);
	if ((places || writes) && process_vm_readv((pid_t)n->pid, &ours, 1, &theirs, 1, 0) == (ssize_t)len)
		done = places ? pwrite(fd, buf, len, offset) : write(fd, buf, len);
	if (reads) {
		done = pread(fd, buf, len, offset);
		ours.iov_len = theirs.iov_len = done > 0 ? (size_t)done : 0;
		process_vm_writev((pid_t)n->pid, &ours, 1, &theirs, 1, 0);
	}
	close(fd);
	return done < 0 ? -errno : done;
}

static bool is_sync(const char *name)
{
	return !strcmp(name, "fsync") || !strcmp(name, "fdatasync");
}

// False: it is none that has bytes to lose.
static bool synced_file(const struct seccomp_notif *n, union file *ret_file)
{
	char link[64];
	struct stat st;
	int mount;

	snprintf(link, sizeof(link), "/proc/%u/fd/%d", n->pid, (int)n->data.args[0]);
	if (stat(link, &st) || !S_ISREG(st.st_mode))
		return false;
	memset(ret_file, 0, sizeof(*ret_file));
	ret_file->handle.handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(AT_FDCWD, link, &ret_file->handle, &mount, AT_SYMLINK_FOLLOW))
		memcpy(ret_file->bytes, &st.st_ino, sizeof(st.st_ino)); // the filesystem has nothing better
	return true;
}

static bool is_lost(const union file *file)
{
	for (size_t i = 0; i < lost_count; i++)
		if (!memcmp(&lost[i], file, sizeof(*file)))
			return true;
	return false;
}

static bool is_counted(const struct seccomp_notif *n, const struct call *c, const char *path)
{
	if (!begun && c->path >= 0 && !strncmp(path, prefix, strlen(prefix)))
		begun = true;
	if (!strcmp(c->name, "mmap") && (int)n->data.args[4] < 0)
		return false; // memory
	return begun && (c->fd < 0 || (int)n->data.args[c->fd] > 2);
}

static bool is_named(const char *path)
{
	size_t len = strlen(path), end = name ? strlen(name) : 0;

	return end && len >= end && !strcmp(path + len - end, name) && (len == end || path[len - end - 1] == '/');
}

static void answer(const struct seccomp_notif *n, const struct call *c, struct seccomp_notif_resp *resp)
{
	char path[512];
	bool hit, syncs, again;
	union file file;
	long done = 0;

	resp->id = n->id;
	resp->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	path_of(n, c, path, sizeof(path));
	if (!is_counted(n, c, path))
		return;
	count++;
	if (!at && is_named(path))
		at = count;
	hit = at && (count == at || (sticky && count > at));
	if (hit && cuts) {
		done = half(n, c->name);
		hit = done != 0;
	}
	syncs = is_sync(c->name) && synced_file(n, &file);
	again = syncs && is_lost(&file);
	fprintf(report, "%s%s %s\n", again ? "!! " : hit ? "! " : "", c->name, path);
	fflush(report);
	if (hit && stops)
		kill(program, SIGSTOP);
	if (!hit || stops)
		return;
	if (syncs && !kills && lost_count < SYNCED_MAX)
		lost[lost_count++] = file;
	if (kills) {
		kill(program, SIGKILL);
		kill((pid_t)n->pid, SIGKILL);
	}
	resp->flags = 0;
	resp->val = done > 0 ? done : 0;
	resp->error = done > 0 ? 0 : cuts ? (int)done : (int)-error;
}

static void serve(int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	while (poll(&p, 1, -1) > 0 && p.revents & POLLIN) {
		struct seccomp_notif n = {0};
		struct seccomp_notif_resp resp = {0};
		size_t i = 0;

		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n))
			continue; // it is gone
		while (calls[i].number != n.data.nr)
			i++;
		answer(&n, &calls[i], &resp);
		(void)!ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
	}
}

int main(int argc, char **argv)
{
	int status;

	if (argc < 6)
		return 125;
	report = fopen(argv[1], "we");
	if (!report)
		fail(argv[1]);
	prefix = argv[2];
	at = atol(argv[3]);
	name = at || !strcmp(argv[3], "0") ? NULL : argv[3];
	sticky = strchr(argv[4], '+');
	kills = !strncmp(argv[4], "kill", 4);
	stops = !strncmp(argv[4], "stop", 4);
	cuts = !strncmp(argv[4], "short", 5);
	error = atol(argv[4]);
	serve(start(argv + 5));
	while (waitpid(program, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid");
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
