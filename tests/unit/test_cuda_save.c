// Arrays on the host device, saved: the bytes, whatever the format; the order of copies and of changes; memory; errors at each call.
#include "tests/support/cuda.h"

#include "tests/support/sysfault.h"

#include "core/base/sys.h"

#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SMALL_POOL (UINT64_C(64) << 10) // buffers of 16 KiB

static struct ckpt_device_host *host;

static struct ckpt *store(void)
{
	char dir[PATH_MAX];
	struct ckpt *ckpt;

	ckpt_temp_dir(dir);
	ck_assert_int_eq(ckpt_open(dir, CKPT_CREATE, &ckpt), 0);
	return ckpt;
}

// --- Bytes ------------------------------------------------------------------------------------------------------------------

static const char *const formats[] = {"raw", "safetensors", "dcp", "torch", "npz", "npy", "zarr3", "orbax"};

static const struct {
	unsigned flags;
	uint64_t shard_bytes;
} ways[] = {{0, 0}, {CKPT_CUDA_BUFFERED, 0}, {0, 100000}};

static bool has_shards(const char *format)
{
	return strcmp(format, "npz") && strcmp(format, "npy");
}

// Orbax has no arrays without elements.
static struct cuda_arrays arrays_for(const char *format)
{
	struct cuda_arrays a = cuda_arrays_new(60, 9000);
	size_t n = 0;

	for (size_t i = 0; i < a.count && !strcmp(format, "orbax"); i++)
		if (!a.bytes[i]) {
			cuda_array_free(&a, i);
		} else {
			a.arrays[n] = a.arrays[i];
			a.as_written[n] = a.as_written[i];
			a.at[n] = a.at[i];
			a.bytes[n++] = a.bytes[i];
		}
	a.count = n ? n : a.count;
	return a;
}

START_TEST(files_are_those_that_the_writer_makes)
{
	const char *format = formats[(size_t)_i / ARRAY_LEN(ways)];
	size_t way = (size_t)_i % ARRAY_LEN(ways);
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, ways[way].flags, &host);
	struct cuda_arrays a = arrays_for(format);
	struct ckpt_cuda_plan plan = cuda_plan(&a, format);
	char saved[PATH_MAX], written[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;

	plan.shard_bytes = has_shards(format) ? ways[way].shard_bytes : 0;
	ckpt_temp_dir(saved);
	ckpt_temp_dir(written);
	ck_assert_uint_gt(cuda_total(&a), 10 * SMALL_POOL);
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), 0);
	ck_assert_int_eq(cuda_give_all(save, &a, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_captured(save), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0);
	ck_assert_str_eq(ckpt_cuda_save_why(save), "");
	ckpt_cuda_save_free(save);
	cuda_write_plainly(&a, format, plan.shard_bytes, written);
	ck_assert(cuda_same_folders(saved, written));
	ck_assert_uint_le(ckpt_device_host_pinned(host), SMALL_POOL);
	ck_assert_uint_eq(pool->free_count, pool->buffer_count);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

START_TEST(a_step_is_listed_when_it_is_committed)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(40, 5000);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, formats[_i]);
	struct ckpt *ckpt = store();
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;
	struct ckpt_info *info;

	ck_assert_int_eq(ckpt_cuda_save_step(pool, ckpt, "100", 0, &plan, why, &save), 0);
	for (size_t i = a.count; i-- > 0;) // in another order than the plan's
		ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[i].name, a.at[i], a.bytes[i], NULL), 0);
	ck_assert_int_eq(ckpt_cuda_captured(save), 0);
	ck_assert(!cuda_has_step(ckpt, "100"));
	ck_assert_int_eq(ckpt_cuda_commit(save, "{\"metrics\":{\"loss\":1.5}}"), 0);
	ckpt_cuda_save_free(save);
	ck_assert_int_eq(ckpt_find(ckpt, "100", &info), 0);
	ck_assert_ptr_nonnull(strstr(info->metadata, "1.5"));
	ckpt_info_free(info);
	ck_assert(cuda_step_has(ckpt, "100", &a, 0));
	ckpt_close(ckpt);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

// --- Order ------------------------------------------------------------------------------------------------------------------

