#include "core/base/sys.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>

#define OPEN_TRIES_MAX 64
#define COPY_BYTES (1u << 20)
#define NS_PER_S 1000000000

// Where a path ends: the descriptor of the directory that holds the last component. own is to be closed, or -1.
struct spot {
	int dirfd;
	int own;
	const char *name;
};

static int sys_open(int dirfd, const char *path, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE)
		how.mode = mode & 07777;
	// EAGAIN: a rename elsewhere made the kernel unsure that ".." stays beneath.
	for (int tries = 0; tries < OPEN_TRIES_MAX; tries++) {
		long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}

static int sys_close(int fd)
{
	// On Linux the descriptor is gone after EINTR too.
	return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

// The calls below take the last component of a path from its own directory, so that no symlink on the way is followed.
static int spot_find(int dirfd, const char *path, struct spot *ret_spot)
{
	const char *slash = strrchr(path, '/');
	CLEANUP_FREE char *parent = NULL;
	int fd;

	if (!slash) {
		*ret_spot = (struct spot){dirfd, -1, path};
		return 0;
	}
	if (slash == path)
		return -EXDEV; // as openat2 answers absolute paths
	parent = strndup(path, (size_t)(slash - path));
	if (!parent)
		return -ENOMEM;
	fd = sys_open(dirfd, parent, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	*ret_spot = (struct spot){fd, fd, slash + 1};
	return 0;
}

static void spot_done(const struct spot *spot)
{
	ckpt_fd_cleanup(&spot->own);
}

static ssize_t sys_pread(int fd, void *buf, size_t len, off_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, offset + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t sys_pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done, offset + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static int sys_ftruncate(int fd, off_t len)
{
	int r;

	do
		r = ftruncate(fd, len);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

static int sys_fsync(int fd)
{
	return fsync(fd) < 0 ? -errno : 0;
}

static int sys_fdatasync(int fd)
{
	return fdatasync(fd) < 0 ? -errno : 0;
}

static int sys_syncfs(int fd)
{
	return syncfs(fd) < 0 ? -errno : 0;
}

static int sys_mkdir(int dirfd, const char *name, mode_t mode)
{
	CLEANUP(spot_done) struct spot at = {.own = -1};
	int r = spot_find(dirfd, name, &at);

	if (r < 0)
		return r;
	return mkdirat(at.dirfd, at.name, mode) < 0 ? -errno : 0;
}

static int sys_symlink(const char *target, int dirfd, const char *name)
{
	CLEANUP(spot_done) struct spot at = {.own = -1};
	int r = spot_find(dirfd, name, &at);

	if (r < 0)
		return r;
	return symlinkat(target, at.dirfd, at.name) < 0 ? -errno : 0;
}

static int sys_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	CLEANUP(spot_done) struct spot old = {.own = -1}, new = {.own = -1};
	int r = spot_find(from_dirfd, from, &old);

	if (r == 0)
		r = spot_find(to_dirfd, to, &new);
	if (r < 0)
		return r;
	return linkat(old.dirfd, old.name, new.dirfd, new.name, 0) < 0 ? -errno : 0;
}

static int sys_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
	CLEANUP(spot_done) struct spot old = {.own = -1}, new = {.own = -1};
	int r = spot_find(from_dirfd, from, &old);

	if (r == 0)
		r = spot_find(to_dirfd, to, &new);
	if (r < 0)
		return r;
	return renameat2(old.dirfd, old.name, new.dirfd, new.name, flags) < 0 ? -errno : 0;
}

static int sys_unlink(int dirfd, const char *name, int flags)
{
	CLEANUP(spot_done) struct spot at = {.own = -1};
	int r = spot_find(dirfd, name, &at);

	if (r < 0)
		return r;
	return unlinkat(at.dirfd, at.name, flags) < 0 ? -errno : 0;
}

static int sys_readdir(DIR *dir, struct dirent **ret_entry)
{
	do {
		errno = 0;
		*ret_entry = readdir(dir);
	} while (*ret_entry && (!strcmp((*ret_entry)->d_name, ".") || !strcmp((*ret_entry)->d_name, "..")));
	return *ret_entry ? 0 : -errno;
}

static int sys_fsetxattr(int fd, const char *name, const void *value, size_t len, int flags)
{
	return fsetxattr(fd, name, value, len, flags) < 0 ? -errno : 0;
}

static int sys_lease(int fd)
{
	// Whoever opens the file between the two calls makes the kernel send a signal. The default, SIGIO, would end
	// the process; SIGURG is ignored.
	if (fcntl(fd, F_SETSIG, SIGURG) < 0 || fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
		return -errno;
	return fcntl(fd, F_SETLEASE, F_UNLCK) < 0 ? -errno : 0;
}

// The places of bytes that are copied.
struct range {
	int from_fd, to_fd;
	off_t from, to;
	off_t len;
};

// Takes from the range what is copied; a rest of it is behind the end of the file.
static int copy_bytes(struct range *r)
{
	CLEANUP_FREE char *buf = malloc(COPY_BYTES);
	ssize_t n, written;

	if (!buf)
		return -ENOMEM;
	for (; r->len; r->from += n, r->to += n, r->len -= n) {
		n = sys_pread(r->from_fd, buf, MIN((size_t)r->len, COPY_BYTES), r->from);
		if (n <= 0)
			return (int)n;
		written = sys_pwrite(r->to_fd, buf, (size_t)n, r->to);
		if (written < 0)
			return (int)written;
	}
	return 0;
}

static int copy_extent(struct range *r)
{
	ssize_t n = 1;

	while (r->len && (n > 0 || (n < 0 && errno == EINTR))) {
		n = copy_file_range(r->from_fd, &r->from, r->to_fd, &r->to, MIN((size_t)r->len, (size_t)1 << 30), 0);
		r->len -= MAX(n, 0);
	}
	if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG))
		return -errno;
	// Not possible here, or, where copy_file_range ends early, the rest.
	return r->len ? copy_bytes(r) : 0;
}

// The kernel shares the blocks of a range that begins with one, and copies what is behind the last whole one.
static int sys_copy_range(int from_fd, uint64_t from, int to_fd, uint64_t to, uint64_t len)
{
	struct range all = {from_fd, to_fd, (off_t)from, (off_t)to, (off_t)len}, head = all;
	struct statfs fs;
	uint64_t block = fstatfs(to_fd, &fs) || fs.f_bsize <= 0 ? 1 : (uint64_t)fs.f_bsize;
	int rc = 0;

	if (len > INT64_MAX || from > INT64_MAX - len || to > INT64_MAX - len)
		return -EOVERFLOW;
	head.len = from % block == to % block ? (off_t)MIN((block - from % block) % block, len) : 0;
	all.from += head.len;
	all.to += head.len;
	all.len -= head.len;
	if (head.len)
		rc = copy_bytes(&head);
	if (!rc && !head.len)
		rc = copy_extent(&all);
	return rc ? rc : head.len || all.len ? -ENODATA : 0;
}

// A hole stays one: a sparse file may be larger than the disk.
static int sys_clone(int from_fd, int to_fd)
{
	off_t at, end = 0;
	struct stat st;
	int rc = 0;

	if (ioctl(to_fd, FICLONE, from_fd) == 0)
		return 0;
	if (fstat(from_fd, &st))
		return -errno;
	if (!st.st_size) // so says a file of /proc, too
		return copy_bytes(&(struct range){from_fd, to_fd, 0, 0, INT64_MAX});
	while (!rc && end < st.st_size) {
		at = lseek(from_fd, end, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			break; // the rest is a hole
		at = at < 0 ? end : at;
		end = lseek(from_fd, at, SEEK_HOLE);
		if (end <= at || end > st.st_size)
			end = st.st_size; // the filesystem does not tell
		rc = copy_extent(&(struct range){from_fd, to_fd, at, at, end - at});
	}
	return !rc && ftruncate(to_fd, st.st_size) ? -errno : rc;
}

static int sys_reflink(int from_fd, int to_fd)
{
	return ioctl(to_fd, FICLONE, from_fd) ? -errno : 0;
}

static uint64_t sys_dirty_bytes(void)
{
	char line[128];
	uint64_t sum = 0;
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib;

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Dirty: %llu kB", &kib) == 1 || sscanf(line, "Writeback: %llu kB", &kib) == 1)
			sum += kib * 1024;
	fclose(f);
	return sum;
}

static int64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static int64_t sys_now_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}

static int64_t sys_mono_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static int sys_room(int fd, uint64_t *ret_free, uint64_t *ret_all)
{
	struct statvfs st;

	if (fstatvfs(fd, &st))
		return -errno;
	*ret_free = (uint64_t)st.f_bavail * st.f_frsize;
	*ret_all = (uint64_t)st.f_blocks * st.f_frsize;
	return 0;
}

static void sys_sleep_ns(int64_t ns)
{
	struct timespec t = {ns / NS_PER_S, ns % NS_PER_S};

	if (ns <= 0)
		return;
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

static int sys_wait(pthread_cond_t *changed, pthread_mutex_t *mutex)
{
	return pthread_cond_wait(changed, mutex);
}

#define WAIT_MAX_NS (INT64_C(86400) * NS_PER_S) // after that it looks again, as after any wake-up

static int sys_wait_ns(pthread_cond_t *changed, pthread_mutex_t *mutex, int64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns = MIN(MAX(ns, 0), WAIT_MAX_NS) + until.tv_nsec;
	until.tv_sec += ns / NS_PER_S;
	until.tv_nsec = ns % NS_PER_S;
	return pthread_cond_clockwait(changed, mutex, CLOCK_MONOTONIC, &until);
}

static int64_t sys_waited_ns(void)
{
	char text[128], *second;
	CLEANUP_FD int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n < 0)
		return 0;
	text[n] = '\0';
	second = strchr(text, ' '); // first is for how long it ran
	return second ? strtoll(second, NULL, 10) : 0;
}

static int sys_random(void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = getrandom((char *)buf + done, len - done, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			done += (size_t)n;
	}
	return 0;
}

// As struct pidfd_info, PIDFD_INFO_EXIT and PIDFD_GET_INFO of linux/pidfd.h, which the headers of older systems lack.
struct process_info {
	uint64_t mask, cgroup_id;
	uint32_t pid, tgid, ppid, ids[8];
	int32_t exit_code;
};
#define PROCESS_INFO_EXIT UINT64_C(8)
#define PROCESS_GET_INFO _IOWR(0xff, 11, struct process_info)

static int sys_process_end(int pidfd, int *ret_wait)
{
	struct process_info info = {.mask = PROCESS_INFO_EXIT};

	if (ioctl(pidfd, PROCESS_GET_INFO, &info))
		return -errno;
	if (!(info.mask & PROCESS_INFO_EXIT))
		return -EAGAIN;
	*ret_wait = info.exit_code;
	return 0;
}

struct ckpt_sys ckpt_sys = {
	.open = sys_open,
	.close = sys_close,
	.pread = sys_pread,
	.pwrite = sys_pwrite,
	.ftruncate = sys_ftruncate,
	.fsync = sys_fsync,
	.fdatasync = sys_fdatasync,
	.syncfs = sys_syncfs,
	.mkdir = sys_mkdir,
	.symlink = sys_symlink,
	.link = sys_link,
	.rename = sys_rename,
	.unlink = sys_unlink,
	.readdir = sys_readdir,
	.fsetxattr = sys_fsetxattr,
	.lease = sys_lease,
	.clone = sys_clone,
	.reflink = sys_reflink,
	.copy_range = sys_copy_range,
	.room = sys_room,
	.dirty_bytes = sys_dirty_bytes,
	.now_ns = sys_now_ns,
	.mono_ns = sys_mono_ns,
	.sleep_ns = sys_sleep_ns,
	.wait = sys_wait,
	.wait_ns = sys_wait_ns,
	.waited_ns = sys_waited_ns,
	.random = sys_random,
	.process_end = sys_process_end,
};

bool ckpt_kernel_is_at_least(int major, int minor)
{
	struct utsname u;
	int have_major = 0, have_minor = 0;

	return !uname(&u) && sscanf(u.release, "%d.%d", &have_major, &have_minor) == 2 &&
	       (have_major > major || (have_major == major && have_minor >= minor));
}

bool ckpt_has_multigrain_times(int dirfd)
{
	static const uint32_t kinds[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC};
	struct statfs st;

	if (!ckpt_kernel_is_at_least(6, 13) || fstatfs(dirfd, &st))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if ((uint32_t)st.f_type == kinds[i])
			return true;
	return false;
}

#define BCACHEFS_MAGIC 0xca451a4e

bool ckpt_shares_blocks(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && (fs.f_type == XFS_SUPER_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC ||
				     (uint32_t)fs.f_type == BCACHEFS_MAGIC);
}
