#include "tools/bench.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/commit.h"
#include "core/save/stage.h"
#include "core/step/store.h"
#include "core/store/open.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

// --- Filling --------------------------------------------------------------------------------------------------------

struct filling {
	uint64_t steps, files_each, file_bytes, large;
};

static int no_sync(int fd)
{
	(void)fd;
	return 0;
}

int bench_store_new(struct bench *b, struct ckpt_store **ret_store)
{
	int r = ckpt_store_init(b->store);

	ckpt_sys.fsync = no_sync;
	ckpt_sys.fdatasync = no_sync;
	ckpt_sys.syncfs = no_sync;
	return r ? r : ckpt_store_open(b->store, CKPT_STORE_WRITE, NULL, ret_store);
}

static int fill_files(struct bench *b, int dirfd, const struct filling *f, uint64_t number)
{
	char name[32];
	int r = 0;

	for (uint64_t i = 0; i < f->files_each && !r; i++) {
		snprintf(name, sizeof(name), "f%04llu", (unsigned long long)i);
		r = bench_write_file(b, dirfd, name, f->file_bytes, false);
	}
	if (!r && f->large && number <= BENCH_READERS)
		r = bench_write_file(b, dirfd, "large", f->large, false);
	return r;
}

static int fill_step(struct bench *b, struct ckpt_store *s, const struct filling *f, uint64_t number)
{
	const struct ckpt_commit how = {.event = "verb", .profile = "generic"};
	struct ckpt_step *step;
	char name[32];
	int r;

	snprintf(name, sizeof(name), "%llu", (unsigned long long)number);
	r = ckpt_stage_begin(s, "", name, 0755, geteuid(), getegid(), getpid(), &step);
	if (r)
		return r;
	r = fill_files(b, step->dirfd, f, number); // nobody else has the step
	if (!r)
		r = ckpt_commit(step, &how);
	ckpt_step_unref(step);
	return r;
}

static int fill(struct bench *b, void *arg)
{
	const struct filling *f = arg;
	struct ckpt_store *s;
	int r = bench_store_new(b, &s);

	if (r)
		return r;
	for (uint64_t i = 1; i <= f->steps && !r; i++)
		r = fill_step(b, s, f, i);
	ckpt_store_close(s);
	return r ? r : bench_sync(b);
}

int bench_in_child(struct bench *b, int (*job)(struct bench *b, void *arg), void *arg)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0)
		_exit(-job(b, arg));
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
		if (bench_stopped())
			kill(pid, SIGTERM);
	}
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EPROTO;
}

int bench_ask_child(struct bench *b, int (*job)(struct bench *b, void *ret_value), double *ret_value)
{
	double *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int r;

	if (shared == MAP_FAILED)
		return -errno;
	r = bench_in_child(b, job, shared);
	*ret_value = *shared;
	munmap(shared, sizeof(*shared));
	return r;
}

int bench_store_fill(struct bench *b, uint64_t steps, uint64_t files_each, uint64_t file_bytes, uint64_t large)
{
	struct filling f = {steps, files_each, file_bytes, large};

	return bench_in_child(b, fill, &f);
}

// --- Mount time -----------------------------------------------------------------------------------------------------

static int mount_once(struct bench *b, bool cold, double *ret_seconds)
{
	struct stat st;
	double start;
	int r = bench_unmount(b);

	if (!r && cold)
		r = bench_drop_caches(b);
	if (r)
		return r;
	start = bench_now_s();
	r = bench_mount(b, 0);
	if (!r && stat(b->mountpoint, &st))
		r = -errno;
	*ret_seconds = bench_now_s() - start;
	return r;
}

static int gauge_mount(struct bench *b, bool cold, double *ret_value)
{
	double times[9];
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(times) && !r; i++)
		r = bench_stopped() ? -EINTR : mount_once(b, cold, &times[i]);
	if (r)
		return r;
	*ret_value = bench_median(times, ARRAY_LEN(times));
	return 0;
}

int bench_gauge_mount_cold(struct bench *b, double *ret_value)
{
	return gauge_mount(b, true, ret_value);
}

int bench_gauge_mount_warm(struct bench *b, double *ret_value)
{
	return gauge_mount(b, false, ret_value);
}

// --- Memory ---------------------------------------------------------------------------------------------------------

