// ckptfs-cuda-bench: how long a save blocks, and how fast saves and loads are, beside plain copies and plain files of the same bytes in
// the same run. It loads three times: as the pool chooses, through the page cache, and past it with O_DIRECT. Every byte that was loaded is
// compared with what was saved.
//
//	ckptfs-cuda-bench [--device cuda|host|host:RATE] [--bytes N] [--arrays N] [--pool N] [--format NAME] [--buffered] [--runs N] DIR
//
// DIR: on the disk to measure; what is made there is removed. Exit status: 0; 1: it failed, or bytes differ; 2: usage.
#include "tools/cuda/ckptfs_cuda.h"
#include "tools/cuda/pool.h"

#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/ckptfs.h"

#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>

#define THREADS 4u
#define STEP "1"

static struct {
	const char *device, *format, *dir;
	uint64_t bytes, arrays, pool, runs;
	bool buffered;
} options = {.format = "safetensors", .bytes = UINT64_C(1) << 30, .arrays = 200, .runs = 3};

struct bench {
	char dir[PATH_MAX], store[PATH_MAX], file[PATH_MAX];
	struct ckpt *ckpt;
	struct ckpt_cuda_pool *pool;
	struct ckpt_device *device;
	uint64_t array_bytes;
	uint8_t **at; // of each array, in device memory
	struct ckpt_cuda_array *arrays;
	uint64_t shape[1];
	uint8_t *pinned; // of one array
	void *stream, *event;
};

enum figure {
	COPY_OUT,
	DISK_WRITE,
	BEGUN,
	BLOCKED,
	SAVE,
	DISK_READ,
	COPY_IN,
	LOAD,
	LOAD_BUFFERED,
	LOAD_DIRECT,
	FIGURES
};

static const char *const names[FIGURES] = {
	"copy to pinned memory", "disk, written", "save: begun",      "save: blocked", "save: durable", "disk, read",
	"copy to the device",    "load",          "load: page cache", "load: O_DIRECT"};

static int failed(const char *what, const char *why)
{
	fprintf(stderr, "ckptfs-cuda-bench: %s: %s\n", what, why);
	return -EIO;
}

static int failed_device(const struct bench *b, const char *what, int code)
{
	return failed(what, code < 0 ? strerror(-code) : b->device->ops->text(code));
}

static double now(void)
{
	return (double)ckpt_sys.mono_ns() / 1e9;
}

// --- Bytes ------------------------------------------------------------------------------------------------------------------

// Of an array, in the pinned memory.
static uint64_t word(size_t array, uint64_t i)
{
	return (array + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xbf58476d1ce4e5b9);
}

static int wait_stream(struct bench *b)
{
	int code = b->device->ops->record(b->device, 0, b->event, b->stream);

	return code ? code : b->device->ops->event_wait(b->device, b->event);
}

static int copy(struct bench *b, size_t array, bool out)
{
	const struct ckpt_device_ops *ops = b->device->ops;
	int code = out ? ops->copy_out(b->device, b->pinned, b->at[array], b->array_bytes, b->stream)
		       : ops->copy_in(b->device, b->at[array], b->pinned, b->array_bytes, b->stream);

	return code ? failed_device(b, "copy", code) : 0;
}

// known: the bytes that are saved; else zeros.
static int fill(struct bench *b, bool known)
{
	int rc = 0;

	for (size_t i = 0; i < options.arrays && !rc; i++) {
		for (uint64_t k = 0; k < b->array_bytes / 8; k++)
			ckpt_put64(b->pinned + 8 * k, known ? word(i, k) : 0);
		rc = copy(b, i, false);
		if (!rc && wait_stream(b))
			rc = failed("copy", "the device failed");
	}
	return rc;
}

static int verify(struct bench *b)
{
	for (size_t i = 0; i < options.arrays; i++) {
		if (copy(b, i, true) || wait_stream(b))
			return -EIO;
		for (uint64_t k = 0; k < b->array_bytes / 8; k++)
			if (ckpt_get64(b->pinned + 8 * k) != word(i, k))
				return failed(b->arrays[i].name,
					      "the bytes that were loaded differ from those that were saved");
	}
	return 0;
}

// --- Plain copies and files -------------------------------------------------------------------------------------------------

