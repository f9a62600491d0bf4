#include "tools/bench.h"

#include "core/base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define READ_BYTES (128u << 10) // of a small file, as Python's read() asks

// Stops the loops that a signal must end soon.
static int go_on(void)
{
	return bench_stopped() ? -EINTR : 0;
}

static int sync_path(const char *path)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 || fsync(fd) ? -errno : 0;
}

// --- Writing --------------------------------------------------------------------------------------------------------

// A whole safetensors file of one tensor: its header, padded with blanks, stands in the first bytes.
static void put_header(unsigned char *at, uint64_t bytes)
{
	enum { HEADER = 128 };
	char text[HEADER + 1];
	int len = snprintf(text, sizeof(text),
			   "{\"tensor\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
			   (unsigned long long)(bytes - 8 - HEADER), (unsigned long long)(bytes - 8 - HEADER));

	ckpt_put64(at, HEADER);
	memset(at + 8, ' ', HEADER);
	memcpy(at + 8, text, (size_t)len);
}

static int write_all(int fd, const unsigned char *data, size_t len)
{
	ssize_t n;

	while (len > 0) {
		n = write(fd, data, len);
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

int bench_write_file(struct bench *b, int dirfd, const char *name, uint64_t bytes, bool sync)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	size_t len;
	int r = 0;

	if (fd < 0)
		return -errno;
	for (uint64_t at = 0; at < bytes && !r; at += len) {
		len = MIN(bytes - at, BENCH_CALL_BYTES);
		r = write_all(fd, b->buffer + at % BENCH_BUFFER_BYTES, len);
		if (!r)
			r = go_on();
	}
	if (!r && sync && fsync(fd))
		r = -errno;
	if (close(fd) && !r)
		r = -errno;
	return r;
}

struct bulk_writer {
	struct bench *b;
	int dirfd;
	const char *suffix;
	unsigned first, every;
	bool sync;
	int result;
};

static void *write_share(void *arg)
{
	struct bulk_writer *w = arg;
	uint64_t bytes = w->b->options.work_bytes / BENCH_BULK_FILES;
	char name[64];

	for (unsigned i = w->first; i < BENCH_BULK_FILES && !w->result; i += w->every) {
		snprintf(name, sizeof(name), "model-%05u-of-%05u%s", i + 1, BENCH_BULK_FILES, w->suffix);
		w->result = bench_write_file(w->b, w->dirfd, name, bytes, w->sync);
	}
	return NULL;
}

int bench_write_bulk(struct bench *b, const char *dir, const char *suffix, unsigned threads, bool sync)
{
	struct bulk_writer writers[BENCH_BULK_FILES];
	pthread_t ids[BENCH_BULK_FILES];
	unsigned started = 0;
	int r = 0;

	if (mkdir(dir, 0755))
		return -errno;
	CLEANUP_FD int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return -errno;
	put_header(b->buffer, b->options.work_bytes / BENCH_BULK_FILES);
	for (unsigned i = 0; i < threads; i++)
		writers[i] = (struct bulk_writer){b, dirfd, suffix, i, threads, sync, 0};
	while (started + 1 < threads && !r) {
		r = -pthread_create(&ids[started], NULL, write_share, &writers[started + 1]);
		started += !r;
	}
	if (!r)
		write_share(&writers[0]);
	for (unsigned i = 0; i < started; i++)
		pthread_join(ids[i], NULL);
	for (unsigned i = 0; i < threads && !r; i++)
		r = writers[i].result;
	return r;
}

static int write_dir(struct bench *b, const char *dir, uint64_t files, uint64_t file_bytes, bool sync)
{
	char name[32];
	int r = 0;

	if (mkdir(dir, 0755))
		return -errno;
	CLEANUP_FD int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return -errno;
	for (uint64_t i = 0; i < files && !r; i++) {
		snprintf(name, sizeof(name), "f%05llu", (unsigned long long)i);
		r = bench_write_file(b, dirfd, name, file_bytes, sync);
	}
	return r;
}

int bench_write_small(struct bench *b, const char *dir, uint64_t files, uint64_t file_bytes, bool sync)
{
	uint64_t each = files ? MAX(files / BENCH_SMALL_DIRS, 1) : 0;
	int r = 0;

	if (mkdir(dir, 0755))
		return -errno;
	for (unsigned i = 0; i < BENCH_SMALL_DIRS && !r; i++) {
		CLEANUP_FREE char *path = bench_path("%s/d%02u", dir, i);

		r = path ? write_dir(b, path, each, file_bytes, sync) : -ENOMEM;
	}
	return r;
}

// --- Committing -----------------------------------------------------------------------------------------------------

char *bench_stage_path(const struct bench_side *s, unsigned step)
{
	return bench_path(s->mounted ? "%s/%u" : "%s/%u.tmp", s->own, step);
}

static int sync_dirs(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	int r = 0;

	if (!dir)
		return -errno;
	while (!r && (e = readdir(dir))) {
		CLEANUP_FREE char *child = NULL;

		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		child = bench_path("%s/%s", path, e->d_name);
		r = child ? sync_dirs(child) : -ENOMEM;
	}
	if (!r && fsync(dirfd(dir)))
		r = -errno;
	closedir(dir);
	return r;
}

static int close_marker(const char *stage)
{
	CLEANUP_FREE char *path = bench_path("%s/.finalize", stage);
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644) : -1;

	if (!path)
		return -ENOMEM;
	return fd < 0 || close(fd) ? -errno : 0;
}

