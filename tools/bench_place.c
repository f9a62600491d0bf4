#include "core/step/holder.h"
#include "tools/bench.h"

#include "core/base/util.h"
#include "tools/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

// The directories:
//
//	DIR/ckptfs-bench.XXXXXX/plain     the plain side
//	                        /again    the plain side once more
//	                        /store    what the mount shows; a third plain side under --native
//	                        /mount    where
//	                        /gone/N   what a reset removed, while there is room

char *bench_path(const char *format, ...)
{
	va_list args;
	char *path;
	int len;

	va_start(args, format);
	len = vasprintf(&path, format, args);
	va_end(args);
	return len < 0 ? NULL : path;
}

// --- Removal --------------------------------------------------------------------------------------------------------

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)at;
	if (type == FTW_DP ? rmdir(path) : unlink(path))
		return errno == ENOENT ? 0 : -errno;
	return 0;
}

int bench_remove_tree(const char *path)
{
	// FTW_MOUNT: a mount that could not be undone is not emptied.
	if (nftw(path, remove_entry, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) && errno != ENOENT)
		return -errno;
	return 0;
}

static int make_dir(const char *path)
{
	return mkdir(path, 0755) && errno != EEXIST ? -errno : 0;
}

static uint64_t free_bytes(const struct bench *b)
{
	struct statvfs st;

	return statvfs(b->work, &st) ? 0 : (uint64_t)st.f_bavail * st.f_frsize;
}

// Removing is left to the end where the disk has room for that: what is removed now costs the next run. (A filesystem
// goes on freeing for a while, and ext4 without a journal passes over each inode freed in the last minutes when it
// looks for one, which makes a create a hundred times slower.) Large files are freed in no time, and need the room.
static int put_away(struct bench *b, const char *path, bool large)
{
	CLEANUP_FREE char *gone = bench_path("%s/gone", b->work);
	CLEANUP_FREE char *to = bench_path("%s/gone/%u", b->work, b->gone_count++);
	int r;

	if (!gone || !to)
		return -ENOMEM;
	if (large)
		return bench_remove_tree(path);
	r = make_dir(gone);
	if (!r && rename(path, to) && errno != ENOENT)
		r = -errno;
	if (!r && free_bytes(b) < 4 * b->options.work_bytes)
		r = bench_remove_tree(gone);
	return r;
}

int bench_sync(struct bench *b)
{
	CLEANUP_FD int fd = open(b->work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || syncfs(fd) ? -errno : 0;
}

int bench_reset(struct bench *b, struct bench_side *s)
{
	bool large = s->large;
	int r;

	s->made = 0;
	s->large = false;
	if (s->mounted) {
		r = bench_unmount(b);
		if (!r)
			r = put_away(b, b->store, large);
		if (!r)
			r = make_dir(b->store);
	} else {
		r = put_away(b, s->own, large);
		if (!r)
			r = make_dir(s->own);
	}
	if (!r)
		r = bench_sync(b);
	if (!r && s->mounted)
		r = bench_mount(b, 0);
	return r;
}

// --- The mount ------------------------------------------------------------------------------------------------------

// Runs this program with other arguments, in a process group of its own: a Ctrl-C is for us, and we undo things in
// order. nofile: a limit that it cannot raise.
static int run_self(char *const argv[], unsigned nofile)
{
	struct rlimit limit = {nofile, nofile};
	int status, null;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		setpgid(0, 0);
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null >= 0) {
			dup2(null, STDIN_FILENO);
			dup2(null, STDOUT_FILENO);
		}
		if (nofile && setrlimit(RLIMIT_NOFILE, &limit))
			_exit(126);
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPROTO;
}

static pid_t find_daemon(const struct bench *b)
{
	struct ckpt_holder holder;
	pid_t pid;

	if (ckpt_store_holder(b->store, &holder))
		return 0;
	pid = holder.pid;
	ckpt_holder_done(&holder);
	return pid;
}

int bench_mount(struct bench *b, unsigned nofile)
{
	char *argv[12];
	int n = 0, r;

	argv[n++] = "ckptfs";
	argv[n++] = "mount";
	argv[n++] = "-o"; // what a step before is sealed behind would be measured on either side, as chance has it
	argv[n++] = "seal=no";
	if (b->options.mount_options) {
		argv[n++] = "-o";
		argv[n++] = (char *)b->options.mount_options;
	}
	if (b->seals) {
		argv[n++] = "-o";
		argv[n++] = "seal=yes,hot=all";
	}
	argv[n++] = b->store;
	argv[n++] = b->mountpoint;
	argv[n] = NULL;
	if (b->options.native || b->mounted)
		return 0;
	r = run_self(argv, nofile);
	b->hopeless = r != 0;
	if (r)
		return r;
	b->mounted = true;
	b->daemon = find_daemon(b);
	return 0;
}