static int time_copies(struct bench *b, bool out, double *ret_seconds)
{
	double began = now();
	int rc = 0;

	for (size_t i = 0; i < options.arrays && !rc; i++)
		rc = copy(b, i, out);
	if (!rc && wait_stream(b))
		rc = failed("copy", "the device failed");
	*ret_seconds = now() - began;
	return rc;
}

struct part {
	struct bench *b;
	int fd;
	bool writes;
	unsigned first;
	ssize_t rc;
};

// Blocks of a pool's buffer, each fourth one.
static void *run_part(void *arg)
{
	struct part *p = arg;
	uint64_t step = p->b->pool->buffer_bytes, all = options.arrays * p->b->array_bytes;
	uint8_t *buffer = NULL;

	if (posix_memalign((void **)&buffer, CKPT_POOL_ALIGN, step)) {
		p->rc = -ENOMEM;
		return NULL;
	}
	memset(buffer, 7, step);
	for (uint64_t at = p->first * step; at < all && p->rc >= 0; at += THREADS * step) {
		size_t len = (size_t)MIN(step, (all - at + CKPT_POOL_ALIGN - 1) / CKPT_POOL_ALIGN * CKPT_POOL_ALIGN);

		p->rc = p->writes ? ckpt_sys.pwrite(p->fd, buffer, len, (off_t)at)
				  : ckpt_sys.pread(p->fd, buffer, len, (off_t)at);
	}
	free(buffer);
	return NULL;
}

static int time_file(struct bench *b, bool writes, double *ret_seconds)
{
	int flags = (writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY) | O_CLOEXEC, fd;
	struct part parts[THREADS];
	pthread_t threads[THREADS];
	double began = now();
	ssize_t rc = 0;

	fd = open(b->file, flags | (options.buffered ? 0 : O_DIRECT), 0600);
	if (fd < 0)
		fd = open(b->file, flags, 0600);
	if (fd < 0)
		return failed(b->file, strerror(errno));
	for (unsigned i = 0; i < THREADS; i++) {
		parts[i] = (struct part){.b = b, .fd = fd, .writes = writes, .first = i};
		if (pthread_create(&threads[i], NULL, run_part, &parts[i]))
			abort();
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		rc = MIN(rc, parts[i].rc);
	}
	if (writes && rc >= 0)
		rc = ckpt_sys.fdatasync(fd);
	close(fd);
	*ret_seconds = now() - began;
	return rc < 0 ? failed(b->file, strerror((int)-rc)) : 0;
}

// --- Saves and loads --------------------------------------------------------------------------------------------------------

static int time_save(struct bench *b, double seconds[FIGURES])
{
	const struct ckpt_cuda_plan plan = {options.format, b->arrays, options.arrays, 0};
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;
	double began = now();
	int rc = ckpt_cuda_save_step(b->pool, b->ckpt, STEP, CKPT_FORCE, &plan, why, &save);

	if (rc)
		return failed("save", why);
	seconds[BEGUN] = now() - began;
	began = now();
	for (size_t i = 0; i < options.arrays && !rc; i++)
		rc = ckpt_cuda_save_array(save, b->arrays[i].name, b->at[i], b->array_bytes, b->stream);
	if (!rc)
		rc = ckpt_cuda_captured(save);
	seconds[BLOCKED] = now() - began;
	if (!rc)
		rc = ckpt_cuda_commit(save, NULL);
	seconds[SAVE] = now() - began;
	if (rc)
		rc = failed("save", *ckpt_cuda_save_why(save) ? ckpt_cuda_save_why(save) : strerror(-rc));
	ckpt_cuda_save_free(save);
	return rc;
}

// The pages of these files leave the cache, so that the disk is read.
static int drop_pages(const char *path, const struct stat *st, int type, struct FTW *at)
{
	int fd = type == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	(void)st;
	(void)at;
	if (fd >= 0) {
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		close(fd);
	}
	return 0;
}

static int load_once(struct bench *b, double *ret_seconds)
{
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_load *load;
	double began;
	int rc;

	(void)nftw(b->dir, drop_pages, 32, FTW_PHYS);
	began = now();
	rc = ckpt_cuda_load_step(b->pool, b->ckpt, STEP, why, &load);
	if (rc)
		return failed("load", why);
	for (size_t i = 0; i < options.arrays && !rc; i++)
		rc = ckpt_cuda_load_array(load, b->arrays[i].name, b->at[i], b->array_bytes, b->stream);
	if (!rc)
		rc = ckpt_cuda_loaded(load);
	*ret_seconds = now() - began;
	if (rc)
		rc = failed("load", *ckpt_cuda_load_why(load) ? ckpt_cuda_load_why(load) : strerror(-rc));
	ckpt_cuda_load_free(load);
	return rc;
}

