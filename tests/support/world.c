#include "tests/support/world.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <signal.h>
#include <ftw.h>
#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>

#define FUSE_MAGIC 0x65735546
#define URING_SWITCH "/sys/module/fuse/parameters/enable_uring"
#define POLL_US 2000
#define START_S 20
#define END_S 20
#define BALLAST "ballast"
#define TAIL_BYTES 8000
#define OPEN_FOLDERS 16

static int64_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static const char *program(void)
{
	return getenv("CKPTFS");
}

const char *world_obstacle(void)
{
	if (geteuid())
		return "only root may mount a small disk, and kill a daemon without asking fusermount3 to tidy up";
	if (access("/dev/fuse", R_OK | W_OK))
		return "there is no /dev/fuse";
	return NULL;
}

const char *world_uring_obstacle(void)
{
	return access(URING_SWITCH, W_OK) ? "this kernel has no FUSE over io_uring" : NULL;
}

static pid_t run(char *const *argv, const char *log)
{
	pid_t test = getpid(), pid = fork();
	int fd;

	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	// However the test ends, nothing of it stays.
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != test)
		_exit(127);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		_exit(127);
	execvp(argv[0], argv);
	perror(argv[0]);
	_exit(127);
}

static void log_path(const struct world *w, char *ret_path)
{
	ck_assert_int_lt(snprintf(ret_path, PATH_MAX, "%s/log", w->base), PATH_MAX);
}

static void must_run(struct world *w, char *const *argv)
{
	char log[PATH_MAX];
	int status;

	log_path(w, log);
	ck_assert_int_gt(waitpid(run(argv, log), &status, 0), 0);
	if (status) {
		world_tell(w);
		ck_abort_msg("%s: status %x", argv[0], status);
	}
}

static void make_disk(struct world *w, unsigned disk_mb)
{
	char image[PATH_MAX];
	int fd;

	ck_assert_int_lt(snprintf(image, sizeof(image), "%s/image", w->base), PATH_MAX);
	ck_assert_int_lt(snprintf(w->disk, sizeof(w->disk), "%s/disk", w->base), PATH_MAX);
	ck_assert_int_eq(mkdir(w->disk, 0700), 0);
	fd = open(image, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)disk_mb << 20), 0);
	close(fd);
	must_run(w, (char *[]){"mkfs.ext4", "-q", "-F", "-m", "0", image, NULL});
	must_run(w, (char *[]){"mount", "-o", "loop", image, w->disk, NULL});
}

static void make_folder(char *ret_path, const char *in, const char *name)
{
	ck_assert_int_lt(snprintf(ret_path, PATH_MAX, "%s/%s", in, name), PATH_MAX);
	ck_assert_int_eq(mkdir(ret_path, 0755), 0);
}

static bool is_of_tests(const char *line, char *ret_point)
{
	return sscanf(line, "%*s %*s %*s %*s %4095s", ret_point) == 1 &&
	       (strstr(line, " - fuse.ckptfs ") || strstr(ret_point, "/ckptfs-test-") ||
		strstr(ret_point, "/ckptfs-power-"));
}

// Who makes a mount name space gets a copy of all mounts, and keeps their daemons alive by it for as long as it lives: tests
// do. So ours are in one of our own, where nobody copies them; and the copies of others' are let go of.
static void be_alone(void)
{
	FILE *in;
	char line[8192], point[PATH_MAX];
	char *points = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&points, &len);

	ck_assert_msg(out && !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "unshare: %s",
		      strerror(errno));
	in = fopen("/proc/self/mountinfo", "re");
	while (in && fgets(line, sizeof(line), in))
		if (is_of_tests(line, point))
			fprintf(out, "%s%c", point, 0);
	if (in)
		fclose(in);
	fclose(out);
	for (size_t i = 0; i < len; i += strlen(points + i) + 1)
		umount2(points + i, MNT_DETACH);
	free(points);
}

