#include "tools/bench.h"

#include "core/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

typedef const struct bench_figure figure;

// --- Fixtures -------------------------------------------------------------------------------------------------------

#define STEP_SUFFIX ".safetensors"
#define PLAIN_SUFFIX ".data" // of no file step

static bool is_plain(enum bench_fixture fixture)
{
	return fixture == BENCH_PLAIN_BULK || fixture == BENCH_PLAIN_SMALL;
}

// What the figures that read find there.
static char *tree_path(enum bench_fixture fixture, const struct bench_side *s)
{
	return bench_path(is_plain(fixture) ? "%s/plain" : "%s/1", s->root);
}

static int make_bulk(struct bench *b, struct bench_side *s)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, 1);
	int r = stage ? bench_write_bulk(b, stage, STEP_SUFFIX, 1, !s->mounted) : -ENOMEM;

	s->large = true;
	return r ? r : bench_commit(s, 1);
}

static int make_plain(struct bench *b, enum bench_fixture fixture, struct bench_side *s)
{
	CLEANUP_FREE char *path = tree_path(fixture, s);

	s->large = fixture == BENCH_PLAIN_BULK;
	if (!path)
		return -ENOMEM;
	return s->large ? bench_write_bulk(b, path, PLAIN_SUFFIX, 1, true)
			: bench_write_small(b, path, b->options.files, BENCH_SMALL_BYTES, false);
}

static int make_small(struct bench *b, struct bench_side *s)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, 1);
	int r = stage ? bench_write_small(b, stage, b->options.files, BENCH_SMALL_BYTES, false) : -ENOMEM;

	return r ? r : bench_commit_syncfs(s, 1);
}

static int make_plain_steps(struct bench *b, struct bench_side *s)
{
	int r = 0;

	for (uint64_t i = 1; i <= b->options.files && !r; i++) {
		CLEANUP_FREE char *path = bench_path("%s/%llu", s->own, (unsigned long long)i);

		if (!path || mkdir(path, 0755))
			return path ? -errno : -ENOMEM;
		CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = fd < 0 ? -errno : bench_write_file(b, fd, "f0000", 1, false);
	}
	return r;
}

// The store is filled while nobody has it mounted.
static int fill_store(struct bench *b, enum bench_fixture fixture)
{
	uint64_t files = b->options.files * 100;
	int r = bench_unmount(b);

	if (!r)
		r = bench_remove_tree(b->store);
	if (!r && fixture == BENCH_STEPS)
		r = bench_store_fill(b, b->options.files, 1, 1, 0);
	else if (!r)
		r = bench_store_fill(b, MAX(files / BENCH_BIG_STEP_FILES, 1), MIN(files, BENCH_BIG_STEP_FILES), 0,
				     b->options.work_bytes / 128);
	return r ? r : bench_mount(b, 0);
}

static int make_side(struct bench *b, struct bench_side *s, enum bench_fixture fixture)
{
	int r = 0;

	if (s->mounted && (fixture == BENCH_STEPS || fixture == BENCH_BIG))
		return fill_store(b, fixture);
	if (fixture == BENCH_BULK)
		r = make_bulk(b, s);
	else if (fixture == BENCH_SMALL)
		r = make_small(b, s);
	else if (fixture == BENCH_STEPS)
		r = make_plain_steps(b, s);
	else if (is_plain(fixture))
		r = make_plain(b, fixture, s);
	return r;
}

int bench_fixture_make(struct bench *b, enum bench_fixture fixture)
{
	int r = 0;

	for (int i = 0; i < BENCH_SIDES && !r; i++) {
		// Large files are there once and read twice. Others have a copy: they fit into the CPU's caches, and
		// what was read just before would have an advantage.
		b->side[i].root = b->side[i].own;
		r = bench_reset(b, &b->side[i]);
		if (!r && i == BENCH_AGAIN && (fixture == BENCH_BULK || fixture == BENCH_PLAIN_BULK))
			b->side[i].root = b->side[BENCH_PLAIN].own;
		else if (!r)
			r = make_side(b, &b->side[i], fixture);
	}
	b->fixture = fixture;
	return r ? r : bench_sync(b);
}

// --- Preparing ------------------------------------------------------------------------------------------------------

static int reset(struct bench *b, figure *f, struct bench_side *s)
{
	(void)f;
	return bench_reset(b, s);
}

// As after a reboot: a new daemon, nothing cached.
static int chill(struct bench *b, figure *f, struct bench_side *s)
{
	int r = s->mounted ? bench_remount(b) : 0;

	(void)f;
	return r ? r : bench_drop_caches(b);
}

static int forget_names(struct bench *b, figure *f, struct bench_side *s)
{
	int r = s->mounted ? bench_remount(b) : 0;

	(void)f;
	return r ? r : bench_drop_names(b);
}