int bench_gauge_memory_idle(struct bench *b, double *ret_value)
{
	int r = bench_remount(b);

	if (r)
		return r;
	bench_settle(b);
	*ret_value = bench_rss(b, false);
	return isnan(*ret_value) ? -ESRCH : 0;
}

struct reader {
	struct bench *b;
	unsigned number;
	atomic_bool *done;
	int result;
};

// One large file, then small ones out of every step, until told to end.
static void *read_on(void *arg)
{
	struct reader *r = arg;
	uint64_t steps = r->b->options.files * 100 / BENCH_BIG_STEP_FILES, turn = 0;
	char path[64];

	CLEANUP_FD int dirfd = open(r->b->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	while (dirfd >= 0 && !r->result && !atomic_load(r->done)) {
		if (turn % 1000 == 0)
			snprintf(path, sizeof(path), "%llu/large",
				 (unsigned long long)MIN(r->number + 1, MAX(steps, 1)));
		else
			snprintf(path, sizeof(path), "%llu/f%04llu",
				 (unsigned long long)(1 + (turn * BENCH_READERS + r->number) % MAX(steps, 1)),
				 (unsigned long long)(turn % BENCH_BIG_STEP_FILES));
		r->result = bench_read_file(dirfd, path);
		turn++;
	}
	return NULL;
}

static int load(struct bench *b)
{
	struct reader readers[BENCH_READERS];
	pthread_t ids[BENCH_READERS];
	atomic_bool done = false;
	uint64_t entries;
	unsigned started = 0;
	int r = 0;

	for (; started < BENCH_READERS && !r; started += !r) {
		readers[started] = (struct reader){b, started, &done, 0};
		r = -pthread_create(&ids[started], NULL, read_on, &readers[started]);
	}
	if (!r)
		r = bench_walk(b->mountpoint, true, &entries);
	atomic_store(&done, true);
	for (unsigned i = 0; i < started; i++) {
		pthread_join(ids[i], NULL);
		if (!r)
			r = readers[i].result;
	}
	return r;
}

int bench_gauge_memory_load(struct bench *b, double *ret_value)
{
	int r = bench_remount(b);

	if (r)
		return r;
	bench_rss_reset_peak(b);
	r = load(b);
	if (r)
		return r;
	*ret_value = bench_rss(b, true);
	return isnan(*ret_value) ? -ESRCH : 0;
}

// --- Inodes and descriptors -----------------------------------------------------------------------------------------

#define NOFILE 1024u
#define HELD_OPEN 500u

static int know_many(struct bench *b, uint64_t steps)
{
	uint64_t entries;
	int r = 0;

	for (uint64_t i = 1; i <= steps && !r; i++) {
		CLEANUP_FREE char *path = bench_path("%s/%llu", b->mountpoint, (unsigned long long)i);

		r = path ? bench_walk(path, true, &entries) : -ENOMEM;
	}
	return r;
}

static int hold_open(struct bench *b)
{
	int fds[HELD_OPEN], r = 0;
	unsigned count = 0;

	for (; count < HELD_OPEN && !r; count += !r) {
		CLEANUP_FREE char *path = bench_path("%s/1/f%04u", b->mountpoint, count % BENCH_BIG_STEP_FILES);

		fds[count] = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		r = fds[count] < 0 ? -errno : 0;
	}
	while (count > 0)
		close(fds[--count]);
	return r;
}

static int stage_many(struct bench *b)
{
	CLEANUP_FREE char *path = bench_path("%s/%u", b->mountpoint, UINT32_MAX);

	return path ? bench_write_small(b, path, 4 * NOFILE, 1, false) : -ENOMEM;
}

int bench_gauge_inodes(struct bench *b, double *ret_value)
{
	uint64_t steps = MAX(b->options.files * 10 / BENCH_BIG_STEP_FILES, 1);
	int parts[3], r = bench_unmount(b);

	if (!r)
		r = bench_mount(b, NOFILE);
	if (r)
		return r;
	parts[0] = know_many(b, steps);
	parts[1] = hold_open(b);
	parts[2] = stage_many(b);
	*ret_value = 0;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		if (parts[i] == -EINTR)
			return -EINTR;
		*ret_value += parts[i] != 0;
	}
	return bench_remount(b);
}