void world_open(struct world *w, enum world_io io, const char *options, unsigned disk_mb)
{
	static const char *const modes[] = {"no_io_uring", "no_passthrough,no_io_uring", ""};
	const char *comma = *modes[io] && options ? "," : "";

	*w = (struct world){.io = io};
	be_alone();
	ckpt_temp_dir(w->base);
	snprintf(w->options, sizeof(w->options), "%s%s%s", modes[io], comma, options ? options : "");
	if (disk_mb)
		make_disk(w, disk_mb);
	make_folder(w->mount, w->base, "mount");
	make_folder(w->plain, w->base, "plain");
	ck_assert_int_lt(snprintf(w->store, PATH_MAX, "%s/store", disk_mb ? w->disk : w->base), PATH_MAX);
	ck_assert_int_lt(snprintf(w->states, PATH_MAX, "%s/states", w->base), PATH_MAX);
	world_mount(w);
}

void world_close(struct world *w)
{
	if (w->daemon)
		world_umount(w);
	if (*w->disk)
		ck_assert_msg(!umount2(w->disk, 0), "umount %s: %s", w->disk, strerror(errno));
	ckpt_temp_empty(w->base, 1);
}

static bool is_mounted(const struct world *w)
{
	struct statfs st;

	return !statfs(w->mount, &st) && st.f_type == FUSE_MAGIC;
}

// 0: it is still there.
static pid_t ended(pid_t pid, int *ret_status, int64_t until_s)
{
	pid_t got;

	while (!(got = waitpid(pid, ret_status, WNOHANG)) && now_s() < until_s)
		usleep(POLL_US);
	return got;
}

static void start(struct world *w)
{
	int64_t until = now_s() + START_S;
	char log[PATH_MAX];
	int status = 0;

	log_path(w, log);
	w->daemon = run((char *[]){(char *)program(), "mount", "-f", w->store, w->mount, *w->options ? "-o" : NULL,
				   w->options, NULL},
			log);
	while (!is_mounted(w)) {
		if (ended(w->daemon, &status, 0) || now_s() > until) {
			world_tell(w);
			ck_abort_msg("not mounted, status %x", status);
		}
		usleep(POLL_US);
	}
}

// Waits for its turn among all tests, those in Python too (uring_switch() in mounting.py).
static int take_uring_turn(void)
{
	const char *folder = getenv("TMPDIR");
	char path[PATH_MAX];
	int fd;

	ck_assert_int_lt(snprintf(path, sizeof(path), "%s/ckptfs-test-uring.lock", folder ? folder : "/tmp"), PATH_MAX);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_msg(fd >= 0 && !flock(fd, LOCK_EX), "%s: %s", path, strerror(errno));
	return fd;
}

void world_mount(struct world *w)
{
	CLEANUP_FD int turn = -1, fd = -1;
	char before;

	if (w->io != WORLD_URING) {
		start(w);
		return;
	}
	turn = take_uring_turn();
	fd = open(URING_SWITCH, O_RDWR | O_CLOEXEC);
	ck_assert_msg(fd >= 0 && pread(fd, &before, 1, 0) == 1 && pwrite(fd, "Y", 1, 0) == 1, URING_SWITCH);
	start(w);
	ck_assert_int_eq(pwrite(fd, &before, 1, 0), 1);
}

// A process in a name space of its own that was made meanwhile has a copy of each mount, and keeps the daemon alive by it.
static void tell_holders(const struct world *w)
{
	glob_t tables;

	if (glob("/proc/[0-9]*/mountinfo", 0, NULL, &tables))
		return;
	for (size_t i = 0; i < tables.gl_pathc; i++) {
		FILE *in = fopen(tables.gl_pathv[i], "re");
		char line[8192];

		while (in && fgets(line, sizeof(line), in))
			if (strstr(line, w->mount))
				fprintf(stderr, "%s has the mount: %s", tables.gl_pathv[i], line);
		if (in)
			fclose(in);
	}
	globfree(&tables);
}