static int stage_synced(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, ++s->made);
	uint64_t files = MIN(BENCH_COMMIT_FILES, b->options.files);

	return stage ? bench_write_small(b, stage, files, f->file_bytes, true) : -ENOMEM;
}

static int stage_dirs(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, ++s->made);

	(void)f;
	return stage ? bench_write_small(b, stage, 0, 0, false) : -ENOMEM;
}

// Read by the same calls on all sides: how a page came into the cache decides how large its neighbours are, and with it
// how fast a map of it is. The sides after the first find the cache dropped for them already.
static int cache_bulk(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *path = tree_path(f->fixture, s);
	int r = b->root && s->name == BENCH_PLAIN ? bench_drop_caches(b) : 0;

	if (!path)
		return -ENOMEM;
	return r ? r : bench_read_bulk(b, path, false);
}

// --- Running --------------------------------------------------------------------------------------------------------

static int save_bulk(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, ++s->made);
	int r = stage ? bench_write_bulk(b, stage, STEP_SUFFIX, f->threads, !s->mounted) : -ENOMEM;

	s->large = true;
	return r ? r : bench_commit(s, s->made);
}

// Plain files are synced by who wants that, on a mount as elsewhere.
static int write_plain_bulk(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *path = bench_path("%s/plain-%u", s->own, ++s->made);

	s->large = true;
	return path ? bench_write_bulk(b, path, PLAIN_SUFFIX, f->threads, true) : -ENOMEM;
}

static int write_plain_small(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *path = bench_path("%s/plain-%u", s->own, ++s->made);

	return path ? bench_write_small(b, path, b->options.files, f->file_bytes, f->sync) : -ENOMEM;
}

static int save_small(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, ++s->made);
	int r = stage ? bench_write_small(b, stage, b->options.files, f->file_bytes, !s->mounted) : -ENOMEM;

	return r ? r : bench_commit(s, s->made);
}

static int save_small_syncfs(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, ++s->made);
	int r = stage ? bench_write_small(b, stage, b->options.files, f->file_bytes, false) : -ENOMEM;

	return r ? r : bench_commit_syncfs(s, s->made);
}

static int commit(struct bench *b, figure *f, struct bench_side *s)
{
	(void)b;
	(void)f;
	return bench_commit(s, s->made);
}

static int read_bulk(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *path = tree_path(f->fixture, s);

	return path ? bench_read_bulk(b, path, false) : -ENOMEM;
}

static int map_bulk(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *path = tree_path(f->fixture, s);

	return path ? bench_read_bulk(b, path, true) : -ENOMEM;
}

static int walk(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *path = tree_path(f->fixture, s);
	uint64_t entries;

	(void)b;
	return path ? bench_walk(path, true, &entries) : -ENOMEM;
}

static int read_all(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *path = tree_path(f->fixture, s);

	(void)b;
	return path ? bench_read_all(path) : -ENOMEM;
}

// readdir and stat of each, as `ls -l` does.
static int list(struct bench *b, figure *f, struct bench_side *s)
{
	uint64_t entries;
	int r = bench_walk(s->root, false, &entries);

	(void)f;
	return r ? r : entries < b->options.files ? -EIO : 0;
}

typedef int one_fn(int dirfd, const char *path);

static int create_one(int dirfd, const char *path)
{
	int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	return fd < 0 || close(fd) ? -errno : 0;
}

static int open_one(int dirfd, const char *path)
{
	int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

	return fd < 0 || close(fd) ? -errno : 0;
}

static int stat_one(int dirfd, const char *path)
{
	struct stat st;

	return fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

// Does it to each of the small files of a step, by their paths in it.
static int each_small(struct bench *b, const char *dir, one_fn *fn)
{
	CLEANUP_FD int dirfd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	uint64_t each = MAX(b->options.files / BENCH_SMALL_DIRS, 1);
	char path[64];
	int r = 0;

	if (dirfd < 0)
		return dir ? -errno : -ENOMEM;
	for (unsigned i = 0; i < BENCH_SMALL_DIRS && !r; i++)
		for (uint64_t j = 0; j < each && !r; j++) {
			snprintf(path, sizeof(path), "d%02u/f%05llu", i, (unsigned long long)j);
			r = bench_stopped() ? -EINTR : fn(dirfd, path);
		}
	return r;
}

static int create_close(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, s->made);

	(void)f;
	return each_small(b, stage, create_one);
}

static int open_close(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *path = tree_path(f->fixture, s);

	return each_small(b, path, open_one);
}

static int look_up(struct bench *b, figure *f, struct bench_side *s)
{
	CLEANUP_FREE char *path = tree_path(f->fixture, s);

	return each_small(b, path, stat_one);
}