// The next mount of the store must not meet the last daemon.
static void await_end(pid_t pid)
{
	struct timespec pause = {0, 5 * 1000 * 1000};

	for (int i = 0; pid && i < 6000 && kill(pid, 0) == 0; i++)
		nanosleep(&pause, NULL);
}

int bench_unmount(struct bench *b)
{
	// What it measures without a commit it has to say nothing of: all of it goes.
	char *argv[] = {"ckptfs", "umount", "--quiet", "--force", b->mountpoint, NULL};
	int r;

	if (!b->mounted)
		return 0;
	r = run_self(argv, 0);
	if (r && umount2(b->mountpoint, MNT_DETACH) == 0)
		r = 0;
	if (r)
		return r;
	await_end(b->daemon);
	b->mounted = false;
	b->daemon = 0;
	return 0;
}

int bench_remount(struct bench *b)
{
	int r = bench_unmount(b);

	return r ? r : bench_mount(b, 0);
}

// --- Caches ---------------------------------------------------------------------------------------------------------

static int drop(struct bench *b, const char *what)
{
	int r = bench_sync(b);
	CLEANUP_FD int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	if (r)
		return r;
	if (fd < 0 || write(fd, what, 1) != 1)
		return -errno;
	bench_settle(b); // it is told of every inode that the kernel forgot
	return 0;
}

int bench_drop_caches(struct bench *b)
{
	return drop(b, "3");
}

int bench_drop_names(struct bench *b)
{
	return drop(b, "2");
}

// --- All of it ------------------------------------------------------------------------------------------------------

static int make_sides(struct bench *b)
{
	struct bench_side *s = b->side;
	int r = 0;

	b->store = bench_path("%s/store", b->work);
	b->mountpoint = bench_path("%s/mount", b->work);
	s[BENCH_PLAIN].own = bench_path("%s/plain", b->work);
	s[BENCH_AGAIN].own = bench_path("%s/again", b->work);
	s[BENCH_MOUNT].own = b->options.native ? bench_path("%s/store", b->work) : bench_path("%s/mount", b->work);
	s[BENCH_MOUNT].mounted = !b->options.native;
	if (!b->store || !b->mountpoint)
		return -ENOMEM;
	for (int i = 0; i < BENCH_SIDES && !r; i++) {
		if (!s[i].own)
			return -ENOMEM;
		s[i].name = i;
		s[i].root = s[i].own;
		r = make_dir(s[i].own);
	}
	return r;
}

// Memory that a virtual machine uses for the first time, and blocks that a disk in memory does, cost more than later:
// once through as much as a pair needs, before any is timed.
static int prime(struct bench *b)
{
	CLEANUP_FD int dirfd = open(b->work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = dirfd < 0 ? -errno : bench_write_file(b, dirfd, "prime", 2 * b->options.work_bytes, false);

	if (!r && unlinkat(dirfd, "prime", 0))
		r = -errno;
	return r ? r : bench_sync(b);
}

int bench_place_open(struct bench *b)
{
	char real[PATH_MAX];
	int r;

	if (!realpath(b->options.dir, real))
		return -errno;
	b->root = geteuid() == 0;
	b->buffer = aligned_alloc(4096, BENCH_BUFFER_BYTES);
	b->work = bench_path("%s/ckptfs-bench.XXXXXX", real);
	if (!b->buffer || !b->work)
		return -ENOMEM;
	for (size_t at = 0; at < BENCH_BUFFER_BYTES; at += 256) // more than 256 bytes may come in parts
		if (getrandom(b->buffer + at, 256, 0) != 256)
			return -EIO;
	if (!mkdtemp(b->work)) {
		r = -errno;
		free(TAKE_PTR(b->work));
		return r;
	}
	r = make_sides(b);
	return r ? r : prime(b);
}

static void remove_all(struct bench *b)
{
	CLEANUP_FREE char *by_hand = ckpt_text("umount -l %s, then rm -r %s", b->mountpoint, b->work);
	int r = bench_unmount(b);

	if (r) {
		ckpt_fail_errno(b->mountpoint, by_hand, r);
		return;
	}
	r = bench_remove_tree(b->work);
	if (r)
		ckpt_fail_errno(b->work, NULL, r);
}

void bench_place_close(struct bench *b)
{
	if (b->work)
		remove_all(b);
	for (int i = 0; i < BENCH_SIDES; i++)
		free(b->side[i].own);
	free(b->store);
	free(b->mountpoint);
	free(b->work);
	free(b->buffer);
}
