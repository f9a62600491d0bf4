#include "tests/datapath/soak.h"

#include "tests/datapath/samples.h"
#include "tests/support/suite.h"

#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define DISK_MB 1024
#define OPTIONS "trash=2s"
#define FILES 7 // of a save
#define KEPT 4u // steps of one saver
#define PAUSE_US 20000
#define ROWS 30
#define WALK_FDS 16

// --- Savers -----------------------------------------------------------------------------------------------------------

// A file's name says its size and what its bytes are, so that who lists a step can check it.
static void save_file(struct worker *me, const char *folder, unsigned step, unsigned number, size_t size)
{
	char name[64], path[PATH_MAX + 64];

	snprintf(name, sizeof(name), "file%u-%zu.raw", number, size);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	worker_write(me, path, key_of(me->number, step, name), size);
}

// How many files it has.
static unsigned check_step(struct worker *me, const char *folder, unsigned worker, unsigned step)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	unsigned count = 0;

	worker_must(me, dir != NULL, "opendir", folder);
	while ((entry = readdir(dir))) {
		char path[PATH_MAX + 300];
		unsigned number;
		size_t size;

		if (entry->d_name[0] == '.')
			continue;
		if (sscanf(entry->d_name, "file%u-%zu.raw", &number, &size) != 2)
			worker_fail(me, "%s/%s is nobody's", folder, entry->d_name);
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		worker_check(me, path, key_of(worker, step, entry->d_name), size);
		count++;
	}
	closedir(dir);
	if (count < FILES)
		worker_fail(me, "%s has %u files of %d", folder, count, FILES);
	return count;
}

static void step_path(const struct worker *me, const char *form, unsigned step, char *ret_path)
{
	snprintf(ret_path, PATH_MAX, "%s/run%u/%s-%u", me->mount, me->number, form, step);
}

static void save_step(struct worker *me, unsigned step)
{
	char folder[PATH_MAX], temp[PATH_MAX];
	bool renames = me->number % 2;
	uint64_t start;

	step_path(me, "checkpoint", step, folder);
	step_path(me, "tmp-checkpoint", step, temp);
	if (!renames)
		memcpy(temp, folder, sizeof(temp));
	worker_must(me, !mkdir(temp, 0755), "mkdir", temp);
	save_file(me, temp, step, 0, ((size_t)2 << 20) + worker_pick(me, 4 << 20));
	for (unsigned i = 1; i < FILES; i++)
		save_file(me, temp, step, i, 1 + worker_pick(me, 64 << 10));
	if (renames) {
		start = now_us();
		worker_must(me, !rename(temp, folder), "rename", temp);
		latency_add(me->crew, LATENCY_COMMIT, now_us() - start);
	} else {
		worker_commit(me, folder);
	}
	__atomic_add_fetch(&me->crew->saves, 1, __ATOMIC_RELAXED);
}

static void amend_step(struct worker *me, unsigned step)
{
	char folder[PATH_MAX];
	unsigned count;

	step_path(me, "checkpoint", step, folder);
	count = check_step(me, folder, me->number, step);
	save_file(me, folder, step, count, worker_pick(me, 100 << 10));
	if (check_step(me, folder, me->number, step) != count + 1)
		worker_fail(me, "%s has not what was added", folder);
	__atomic_add_fetch(&me->crew->amends, 1, __ATOMIC_RELAXED);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	return type == FTW_DP ? rmdir(path) : unlink(path);
}

// One of its files is saved anew, which reopens it.
static void change_step(struct worker *me, unsigned step)
{
	char folder[PATH_MAX], path[PATH_MAX + 64];
	struct dirent *entry;
	DIR *dir;

	step_path(me, "checkpoint", step, folder);
	dir = opendir(folder);
	worker_must(me, dir != NULL, "opendir", folder);
	while ((entry = readdir(dir)) && strncmp(entry->d_name, "file3-", 6))
		;
	if (!entry)
		worker_fail(me, "%s has no file3", folder);
	snprintf(path, sizeof(path), "%s/%.50s", folder, entry->d_name);
	closedir(dir);
	worker_must(me, !unlink(path), "unlink", path);
	save_file(me, folder, step, 3, 1 + worker_pick(me, 64 << 10));
	worker_commit(me, folder);
	check_step(me, folder, me->number, step);
	__atomic_add_fetch(&me->crew->reopened, 1, __ATOMIC_RELAXED);
}

static void save_on(struct worker *me)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s/run%u", me->mount, me->number);
	worker_must(me, !mkdir(folder, 0755), "mkdir", folder);
	for (unsigned step = 1; !is_stopped(me); step++) {
		unsigned any = step - (unsigned)worker_pick(me, MIN(step, KEPT));

		save_step(me, step);
		step_path(me, "checkpoint", any, folder);
		check_step(me, folder, me->number, any);
		if (!worker_pick(me, 3))
			amend_step(me, any);
		if (!worker_pick(me, 6))
			change_step(me, any);
		if (step > KEPT) {
			step_path(me, "checkpoint", step - KEPT, folder);
			worker_must(me, !nftw(folder, remove_one, WALK_FDS, FTW_DEPTH | FTW_PHYS), "rm -r", folder);
			__atomic_add_fetch(&me->crew->deletions, 1, __ATOMIC_RELAXED);
		}
		usleep(PAUSE_US);
	}
}