static int publish(const struct bench_side *s, const char *stage, unsigned step)
{
	CLEANUP_FREE char *path = bench_path("%s/%u", s->own, step);

	if (!path)
		return -ENOMEM;
	return rename(stage, path) ? -errno : sync_path(s->own);
}

int bench_commit(const struct bench_side *s, unsigned step)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, step);
	int r;

	if (!stage)
		return -ENOMEM;
	if (s->mounted)
		return close_marker(stage);
	r = sync_dirs(stage);
	return r ? r : publish(s, stage, step);
}

int bench_commit_syncfs(const struct bench_side *s, unsigned step)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, step);

	if (!stage)
		return -ENOMEM;
	if (s->mounted)
		return close_marker(stage);
	CLEANUP_FD int fd = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || syncfs(fd) ? -errno : publish(s, stage, step);
}

// --- Reading --------------------------------------------------------------------------------------------------------

static int map_file(struct bench *b, int fd, size_t bytes)
{
	unsigned char *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	int r = 0;

	if (map == MAP_FAILED)
		return -errno;
	// Eight megabytes of target, so that what is measured is the map and not one cache line.
	for (size_t at = 0; at < bytes && !r; at += BENCH_CALL_BYTES) {
		memcpy(b->buffer + at % BENCH_BUFFER_BYTES, map + at, MIN(bytes - at, BENCH_CALL_BYTES));
		r = go_on();
	}
	munmap(map, bytes);
	return r;
}

// Reads to the end, calls of call_bytes, each into the next piece of buf.
static int read_file(int fd, uint64_t bytes, unsigned char *buf, size_t buf_bytes, size_t call_bytes)
{
	size_t pieces = buf_bytes / call_bytes, calls = 0;
	uint64_t sum = 0;
	ssize_t n;

	do {
		n = read(fd, buf + calls++ % pieces * call_bytes, call_bytes);
		if (n < 0)
			return -errno;
		sum += (uint64_t)n;
	} while (n > 0 && !bench_stopped());
	return bench_stopped() ? -EINTR : sum == bytes ? 0 : -EIO;
}

static int read_bulk(struct bench *b, int dirfd, const char *name, bool map)
{
	CLEANUP_FD int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	return map ? map_file(b, fd, (size_t)st.st_size)
		   : read_file(fd, (uint64_t)st.st_size, b->buffer, BENCH_BUFFER_BYTES, BENCH_CALL_BYTES);
}

int bench_read_file(int dirfd, const char *path)
{
	unsigned char buf[READ_BYTES];
	CLEANUP_FD int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	return read_file(fd, (uint64_t)st.st_size, buf, sizeof(buf), sizeof(buf));
}

typedef int visit_fn(struct bench *b, int dirfd, const struct dirent *e, void *arg);

// Every entry of a directory, with deep all below too, each directory before what is in it.
static int visit(struct bench *b, int parent, const char *name, bool deep, visit_fn *fn, void *arg)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir)
		return -errno;
	while (!r && (e = readdir(dir))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		r = fn(b, fd, e, arg);
		if (!r && deep && e->d_type == DT_DIR)
			r = visit(b, fd, e->d_name, deep, fn, arg);
		if (!r)
			r = go_on();
	}
	closedir(dir);
	return r;
}

static int visit_bulk(struct bench *b, int dirfd, const struct dirent *e, void *arg)
{
	const bool *map = arg;

	return e->d_type == DT_REG ? read_bulk(b, dirfd, e->d_name, *map) : 0;
}

int bench_read_bulk(struct bench *b, const char *dir, bool map)
{
	return visit(b, AT_FDCWD, dir, true, visit_bulk, &map);
}

static int visit_small(struct bench *b, int dirfd, const struct dirent *e, void *arg)
{
	(void)b;
	(void)arg;
	return e->d_type == DT_REG ? bench_read_file(dirfd, e->d_name) : 0;
}

int bench_read_all(const char *dir)
{
	return visit(NULL, AT_FDCWD, dir, true, visit_small, NULL);
}

static int visit_stat(struct bench *b, int dirfd, const struct dirent *e, void *arg)
{
	uint64_t *entries = arg;
	struct stat st;

	(void)b;
	++*entries;
	return fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

int bench_walk(const char *dir, bool deep, uint64_t *ret_entries)
{
	*ret_entries = 0;
	return visit(NULL, AT_FDCWD, dir, deep, visit_stat, ret_entries);
}