static struct cuda_gate disk = CUDA_GATE_INIT;
static ssize_t (*real_pwrite)(int fd, const void *buf, size_t len, off_t offset);
static _Atomic unsigned writes;

static ssize_t gated_pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	cuda_gate_pass(&disk);
	atomic_fetch_add(&writes, 1);
	return real_pwrite(fd, buf, len, offset);
}

static void hold_disk(void)
{
	real_pwrite = ckpt_sys.pwrite;
	ckpt_sys.pwrite = gated_pwrite;
}

// Copies take 50 ms, and nothing is written until they may change.
START_TEST(arrays_that_change_behind_captured_are_saved_as_they_were)
{
	struct ckpt_cuda_pool *pool = cuda_pool(UINT64_C(8) << 20, UINT64_C(20) << 20, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(40, 5000);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "raw");
	struct ckpt *ckpt = store();
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;

	ck_assert_uint_gt(cuda_total(&a), 900000);
	ck_assert_int_eq(ckpt_cuda_save_step(pool, ckpt, "100", 0, &plan, why, &save), 0);
	hold_disk();
	ck_assert_int_eq(cuda_give_all(save, &a, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_captured(save), 0);
	cuda_fill_all(&a, 1);
	cuda_gate_open(&disk);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0);
	ckpt_cuda_save_free(save);
	ck_assert(cuda_step_has(ckpt, "100", &a, 0));
	ckpt_close(ckpt);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

struct kernel {
	struct cuda_gate gate;
	struct cuda_arrays *arrays;
	size_t first, end;
};

static void run_kernel(void *arg)
{
	struct kernel *k = arg;

	cuda_gate_pass(&k->gate);
	for (size_t i = k->first; i < k->end; i++)
		cuda_fill(k->arrays, i, 1);
}

static size_t buffers_left(struct ckpt_cuda_pool *pool)
{
	LOCK_SCOPE(&pool->lock);
	return pool->free_count;
}

// Work that is in the stream when an array is given is done before it is copied, on each of several streams of two devices.
START_TEST(arrays_are_saved_as_their_stream_leaves_them)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(40, 5000);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "safetensors");
	struct ckpt_device *d = ckpt_device_host_as_device(host);
	struct ckpt *ckpt = store();
	struct kernel kernels[4];
	void *streams[4];
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;

	ck_assert_int_eq(ckpt_cuda_save_step(pool, ckpt, "100", 0, &plan, why, &save), 0);
	hold_disk();
	for (size_t k = 0; k < 4; k++) {
		kernels[k] = (struct kernel){.gate = CUDA_GATE_INIT, .arrays = &a, .first = 10 * k, .end = 10 * k + 10};
		ck_assert_int_eq(d->ops->stream_new(d, (int)k % 2, &streams[k]), 0);
		ck_assert_int_eq(ckpt_device_host_launch(host, streams[k], run_kernel, &kernels[k]), 0);
		for (size_t i = kernels[k].first; i < kernels[k].end; i++) {
			ckpt_device_host_place(host, a.at[i], a.bytes[i], (int)k % 2);
			ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[i].name, a.at[i], a.bytes[i], streams[k]),
					 0);
		}
	}
	// Nothing is written, so that the pool is empty as soon as it can be, and stays so.
	while (buffers_left(pool))
		sched_yield();
	for (size_t k = 4; k-- > 0;)
		cuda_gate_open(&kernels[k].gate);
	cuda_gate_open(&disk);
	ck_assert_int_eq(ckpt_cuda_captured(save), 0);
	cuda_fill_all(&a, 2);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0);
	ckpt_cuda_save_free(save);
	ck_assert(cuda_step_has(ckpt, "100", &a, 1));
	for (size_t k = 0; k < 4; k++)
		d->ops->stream_free(d, streams[k]);
	ckpt_close(ckpt);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

// --- Many -------------------------------------------------------------------------------------------------------------------