// flags: of the pool, for this load.
static int time_load(struct bench *b, unsigned flags, double *ret_seconds)
{
	unsigned was = b->pool->flags;
	int rc = fill(b, false);

	if (rc)
		return rc;
	b->pool->flags = flags;
	rc = load_once(b, ret_seconds);
	b->pool->flags = was;
	return rc ? rc : verify(b);
}

static int run_once(struct bench *b, double seconds[FIGURES])
{
	int rc = fill(b, true);

	if (!rc)
		rc = time_copies(b, true, &seconds[COPY_OUT]);
	if (!rc)
		rc = time_file(b, true, &seconds[DISK_WRITE]);
	if (!rc)
		rc = time_save(b, seconds);
	if (!rc)
		rc = time_copies(b, false, &seconds[COPY_IN]);
	(void)nftw(b->dir, drop_pages, 32, FTW_PHYS);
	if (!rc)
		rc = time_file(b, false, &seconds[DISK_READ]);
	if (!rc)
		rc = time_load(b, b->pool->flags, &seconds[LOAD]);
	if (!rc)
		rc = time_load(b, CKPT_CUDA_BUFFERED, &seconds[LOAD_BUFFERED]);
	if (!rc)
		rc = time_load(b, CKPT_CUDA_DIRECT, &seconds[LOAD_DIRECT]);
	return rc;
}

// --- The table --------------------------------------------------------------------------------------------------------------

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print_table(struct bench *b, double (*seconds)[FIGURES])
{
	uint64_t all = options.arrays * b->array_bytes;
	double middle[FIGURES], *of = malloc(options.runs * sizeof(*of));

	if (!of)
		abort();
	for (int f = 0; f < FIGURES; f++) {
		for (size_t i = 0; i < options.runs; i++)
			of[i] = seconds[i][f];
		qsort(of, options.runs, sizeof(*of), by_size);
		middle[f] = of[options.runs / 2];
	}
	free(of);
	printf("%-24s %10s %12s\n", "medians", "seconds", "MiB/s");
	for (int f = 0; f < FIGURES; f++)
		printf("%-24s %10.3f %12.0f\n", names[f], middle[f], (double)all / middle[f] / 1048576);
	printf("blocked / copy           %10.2f\n", middle[BLOCKED] / middle[COPY_OUT]);
	printf("save rate / disk         %10.2f\n", middle[DISK_WRITE] / middle[SAVE]);
	printf("load rate / min(disk, copy) %7.2f\n", MAX(middle[DISK_READ], middle[COPY_IN]) / middle[LOAD]);
	printf("verified: %llu bytes, %llu times\n", (unsigned long long)all,
	       (unsigned long long)options.runs * (FIGURES - LOAD));
}

// --- Begin and end ----------------------------------------------------------------------------------------------------------

static int make_arrays(struct bench *b)
{
	const struct ckpt_device_ops *ops = b->device->ops;
	void *memory;
	char *name;
	int code;

	b->at = ckpt_calloc(options.arrays, sizeof(uint8_t *));
	b->arrays = ckpt_calloc(options.arrays, sizeof(*b->arrays));
	if (!b->at || !b->arrays)
		return failed("memory", strerror(ENOMEM));
	b->array_bytes = MAX(options.bytes / options.arrays / 8 * 8, UINT64_C(8));
	b->shape[0] = b->array_bytes / 4;
	code = ops->pinned_new(b->device, b->array_bytes, &memory);
	if (!code)
		b->pinned = memory;
	if (!code)
		code = ops->stream_new(b->device, 0, &b->stream);
	if (!code)
		code = ops->event_new(b->device, 0, &b->event);
	for (size_t i = 0; i < options.arrays && !code; i++) {
		code = ops->memory_new(b->device, 0, b->array_bytes, &memory);
		if (code)
			break;
		b->at[i] = memory;
		if (asprintf(&name, "layers.%05zu.weight", i) < 0)
			return failed("memory", strerror(ENOMEM));
		b->arrays[i] = (struct ckpt_cuda_array){name, "float32", 1, b->shape};
	}
	return code ? failed_device(b, "memory of the device", code) : 0;
}