// What a thread of the kernel has completed, as an AIO, it lets go of a moment later (delayed_fput).
static bool is_unmounted(const char *mount)
{
	const struct timespec pause = {0, 20 * 1000 * 1000};
	int r = umount2(mount, 0);

	for (int tries = 0; r && errno == EBUSY && tries < 50; tries++) {
		nanosleep(&pause, NULL);
		r = umount2(mount, 0);
	}
	return !r;
}

void world_umount(struct world *w)
{
	int status = 0;

	ck_assert_msg(is_unmounted(w->mount), "umount %s: %s", w->mount, strerror(errno));
	if (!ended(w->daemon, &status, now_s() + END_S) || status) {
		tell_holders(w);
		world_tell(w);
		ck_abort_msg("after umount the daemon is still there, or ended with status %x", status);
	}
	w->daemon = 0;
}

static int forget_pages_of(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	CLEANUP_FD int fd = type == FTW_F && S_ISREG(st->st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	(void)ftw;
	return fd < 0 ? 0 : posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

void world_forget_pages(struct world *w)
{
	CLEANUP_FD int fd = open(w->store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_msg(fd >= 0 && !syncfs(fd), "%s: %s", w->store, strerror(errno));
	ck_assert_int_eq(nftw(w->store, forget_pages_of, OPEN_FOLDERS, FTW_PHYS), 0);
}

void world_kill(struct world *w)
{
	kill(w->daemon, SIGKILL);
	ck_assert_int_eq(waitpid(w->daemon, NULL, 0), w->daemon);
	ck_assert_msg(!umount2(w->mount, MNT_DETACH), "umount -l %s: %s", w->mount, strerror(errno));
	world_mount(w);
}

static void ballast_path(const struct world *w, char *ret_path)
{
	ck_assert_int_lt(snprintf(ret_path, PATH_MAX, "%s/" BALLAST, w->disk), PATH_MAX);
}

// Each sync gives back what the filesystem had reserved too much.
void world_fill_disk(struct world *w, uint64_t bytes)
{
	char path[PATH_MAX];
	struct statfs st;
	off_t end = 0;
	int fd;

	ballast_path(w, path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	for (int round = 0; round < 20; round++) {
		uint64_t room;
		off_t want;

		ck_assert_int_eq(syncfs(fd), 0);
		ck_assert_int_eq(fstatfs(fd, &st), 0);
		room = (uint64_t)st.f_bavail * (uint64_t)st.f_bsize;
		if (room <= bytes + (uint64_t)st.f_bsize)
			break;
		want = (off_t)(room - bytes);
		while (want >= st.f_bsize && posix_fallocate(fd, end, want))
			want /= 2;
		end += want >= st.f_bsize ? want : 0;
	}
	close(fd);
}

void world_make_room(struct world *w)
{
	char path[PATH_MAX];
	int fd;

	ballast_path(w, path);
	ck_assert_int_eq(unlink(path), 0);
	fd = open(w->disk, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(syncfs(fd), 0);
	close(fd);
}

static void tell_tail(const char *path, const char *title)
{
	char text[TAIL_BYTES + 1];
	FILE *in = fopen(path, "re");
	size_t len;

	if (!in)
		return;
	if (fseek(in, -TAIL_BYTES, SEEK_END))
		rewind(in);
	len = fread(text, 1, TAIL_BYTES, in);
	fclose(in);
	if (len)
		fprintf(stderr, "%s:\n%.*s\n", title, (int)len, text);
}

void world_tell(const struct world *w)
{
	char path[PATH_MAX];

	log_path(w, path);
	tell_tail(path, "the daemon");
	ck_assert_int_lt(snprintf(path, sizeof(path), "%s/.ckptfs/errors", w->mount), PATH_MAX);
	if (w->daemon)
		tell_tail(path, "errors");
}
