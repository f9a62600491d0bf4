#include "tests/datapath/readers.h"

#include "tests/datapath/crew.h"
#include "tests/support/suite.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define READERS 16
#define LARGE 2
#define LARGE_BYTES ((size_t)64 << 20)
#define SMALL 30
#define SAVED_BYTES ((size_t)12 << 20)
#define DISK_MB 1024
#define PAGE ((size_t)4096)
#define LOOK_US 20000

struct file {
	char path[PATH_MAX];
	uint64_t key;
	size_t size;
};

// The same for all: the first ones are large.
static void file_at(const char *mount, size_t i, struct file *ret_file)
{
	char name[32];

	snprintf(name, sizeof(name), "%s%zu.raw", i < LARGE ? "large" : "small", i);
	snprintf(ret_file->path, PATH_MAX, "%s/1/%s", mount, name);
	ret_file->key = key_of(0, 1, name);
	ret_file->size = i < LARGE ? LARGE_BYTES : 1 + (size_t)(ret_file->key % (i % 2 ? 5000 : 200000));
}

static void save_what_is_read(struct worker *me)
{
	char folder[PATH_MAX];
	struct file f;

	snprintf(folder, sizeof(folder), "%s/1", me->mount);
	worker_must(me, !mkdir(folder, 0755), "mkdir", folder);
	for (size_t i = 0; i < LARGE + SMALL; i++) {
		file_at(me->mount, i, &f);
		worker_write(me, f.path, f.key, f.size);
	}
	worker_commit(me, folder);
}

static void read_mapped(struct worker *me, const struct file *f, int fd, size_t at, size_t len)
{
	size_t from = at / PAGE * PAGE;
	uint8_t *map = mmap(NULL, at + len - from, PROT_READ, MAP_SHARED, fd, (off_t)from);

	worker_must(me, map != MAP_FAILED, "mmap", f->path);
	worker_compare(me, f->path, f->key, at, len, map + (at - from));
	munmap(map, at + len - from);
}

static void read_called(struct worker *me, const struct file *f, int fd, size_t at, size_t len, bool direct)
{
	size_t want;

	if (direct) {
		at = at / PAGE * PAGE;
		len = MIN((len + PAGE - 1) / PAGE * PAGE, CREW_BUFFER_BYTES);
	}
	want = MIN(len, f->size - at);
	worker_must(me, pread(fd, me->got, len, (off_t)at) == (ssize_t)want, "pread", f->path);
	worker_compare(me, f->path, f->key, at, want, me->got);
}

// Every second reader has the first large file most of the time, so that many have one.
static void read_on(struct worker *me)
{
	while (!is_stopped(me)) {
		size_t way = worker_pick(me, 4), count = 1 + worker_pick(me, 20);
		struct file f;

		if (me->number % 2 && worker_pick(me, 4))
			file_at(me->mount, 0, &f);
		else
			file_at(me->mount, worker_pick(me, 2) ? worker_pick(me, LARGE) : worker_pick(me, LARGE + SMALL),
				&f);
		CLEANUP_FD int fd = open(f.path, O_RDONLY | O_CLOEXEC | (way ? 0 : O_DIRECT));

		worker_must(me, fd >= 0, "open", f.path);
		for (size_t i = 0; i < count; i++) {
			size_t at = worker_pick(me, f.size),
			       len = 1 + worker_pick(me, (size_t)1 << worker_pick(me, 19));

			len = MIN(len, f.size - at);
			if (way == 1)
				read_mapped(me, &f, fd, at, len);
			else
				read_called(me, &f, fd, at, len, !way);
		}
	}
}

static void save_on(struct worker *me)
{
	for (unsigned n = 100; !is_stopped(me); n++) {
		char folder[PATH_MAX], path[PATH_MAX + 16];

		snprintf(folder, sizeof(folder), "%s/%u", me->mount, n);
		snprintf(path, sizeof(path), "%s/data.raw", folder);
		worker_must(me, !mkdir(folder, 0755), "mkdir", folder);
		worker_write(me, path, key_of(me->number, n, ""), SAVED_BYTES);
		worker_commit(me, folder);
		worker_check(me, path, key_of(me->number, n, ""), SAVED_BYTES);
		worker_must(me, !unlink(path), "unlink", path);
		worker_must(me, !rmdir(folder), "rmdir", folder);
		__atomic_add_fetch(&me->crew->saves, 1, __ATOMIC_RELAXED);
	}
}

void readers_run(enum world_io io, unsigned seconds)
{
	struct crew *crew = crew_new();
	struct world w;
	uint64_t until;

	world_open(&w, io, "trash=1s", DISK_MB);
	crew_start(crew, &w, save_what_is_read);
	crew_stop(crew, &w);
	world_umount(&w);
	world_forget_pages(&w);
	world_mount(&w);
	*crew = (struct crew){0};
	for (int i = 0; i < READERS; i++)
		crew_start(crew, &w, read_on);
	crew_start(crew, &w, save_on);
	for (until = now_us() + (uint64_t)seconds * 1000000; now_us() < until && crew_goes_on(crew);)
		usleep(LOOK_US);
	crew_stop(crew, &w);
	printf("readers: %s: %d processes, %llu reads, %llu MiB, while %llu steps were saved\n",
	       io == WORLD_DAEMON ? "daemon" : "passthrough", READERS, (unsigned long long)crew->reads,
	       (unsigned long long)crew->bytes >> 20, (unsigned long long)crew->saves);
	fflush(stdout);
	ck_assert_uint_gt(crew->reads, READERS);
	ck_assert_uint_gt(crew->saves, 0);
	world_close(&w);
}