START_TEST(ten_thousand_small_arrays_are_a_few_writes)
{
	struct ckpt_cuda_pool *pool = cuda_pool(UINT64_C(4) << 20, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(10000, 50);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "raw");
	char saved[PATH_MAX], written[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;

	ckpt_temp_dir(saved);
	ckpt_temp_dir(written);
	cuda_gate_open(&disk);
	hold_disk();
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), 0);
	ck_assert_int_eq(cuda_give_all(save, &a, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_captured(save), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0);
	ckpt_cuda_save_free(save);
	ck_assert_uint_le(writes, 8);
	ck_assert_uint_ge(writes, 3);
	cuda_write_plainly(&a, "raw", 0, written);
	ck_assert(cuda_same_folders(saved, written));
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

START_TEST(a_folder_gets_the_marker_that_commits_it)
{
	static const char metadata[] = "{\"metrics\":{\"loss\":1.5}}";
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(20, 500);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "dcp");
	char saved[PATH_MAX], why[CKPT_CUDA_WHY_MAX], said[sizeof(metadata)] = "";
	struct ckpt_cuda_save *save;
	int fd, marker, given;

	ckpt_temp_dir(saved);
	fd = open(saved, O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), 0);
	ck_assert_int_eq(cuda_give_all(save, &a, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_captured(save), 0);
	ck_assert_int_ne(faccessat(fd, ".finalize", F_OK, 0), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, metadata), 0);
	marker = openat(fd, ".finalize", O_RDONLY);
	ck_assert_int_eq(read(marker, said, sizeof(said)), sizeof(metadata) - 1);
	ck_assert_str_eq(said, metadata);
	// The same folder again: no file of it is replaced.
	ckpt_cuda_save_free(save);
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), 0);
	given = cuda_give_all(save, &a, NULL); // its writers may have met the file by then
	ck_assert(!given || given == -EEXIST);
	ck_assert_int_eq(ckpt_cuda_commit(save, metadata), -EEXIST);
	ck_assert_str_eq(ckpt_cuda_save_why(save), "__0_0.distcp: it cannot be made: File exists");
	ckpt_cuda_save_free(save);
	close(marker);
	close(fd);
	cuda_arrays_free(&a);
	ckpt_cuda_pool_free(pool);
}
END_TEST

static int fails_with; // 0: it does not

static ssize_t refuse_pwrite(int fd __attribute__((unused)), const void *bytes __attribute__((unused)),
			     size_t len __attribute__((unused)), off_t offset __attribute__((unused)))
{
	return fails_with;
}

static int refuse_close(int fd)
{
	close(fd);
	return fails_with;
}

static int refuse_sync(int fd __attribute__((unused)))
{
	return fails_with;
}

// A marker that is cut off would complete the folder for its readers.
START_TEST(a_marker_that_cannot_be_written_is_not_left)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(3, 500);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "raw");
	char saved[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	const struct ckpt_sys whole = ckpt_sys;
	struct ckpt_cuda_save *save;
	int fd;

	ckpt_temp_dir(saved);
	fd = open(saved, O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), 0);
	ck_assert_int_eq(cuda_give_all(save, &a, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_captured(save), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0); // all is written: what fails is of the marker
	fails_with = -ENOSPC;
	for (unsigned i = 0; i < 3; i++) {
		if (i == 0)
			ckpt_sys.pwrite = refuse_pwrite;
		else if (i == 1)
			ckpt_sys.fdatasync = refuse_sync;
		else
			ckpt_sys.close = refuse_close;
		ck_assert_int_eq(ckpt_cuda_commit(save, "{}"), -ENOSPC);
		ck_assert_str_eq(ckpt_cuda_save_why(save), "the commit failed: No space left on device");
		ck_assert_int_ne(faccessat(fd, ".finalize", F_OK, 0), 0);
		ckpt_sys = whole;
	}
	ck_assert_int_eq(ckpt_cuda_commit(save, "{}"), 0);
	ck_assert_str_eq(ckpt_cuda_save_why(save), "");
	ck_assert_int_eq(faccessat(fd, ".finalize", F_OK, 0), 0);
	ckpt_cuda_save_free(save);
	close(fd);
	cuda_arrays_free(&a);
	ckpt_cuda_pool_free(pool);
}
END_TEST

// The files that were synced, by inode.
static struct ckpt_lock synced_lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF);
static ino_t synced[1000];
static size_t synced_count;

static int note_sync(int fd)
{
	struct stat st;
	LOCK_SCOPE(&synced_lock);

	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_lt(synced_count, ARRAY_LEN(synced));
	synced[synced_count++] = st.st_ino;
	return 0;
}