static int begin(struct bench *b)
{
	unsigned flags = options.buffered ? CKPT_CUDA_BUFFERED : 0;
	char why[CKPT_CUDA_WHY_MAX];
	int rc;

	rc = ckpt_cuda_pool_new(options.pool ? options.pool : options.bytes + options.bytes / 8, options.device, flags,
				why, &b->pool);
	if (rc)
		return failed(options.device ? options.device : "cuda", *why ? why : strerror(-rc));
	b->device = b->pool->device;
	if (snprintf(b->dir, sizeof(b->dir) - 16, "%s/ckptfs-cuda-bench.XXXXXX", options.dir) >=
		    (int)sizeof(b->dir) - 16 ||
	    !mkdtemp(b->dir)) {
		rc = failed(options.dir, strerror(errno));
		b->dir[0] = '\0';
		return rc;
	}
	strcpy(stpcpy(b->store, b->dir), "/store");
	strcpy(stpcpy(b->file, b->dir), "/file");
	rc = ckpt_open(b->store, CKPT_CREATE, &b->ckpt);
	return rc ? failed(b->store, strerror(-rc)) : make_arrays(b);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)at;
	(void)(type == FTW_DP ? rmdir(path) : unlink(path));
	return 0;
}

static void end(struct bench *b)
{
	ckpt_close(b->ckpt);
	if (b->event)
		b->device->ops->event_free(b->device, b->event);
	if (b->stream)
		b->device->ops->stream_free(b->device, b->stream);
	for (size_t i = 0; b->at && b->arrays && i < options.arrays; i++) {
		if (b->at[i])
			b->device->ops->memory_free(b->device, b->at[i]);
		free((char *)b->arrays[i].name);
	}
	if (b->pinned)
		b->device->ops->pinned_free(b->device, b->pinned);
	free(b->at);
	free(b->arrays);
	ckpt_cuda_pool_free(b->pool);
	if (*b->dir)
		(void)nftw(b->dir, remove_entry, 32, FTW_DEPTH | FTW_PHYS);
}

static bool parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"device", required_argument, NULL, 'd'}, {"bytes", required_argument, NULL, 'b'},
		{"arrays", required_argument, NULL, 'a'}, {"pool", required_argument, NULL, 'p'},
		{"format", required_argument, NULL, 'f'}, {"buffered", no_argument, NULL, 'B'},
		{"runs", required_argument, NULL, 'r'},   {0},
	};
	int c, rc = 0;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1 && !rc) {
		if (c == 'd')
			options.device = optarg;
		else if (c == 'f')
			options.format = optarg;
		else if (c == 'B')
			options.buffered = true;
		else if (c == '?')
			rc = -EINVAL;
		else
			rc = ckpt_size_parse(optarg, c == 'b'   ? &options.bytes
						     : c == 'a' ? &options.arrays
						     : c == 'p' ? &options.pool
								: &options.runs);
	}
	options.dir = optind + 1 == argc ? argv[optind] : NULL;
	return !rc && options.dir && options.arrays && options.runs && options.arrays < 10000000 && options.runs < 1000;
}

int main(int argc, char **argv)
{
	struct bench b = {0};
	double(*seconds)[FIGURES];
	char gpu[CKPT_CUDA_WHY_MAX];
	int rc;

	if (!parse(argc, argv)) {
		fprintf(stderr,
			"usage: ckptfs-cuda-bench [--device cuda|host|host:RATE] [--bytes N] [--arrays N] [--pool N]\n"
			"                         [--format NAME] [--buffered] [--runs N] DIR\n");
		return 2;
	}
	seconds = ckpt_calloc(options.runs, sizeof(*seconds));
	rc = seconds ? begin(&b) : -ENOMEM;
	if (!rc) {
		(void)ckpt_cuda_describe(gpu);
		printf("device: %s\n", options.device && strcmp(options.device, "cuda") ? options.device : gpu);
		printf("%llu arrays, %llu bytes, pool %llu, %s, %s\n", (unsigned long long)options.arrays,
		       (unsigned long long)(options.arrays * b.array_bytes),
		       (unsigned long long)(b.pool->buffer_count * b.pool->buffer_bytes), options.format,
		       options.buffered ? "buffered" : "O_DIRECT");
	}
	for (size_t i = 0; i < options.runs && !rc; i++)
		rc = run_once(&b, seconds[i]);
	if (!rc)
		print_table(&b, seconds);
	end(&b);
	free(seconds);
	return rc ? 1 : 0;
}