// --- Others -----------------------------------------------------------------------------------------------------------

// A log, a tracker and a file step.
static void write_plain(struct worker *me)
{
	char folder[PATH_MAX], path[PATH_MAX + 64];

	snprintf(folder, sizeof(folder), "%s/logs", me->mount);
	worker_must(me, !mkdir(folder, 0755), "mkdir", folder);
	for (unsigned n = 0; !is_stopped(me); n++) {
		size_t size = 1 + worker_pick(me, 1 << 20);

		snprintf(path, sizeof(path), "%s/log%u.txt", folder, n % 8);
		worker_write(me, path, key_of(me->number, n, "log"), size / 4);
		worker_check(me, path, key_of(me->number, n, "log"), size / 4);
		snprintf(path, sizeof(path), "%s/latest.txt", folder);
		worker_write(me, path, key_of(me->number, n, "tracker"), 1 + n % 1000);
		worker_check(me, path, key_of(me->number, n, "tracker"), 1 + n % 1000);
		snprintf(path, sizeof(path), "%s/model.bin", folder);
		worker_write(me, path, key_of(me->number, n, "model"), size);
		worker_check(me, path, key_of(me->number, n, "model"), size);
		usleep(PAUSE_US);
	}
}

// What it meets may be gone when it looks at it.
static int look_at(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)st;
	(void)type;
	(void)ftw;
	return 0;
}

static void walk_on(struct worker *me)
{
	struct statvfs st;

	while (!is_stopped(me)) {
		worker_must(me, !statvfs(me->mount, &st), "statvfs", me->mount);
		if (nftw(me->mount, look_at, WALK_FDS, FTW_PHYS) && errno != ENOENT)
			worker_fail(me, "a walk ended: %s", strerror(errno));
		__atomic_add_fetch(&me->crew->walks, 1, __ATOMIC_RELAXED);
		usleep(5 * PAUSE_US);
	}
}

// --- All --------------------------------------------------------------------------------------------------------------

// What the first saver left: after a remount, its last steps are whole.
static void check_last(struct worker *me)
{
	char path[PATH_MAX], folder[PATH_MAX + 300];
	unsigned count = 0;

	for (unsigned saver = 0; saver < 2; saver++) {
		struct dirent *entry;
		DIR *dir;

		snprintf(path, sizeof(path), "%s/run%u", me->mount, saver);
		dir = opendir(path);
		worker_must(me, dir != NULL, "opendir", path);
		while ((entry = readdir(dir))) {
			unsigned step;

			if (sscanf(entry->d_name, "checkpoint-%u", &step) != 1)
				continue;
			snprintf(folder, sizeof(folder), "%s/%s", path, entry->d_name);
			check_step(me, folder, saver, step);
			count++;
		}
		closedir(dir);
	}
	if (!count)
		worker_fail(me, "no step is listed in the end");
}

void soak_run(unsigned seconds)
{
	unsigned pause_s = MIN(MAX(seconds / 60, 1u), 5u);
	struct crew *crew = crew_new();
	struct samples samples = {0};
	struct world w;
	bool steady;
	uint64_t until;

	world_open(&w, WORLD_PASSTHROUGH, OPTIONS, DISK_MB);
	crew_start(crew, &w, save_on);
	crew_start(crew, &w, save_on);
	crew_start(crew, &w, write_plain);
	crew_start(crew, &w, walk_on);
	for (until = now_us() + (uint64_t)seconds * 1000000; now_us() < until && crew_goes_on(crew);) {
		samples_take(&samples, &w, crew);
		sleep(pause_s);
	}
	crew_stop(crew, &w);
	samples_take(&samples, &w, crew);
	world_umount(&w);
	world_forget_pages(&w);
	world_mount(&w);
	crew_start(crew, &w, check_last);
	crew_stop(crew, &w);
	samples_print(&samples, ROWS);
	printf("soak: %u s, %llu saves, %llu amends, %llu reopened, %llu deletions, %llu walks, %llu MiB compared\n",
	       seconds, (unsigned long long)crew->saves, (unsigned long long)crew->amends,
	       (unsigned long long)crew->reopened, (unsigned long long)crew->deletions, (unsigned long long)crew->walks,
	       (unsigned long long)crew->bytes >> 20);
	steady = samples_are_steady(&samples);
	fflush(stdout);
	samples_done(&samples);
	world_close(&w);
	ck_assert_msg(steady, "the daemon takes more and more");
	ck_assert_uint_gt(crew->saves, KEPT);
}