static int look_synced(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)type;
	(void)at;
	for (size_t i = 0; i < synced_count; i++)
		if (synced[i] == st->st_ino)
			return 0;
	ck_abort_msg("%s was not synced", path);
}

START_TEST(files_and_their_folders_are_on_disk_when_the_commit_returns)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(20, 500);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, formats[_i]);
	char saved[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;

	ckpt_temp_dir(saved);
	ckpt_sys.fsync = ckpt_sys.fdatasync = note_sync;
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), 0);
	ck_assert_int_eq(cuda_give_all(save, &a, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, "{}"), 0);
	ckpt_cuda_save_free(save);
	ck_assert_int_eq(nftw(saved, look_synced, 16, FTW_PHYS), 0);
	cuda_arrays_free(&a);
	ckpt_cuda_pool_free(pool);
}
END_TEST

struct saver {
	struct ckpt_cuda_pool *pool;
	struct cuda_arrays *arrays;
	char saved[PATH_MAX];
};

static void *save_arrays(void *arg)
{
	struct saver *s = arg;
	const struct ckpt_cuda_plan plan = cuda_plan(s->arrays, "safetensors");
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;

	ck_assert_int_eq(ckpt_cuda_save_folder(s->pool, s->saved, &plan, why, &save), 0);
	ck_assert_int_eq(cuda_give_all(save, s->arrays, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_captured(save), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0);
	ckpt_cuda_save_free(save);
	return NULL;
}

START_TEST(two_saves_share_a_pool)
{
	struct saver savers[2];
	struct cuda_arrays a = cuda_arrays_new(60, 9000), b = cuda_arrays_new(77, 7000);
	struct cuda_arrays *arrays[] = {&a, &b};
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	char written[PATH_MAX];
	pthread_t threads[2];

	for (int k = 0; k < 2; k++) {
		savers[k] = (struct saver){.pool = pool, .arrays = arrays[k]};
		ckpt_temp_dir(savers[k].saved);
		ck_assert_int_eq(pthread_create(&threads[k], NULL, save_arrays, &savers[k]), 0);
	}
	for (int k = 0; k < 2; k++) {
		pthread_join(threads[k], NULL);
		ckpt_temp_dir(written);
		cuda_write_plainly(arrays[k], "safetensors", 0, written);
		ck_assert(cuda_same_folders(savers[k].saved, written));
	}
	ck_assert_uint_le(ckpt_device_host_pinned(host), SMALL_POOL);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
	cuda_arrays_free(&b);
}
END_TEST

// --- Refusals ---------------------------------------------------------------------------------------------------------------

START_TEST(a_save_that_is_given_up_leaves_no_step_and_no_buffer)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(60, 9000);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "raw");
	struct ckpt *ckpt = store();
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;

	for (size_t given = 0; given <= a.count; given += 20) {
		ck_assert_int_eq(ckpt_cuda_save_step(pool, ckpt, "100", 0, &plan, why, &save), 0);
		for (size_t i = 0; i < given; i++)
			ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[i].name, a.at[i], a.bytes[i], NULL), 0);
		ckpt_cuda_save_free(save);
		ck_assert(!cuda_has_step(ckpt, "100"));
		ck_assert_uint_eq(pool->free_count, pool->buffer_count);
	}
	ckpt_close(ckpt);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