// --- The table ------------------------------------------------------------------------------------------------------

#define MIB (1024.0 * 1024)

const struct bench_figure bench_figures[] = {
	{.name = "save-1",
	 .what = "Save large files, 1 thread, and commit",
	 .fixture = BENCH_EMPTY,
	 .target = 0.95,
	 .cpu_too = true,
	 .threads = 1,
	 .run = save_bulk,
	 .after = reset},
	{.name = "save-2",
	 .what = "Save large files, 2 threads, and commit",
	 .fixture = BENCH_EMPTY,
	 .target = 0.95,
	 .cpu_too = true,
	 .threads = 2,
	 .run = save_bulk,
	 .after = reset},
	{.name = "save-sealing",
	 .what = "Save large files while those of the save before are sealed",
	 .fixture = BENCH_EMPTY,
	 .target = 0.85,
	 .threads = 1,
	 .seals = true,
	 .prepare = save_bulk,
	 .run = save_bulk,
	 .after = reset},
	{.name = "seal",
	 .what = "Seal large files in the background, over their save",
	 .fixture = BENCH_EMPTY,
	 .measure = BENCH_TIMES,
	 .target = 3,
	 .seals = true,
	 .gauge = bench_gauge_seal},
	{.name = "derive",
	 .what = "What hard links of a step take, committed as another",
	 .fixture = BENCH_BULK,
	 .measure = BENCH_BYTES,
	 .target = 1 * MIB,
	 .gauge = bench_gauge_derive},
	{.name = "cold-read",
	 .what = "CPU to read a cold step, over hashing and decoding it",
	 .fixture = BENCH_EMPTY,
	 .measure = BENCH_TIMES,
	 .target = 1.3,
	 .gauge = bench_gauge_cold},
	{.name = "files-fsync",
	 .what = "Save small files; plain: fsync of each",
	 .fixture = BENCH_EMPTY,
	 .target = 1.0,
	 .file_bytes = BENCH_SMALL_BYTES,
	 .run = save_small,
	 .after = reset},
	{.name = "files-syncfs",
	 .what = "Save small files; plain: one syncfs",
	 .fixture = BENCH_EMPTY,
	 .target = 0.4,
	 .file_bytes = BENCH_SMALL_BYTES,
	 .run = save_small_syncfs,
	 .after = reset},
	{.name = "op-create",
	 .what = "Create and close a file",
	 .fixture = BENCH_EMPTY,
	 .per_op = true,
	 .prepare = stage_dirs,
	 .run = create_close,
	 .after = reset},
	{.name = "commit-4KiB",
	 .what = "Commit 1,000 synced files of 4 KiB, over plain fsyncs",
	 .fixture = BENCH_EMPTY,
	 .measure = BENCH_EXTRA_MS,
	 .target = 20,
	 .file_bytes = 4u << 10,
	 .prepare = stage_synced,
	 .run = commit},
	{.name = "commit-64KiB",
	 .what = "The same with files of 64 KiB",
	 .fixture = BENCH_EMPTY,
	 .measure = BENCH_EXTRA_MS,
	 .target = 20,
	 .file_bytes = 64u << 10,
	 .prepare = stage_synced,
	 .run = commit},

	{.name = "restore-warm",
	 .what = "Restore large files by read(2), cached",
	 .fixture = BENCH_BULK,
	 .target = 0.95,
	 .begin = cache_bulk,
	 .run = read_bulk},
	{.name = "restore-cold",
	 .what = "The same after a remount, nothing cached",
	 .fixture = BENCH_BULK,
	 .target = 0.9,
	 .cold = true,
	 .prepare = chill,
	 .run = read_bulk},
	{.name = "mmap-warm",
	 .what = "Restore large files by mmap(2), cached",
	 .fixture = BENCH_BULK,
	 .target = 0.95,
	 .begin = cache_bulk,
	 .run = map_bulk},
	{.name = "mmap-cold",
	 .what = "The same after a remount, nothing cached",
	 .fixture = BENCH_BULK,
	 .target = 0.95,
	 .cold = true,
	 .prepare = chill,
	 .run = map_bulk},

	{.name = "walk-warm",
	 .what = "Walk small files with stat, cached",
	 .fixture = BENCH_SMALL,
	 .target = 0.9,
	 .run = walk},
	{.name = "walk-cold",
	 .what = "The same after a remount, nothing cached",
	 .fixture = BENCH_SMALL,
	 .target = 0.5,
	 .cold = true,
	 .prepare = chill,
	 .run = walk},
	{.name = "read-all-warm",
	 .what = "Read all small files, cached",
	 .fixture = BENCH_SMALL,
	 .target = 0.18,
	 .run = read_all},
	{.name = "read-all-cold",
	 .what = "The same after a remount, nothing cached",
	 .fixture = BENCH_SMALL,
	 .target = 0.6,
	 .cold = true,
	 .prepare = chill,
	 .run = read_all},
	{.name = "op-open",
	 .what = "Open and close a committed file",
	 .fixture = BENCH_SMALL,
	 .per_op = true,
	 .run = open_close},
	{.name = "op-lookup",
	 .what = "First stat of a committed file",
	 .fixture = BENCH_SMALL,
	 .per_op = true,
	 .cold = true,
	 .prepare = forget_names,
	 .run = look_up},

	{.name = "plain-save",
	 .what = "Write large plain files and fsync each",
	 .fixture = BENCH_EMPTY,
	 .target = 0.95,
	 .threads = 1,
	 .run = write_plain_bulk,
	 .after = reset},
	{.name = "plain-files-fsync",
	 .what = "Write small plain files; fsync of each on both sides",
	 .fixture = BENCH_EMPTY,
	 .target = 0.4,
	 .file_bytes = BENCH_SMALL_BYTES,
	 .sync = true,
	 .run = write_plain_small,
	 .after = reset},
	{.name = "plain-files",
	 .what = "The same without a sync on any",
	 .fixture = BENCH_EMPTY,
	 .file_bytes = BENCH_SMALL_BYTES,
	 .run = write_plain_small,
	 .after = reset},
	{.name = "plain-read-warm",
	 .what = "Read large plain files by read(2), cached",
	 .fixture = BENCH_PLAIN_BULK,
	 .target = 0.95,
	 .begin = cache_bulk,
	 .run = read_bulk},
	{.name = "plain-read-cold",
	 .what = "The same after a remount, nothing cached",
	 .fixture = BENCH_PLAIN_BULK,
	 .target = 0.9,
	 .cold = true,
	 .prepare = chill,
	 .run = read_bulk},
	{.name = "plain-walk-warm",
	 .what = "Walk small plain files with stat, cached",
	 .fixture = BENCH_PLAIN_SMALL,
	 .run = walk},
	{.name = "plain-read-all-warm",
	 .what = "Read all small plain files, cached",
	 .fixture = BENCH_PLAIN_SMALL,
	 .target = 0.18,
	 .run = read_all},
	{.name = "plain-read-all-cold",
	 .what = "The same after a remount, nothing cached",
	 .fixture = BENCH_PLAIN_SMALL,
	 .target = 0.6,
	 .cold = true,
	 .prepare = chill,
	 .run = read_all},

	{.name = "list", .what = "List many steps with stat", .fixture = BENCH_STEPS, .target = 0.5, .run = list},
	{.name = "list-cold",
	 .what = "The same after a remount, nothing cached",
	 .fixture = BENCH_STEPS,
	 .cold = true,
	 .prepare = chill,
	 .run = list},

	{.name = "mount-warm",
	 .what = "Mount the largest store",
	 .fixture = BENCH_BIG,
	 .measure = BENCH_SECONDS,
	 .target = 1,
	 .gauge = bench_gauge_mount_warm},
	{.name = "mount-cold",
	 .what = "The same, nothing cached",
	 .fixture = BENCH_BIG,
	 .measure = BENCH_SECONDS,
	 .target = 1,
	 .cold = true,
	 .gauge = bench_gauge_mount_cold},
	{.name = "memory-idle",
	 .what = "Memory of the daemon after the mount",
	 .fixture = BENCH_BIG,
	 .measure = BENCH_BYTES,
	 .target = 64 * MIB,
	 .gauge = bench_gauge_memory_idle},
	{.name = "memory-load",
	 .what = "Peak under a walk of all and 16 readers",
	 .fixture = BENCH_BIG,
	 .measure = BENCH_BYTES,
	 .target = 256 * MIB,
	 .gauge = bench_gauge_memory_load},
	{.name = "index",
	 .what = "Rebuild the index, with 100 chunks for each file",
	 .fixture = BENCH_EMPTY,
	 .measure = BENCH_SECONDS,
	 .target = 60,
	 .gauge = bench_gauge_index},
	{.name = "lookup",
	 .what = "Find a chunk in it, over decoding one",
	 .fixture = BENCH_EMPTY,
	 .measure = BENCH_TIMES,
	 .target = 0.01,
	 .gauge = bench_gauge_lookup},
	{.name = "inodes",
	 .what = "Many known inodes with 1,024 descriptors: failures",
	 .fixture = BENCH_BIG,
	 .measure = BENCH_ERRORS,
	 .gauge = bench_gauge_inodes},
};
const size_t bench_figure_count = ARRAY_LEN(bench_figures);