// Each process of a machine with many GPUs uses one: a stream or an event of another one takes memory there.
START_TEST(plain_memory_needs_no_device_but_that_of_the_pool)
{
	struct cuda_arrays a = cuda_arrays_new(20, 500);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "raw");
	char saved[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool;
	struct ckpt_cuda_save *save;

	ckpt_temp_dir(saved);
	ck_assert_int_eq(ckpt_device_host_new(0, &host), 0);
	ckpt_device_host_set_current(host, 3);
	ck_assert_int_eq(ckpt_pool_new(ckpt_device_host_as_device(host), SMALL_POOL, 0, why, &pool), 0);
	ckpt_device_host_place(host, a.at[0], a.bytes[0], 5);
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), 0);
	ck_assert_int_eq(cuda_give_all(save, &a, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0);
	ckpt_cuda_save_free(save);
	ck_assert_uint_eq(ckpt_device_host_touched(host), 1u << 3 | 1u << 5);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

START_TEST(arrays_that_are_not_of_the_plan_are_refused)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(20, 500);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "raw");
	char saved[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;

	ckpt_temp_dir(saved);
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), 0);
	ck_assert_int_eq(ckpt_cuda_save_array(save, "none", a.at[0], a.bytes[0], NULL), -ENOENT);
	ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[0].name, a.at[0], a.bytes[0] + 1, NULL), -EINVAL);
	ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[0].name, NULL, a.bytes[0], NULL), -EINVAL);
	ckpt_device_host_capture(host, true);
	ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[0].name, a.at[0], a.bytes[0], NULL), -EBUSY);
	ckpt_device_host_capture(host, false);
	ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[0].name, a.at[0], a.bytes[0], NULL), 0);
	ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[0].name, a.at[0], a.bytes[0], NULL), -EALREADY);
	ck_assert_str_eq(ckpt_cuda_save_why(save), "");
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), -ENODATA);
	ck_assert_ptr_nonnull(strstr(ckpt_cuda_save_why(save), a.arrays[1].name));
	ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[1].name, a.at[1], a.bytes[1], NULL), -ENODATA);
	ckpt_cuda_save_free(save);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

START_TEST(plans_that_no_file_can_have_are_refused)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(3, 500);
	struct ckpt_cuda_plan plan = cuda_plan(&a, "tar");
	char saved[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;
	const char *second;

	ckpt_temp_dir(saved);
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), -ENOENT);
	ck_assert_str_eq(why, "no format is called tar");
	plan.format = "raw";
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, "/nowhere/at/all", &plan, why, &save), -ENOENT);
	second = a.arrays[1].name;
	a.arrays[1].name = a.arrays[0].name;
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), -EINVAL);
	a.arrays[1].name = "other";
	a.arrays[1].dtype = "float33";
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), -ENOTSUP);
	ck_assert_str_eq(why, "other: no dtype is called float33");
	a.arrays[1].name = second;
	ckpt_cuda_pool_free(pool);
	ck_assert_int_eq(ckpt_cuda_pool_new(100, "host", 0, why, &pool), -EINVAL);
	ck_assert_int_eq(ckpt_cuda_pool_new(1 << 20, "host:fast", 0, why, &pool), -EINVAL);
	ck_assert_int_eq(ckpt_cuda_pool_new(1 << 20, "tpu", 0, why, &pool), -EINVAL);
	ck_assert_int_eq(ckpt_cuda_pool_new(1 << 20, "host", CKPT_CUDA_BUFFERED | CKPT_CUDA_DIRECT, why, &pool),
			 -EINVAL);
	ck_assert_str_ne(why, "");
	ck_assert_int_eq(ckpt_cuda_pool_new(1 << 20, "host:12GiB", 0, why, &pool), 0);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

static bool is_said(const char *why)
{
	return strstr(why, "this process is a fork");
}

START_TEST(a_forked_process_is_refused)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(3, 500);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "raw");
	char saved[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save, *other;
	struct ckpt_cuda_load *load;
	int status;
	pid_t child;

	ckpt_temp_dir(saved);
	ck_assert_int_eq(ckpt_cuda_save_folder(pool, saved, &plan, why, &save), 0);
	child = fork();
	if (!child) {
		bool refused = ckpt_cuda_save_folder(pool, saved, &plan, why, &other) == -ECHILD && is_said(why) &&
			       ckpt_cuda_load_step(pool, NULL, "1", why, &load) == -ECHILD && is_said(why) &&
			       ckpt_cuda_captured(save) == -ECHILD && is_said(ckpt_cuda_save_why(save)) &&
			       ckpt_cuda_save_array(save, "x", a.at[0], 1, NULL) == -ECHILD;

		// The parent's: nothing of them is freed here, with or without a call to the device.
		ckpt_cuda_save_free(save);
		ckpt_cuda_pool_free(pool);
		_exit(refused && pool->memory && ckpt_cuda_captured(save) == -ECHILD ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(cuda_give_all(save, &a, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0);
	ckpt_cuda_save_free(save);
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

// --- Errors at each call ----------------------------------------------------------------------------------------------------

// The first error of a save into the folder; why is that of the save.
static int save_once(struct ckpt_cuda_pool *pool, const struct cuda_arrays *a, const char *format, const char *dir,
		     char why[CKPT_CUDA_WHY_MAX])
{
	const struct ckpt_cuda_plan plan = cuda_plan(a, format);
	struct ckpt_cuda_save *save;
	int rc = ckpt_cuda_save_folder(pool, dir, &plan, why, &save), given, captured;

	if (rc)
		return rc;
	given = cuda_give_all(save, a, NULL);
	captured = ckpt_cuda_captured(save);
	if (given)
		ck_assert_int_eq(captured, given);
	rc = ckpt_cuda_commit(save, NULL);
	if (captured)
		ck_assert_int_eq(rc, captured);
	snprintf(why, CKPT_CUDA_WHY_MAX, "%s", ckpt_cuda_save_why(save));
	ckpt_cuda_save_free(save);
	return rc;
}

START_TEST(each_call_of_the_device_may_fail)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(8, 9000);
	char saved[PATH_MAX], written[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	uint64_t n = 1;
	int rc;

	ckpt_temp_dir(written);
	cuda_write_plainly(&a, "dcp", 0, written);
	for (;; n++) {
		ckpt_temp_dir(saved);
		ckpt_device_host_fail(host, n, _i);
		rc = save_once(pool, &a, "dcp", saved, why);
		if (!rc)
			break;
		ck_assert_int_eq(rc, -EIO);
		ck_assert_ptr_nonnull(strstr(why, "failed on demand"));
		ck_assert_uint_eq(pool->free_count, pool->buffer_count);
	}
	ck_assert_uint_gt(n, 30);
	ck_assert(cuda_same_folders(saved, written));
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

START_TEST(each_call_of_the_disk_may_fail)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct cuda_arrays a = cuda_arrays_new(8, 9000);
	char saved[PATH_MAX], written[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	uint64_t n = 1;
	int rc, error;

	ckpt_temp_dir(written);
	cuda_write_plainly(&a, "dcp", 0, written);
	for (;; n++) {
		struct ckpt_sysfault fault = {.at = n, .error = error = ckpt_sysfault_error(_i, n)};

		ckpt_temp_dir(saved);
		ckpt_sysfault_begin(&fault);
		rc = save_once(pool, &a, "dcp", saved, why);
		ckpt_sysfault_end(&fault);
		if (fault.count < n)
			break;
		ck_assert_int_eq(rc, error);
		ck_assert_str_ne(why, "");
		ck_assert_uint_eq(pool->free_count, pool->buffer_count);
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_gt(n, 20);
	ck_assert(cuda_same_folders(saved, written));
	ckpt_cuda_pool_free(pool);
	cuda_arrays_free(&a);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_save");
	TCase *t = tcase_create("cuda_save");

	tcase_add_loop_test(t, files_are_those_that_the_writer_makes, 0, ARRAY_LEN(formats) * ARRAY_LEN(ways));
	tcase_add_loop_test(t, a_step_is_listed_when_it_is_committed, 0, 4);
	tcase_add_test(t, arrays_that_change_behind_captured_are_saved_as_they_were);
	tcase_add_test(t, arrays_are_saved_as_their_stream_leaves_them);
	tcase_add_test(t, ten_thousand_small_arrays_are_a_few_writes);
	tcase_add_loop_test(t, files_and_their_folders_are_on_disk_when_the_commit_returns, 0, 7);
	tcase_add_test(t, a_folder_gets_the_marker_that_commits_it);
	tcase_add_test(t, a_marker_that_cannot_be_written_is_not_left);
	tcase_add_test(t, two_saves_share_a_pool);
	tcase_add_test(t, a_save_that_is_given_up_leaves_no_step_and_no_buffer);
	tcase_add_test(t, plain_memory_needs_no_device_but_that_of_the_pool);
	tcase_add_test(t, arrays_that_are_not_of_the_plan_are_refused);
	tcase_add_test(t, plans_that_no_file_can_have_are_refused);
	tcase_add_test(t, a_forked_process_is_refused);
	tcase_add_loop_test(t, each_call_of_the_device_may_fail, 0, 2);
	tcase_add_loop_test(t, each_call_of_the_disk_may_fail, 0, ckpt_sysfault_kinds());
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
