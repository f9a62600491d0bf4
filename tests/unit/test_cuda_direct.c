// Raw files, read past the page cache into memory of the host device: which parts, how they are aligned, and what happens where the disk refuses.
#include "tests/support/cuda.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/store/open.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"
#include "tools/cuda/load_raw.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SMALL_POOL (UINT64_C(64) << 10) // buffers of 16 KiB
#define LARGE_POOL (UINT64_C(32) << 20) // buffers of 8 MiB
#define STEP "1000"

static struct ckpt_device_host *host;
static char directory[PATH_MAX];

// --- Reads, counted ---------------------------------------------------------------------------------------------------------

static atomic_uint direct_reads, unaligned_reads;
static int direct_error; // of each read with O_DIRECT; 0: it is made
static bool cached;      // what is said of each part

static ssize_t count_pread(int fd, void *buf, size_t len, off_t offset)
{
	ssize_t n;

	if (fcntl(fd, F_GETFL) & O_DIRECT) {
		atomic_fetch_add(&direct_reads, 1);
		if ((uintptr_t)buf % CKPT_POOL_ALIGN || len % CKPT_POOL_ALIGN || offset % CKPT_POOL_ALIGN)
			atomic_fetch_add(&unaligned_reads, 1);
		if (direct_error)
			return direct_error;
	}
	n = pread(fd, buf, len, offset);
	return n < 0 ? -errno : n;
}

static bool say_cached(int fd __attribute__((unused)), uint64_t offset __attribute__((unused)),
		       uint64_t bytes __attribute__((unused)))
{
	return cached;
}

static void expect_direct(bool expected)
{
	ck_assert_uint_eq(unaligned_reads, 0);
	ck_assert_int_eq(direct_reads > 0, expected && cuda_disk_is_direct(directory));
	direct_reads = 0;
}

// --- A step -----------------------------------------------------------------------------------------------------------------

static struct ckpt *saved(const struct cuda_arrays *arrays, const char *format)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	const struct ckpt_cuda_plan plan = cuda_plan(arrays, format);
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;
	struct ckpt *ckpt;

	ckpt_temp_dir(directory);
	ck_assert_int_eq(ckpt_open(directory, CKPT_CREATE, &ckpt), 0);
	ck_assert_int_eq(ckpt_cuda_save_step(pool, ckpt, STEP, 0, &plan, why, &save), 0);
	ck_assert_int_eq(cuda_give_all(save, arrays, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0);
	ckpt_cuda_save_free(save);
	ckpt_cuda_pool_free(pool);
	return ckpt;
}

static void cool(void)
{
	struct ckpt_tier_done done;
	struct ckpt_store *store;
	struct ckpt_step *step;

	ck_ok(ckpt_store_open(directory, CKPT_STORE_WRITE, NULL, &store));
	step = ckpt_step_find(store, "", STEP);
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(step, &(struct ckpt_tier_how){.pack_bytes = 1 << 20}, &done));
	ck_assert(step->version->is.packed);
	ckpt_step_unref(step);
	ckpt_store_close(store);
}

static void load_all(struct ckpt_cuda_pool *pool, struct ckpt *ckpt, struct cuda_arrays *t)
{
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_load *load;

	cuda_fill_all(t, 5);
	ck_assert_int_eq(ckpt_cuda_load_step(pool, ckpt, STEP, why, &load), 0);
	for (size_t i = 0; i < t->count; i++)
		ck_assert_int_eq(ckpt_cuda_load_array(load, t->arrays[i].name, t->at[i], t->bytes[i], NULL), 0);
	ck_assert_int_eq(ckpt_cuda_loaded(load), 0);
	ck_assert_str_eq(ckpt_cuda_load_why(load), "");
	ckpt_cuda_load_free(load);
	ck_assert_uint_eq(pool->free_count, pool->buffer_count);
	for (size_t i = 0; i < t->count; i++)
		for (uint64_t k = 0; k < t->bytes[i]; k++)
			if (t->at[i][k] != cuda_byte(i, k, 0))
				ck_abort_msg("array %zu differs at %llu", i, (unsigned long long)k);
}

// Two arrays: one takes several boxes of a large pool, the other is smaller than what is read directly.
static struct cuda_arrays large_arrays(void)
{
	struct cuda_arrays t = cuda_arrays_new(2, 1);

	for (size_t i = 0; i < t.count; i++) {
		t.arrays[i].dtype = "uint8";
		t.arrays[i].ndim = 1;
		*(uint64_t *)t.arrays[i].shape = t.bytes[i] = i ? 5000001 : 20000003;
		free(t.at[i]);
		t.at[i] = malloc(t.bytes[i]);
	}
	cuda_fill_all(&t, 0);
	return t;
}

// --- Tests ------------------------------------------------------------------------------------------------------------------

// Headers and neighbours put arrays at odd offsets, and their ends into the middle of a page.
START_TEST(parts_at_any_offset_are_read_past_the_page_cache)
{
	static const char *const formats[] = {"raw", "safetensors"};
	struct cuda_arrays t = cuda_arrays_new(50, 9000);
	struct ckpt *ckpt = saved(&t, formats[_i]);
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, CKPT_CUDA_DIRECT, &host);

	ckpt_sys.pread = count_pread;
	load_all(pool, ckpt, &t);
	expect_direct(true);
	ck_assert_uint_le(ckpt_device_host_pinned(host), SMALL_POOL);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&t);
}
END_TEST

START_TEST(large_parts_that_are_not_cached_are_read_past_the_page_cache)
{
	static const struct {
		unsigned flags;
		uint64_t pool;
		bool cached, direct;
	} rows[] = {
		{0, LARGE_POOL, false, true},
		{0, LARGE_POOL, true, false},
		{0, SMALL_POOL, false, false}, // no part is large
		{CKPT_CUDA_BUFFERED, LARGE_POOL, false, false},
		{CKPT_CUDA_DIRECT, LARGE_POOL, true, true},
	};
	struct cuda_arrays t = large_arrays();
	struct ckpt *ckpt = saved(&t, "safetensors");
	struct ckpt_cuda_pool *pool = cuda_pool(rows[_i].pool, 0, rows[_i].flags, &host);

	ckpt_load_raw_is_cached = say_cached;
	cached = rows[_i].cached;
	ckpt_sys.pread = count_pread;
	load_all(pool, ckpt, &t);
	expect_direct(rows[_i].direct);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&t);
}
END_TEST

// cachestat(2), where the kernel has it: of a file in the folder of the build, since the page cache of a tmpfs drops nothing.
START_TEST(the_page_cache_is_asked)
{
	CLEANUP_FREE void *bytes = ckpt_calloc(1, SMALL_POOL);
	CLEANUP_FD int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	uint64_t range[2] = {0}, pages[5];
	struct statfs at;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, bytes, SMALL_POOL, 0), (ssize_t)SMALL_POOL);
	ck_assert_int_eq(fsync(fd), 0);
	ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	ck_assert_int_eq(fstatfs(fd, &at), 0);
	if (at.f_type != TMPFS_MAGIC && !syscall(451, fd, range, pages, 0))
		ck_assert(!ckpt_load_raw_is_cached(fd, 0, SMALL_POOL));
	ck_assert_int_eq(pread(fd, bytes, SMALL_POOL, 0), (ssize_t)SMALL_POOL);
	ck_assert(ckpt_load_raw_is_cached(fd, 0, SMALL_POOL));
	ck_assert(ckpt_load_raw_is_cached(-1, 0, SMALL_POOL));
}
END_TEST

START_TEST(a_disk_that_refuses_is_read_through_the_page_cache)
{
	static const int errors[] = {-EINVAL, -EIO};
	struct cuda_arrays t = cuda_arrays_new(50, 9000);
	struct ckpt *ckpt = saved(&t, "safetensors");
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, CKPT_CUDA_DIRECT, &host);

	ckpt_sys.pread = count_pread;
	direct_error = errors[_i];
	load_all(pool, ckpt, &t);
	expect_direct(true);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&t);
}
END_TEST

START_TEST(an_open_raw_file_stays_when_the_step_is_packed)
{
	struct cuda_arrays t = cuda_arrays_new(20, 3000);
	struct ckpt *ckpt = saved(&t, "safetensors");
	uint8_t *again = malloc(t.bytes[0]);
	struct ckpt_array_set *set;
	uint64_t offset;
	size_t array;
	int fd, other;

	ck_assert_int_eq(ckpt_array_set_open(ckpt, STEP, &set), 0);
	ck_assert_int_eq(ckpt_array_set_open_raw(set, t.count, &fd, &offset), -EINVAL);
	ck_assert_int_eq(ckpt_array_set_find(set, t.arrays[0].name, &array), 0);
	ck_assert_int_eq(ckpt_array_set_open_raw(set, array, &fd, &offset), 0);
	ckpt_array_set_free(set);
	cool();
	ck_assert_int_eq(pread(fd, again, t.bytes[0], (off_t)offset), (ssize_t)t.bytes[0]);
	ck_assert_mem_eq(again, t.at[0], t.bytes[0]);
	ck_assert_int_eq(ckpt_array_set_open(ckpt, STEP, &set), 0);
	ck_assert_int_eq(ckpt_array_set_open_raw(set, array, &other, &offset), -ENOENT);
	ckpt_array_set_free(set);
	close(fd);
	ckpt_close(ckpt);
	free(again);
	cuda_arrays_free(&t);
}
END_TEST

// A torch.save() of its own each, whose place in the zip is known when it is read.
START_TEST(encoded_arrays_have_no_raw_file)
{
	struct cuda_arrays t = cuda_arrays_new(4, 3000);
	struct ckpt *ckpt = saved(&t, "dcp");
	struct ckpt_array_set *set;
	uint64_t offset;
	size_t array;
	int fd;

	ck_assert_int_eq(ckpt_array_set_open(ckpt, STEP, &set), 0);
	ck_assert_int_eq(ckpt_array_set_find(set, t.arrays[0].name, &array), 0);
	ck_assert_int_eq(ckpt_array_set_open_raw(set, array, &fd, &offset), -ENOENT);
	ckpt_array_set_free(set);
	ckpt_close(ckpt);
	cuda_arrays_free(&t);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_direct");
	TCase *t = tcase_create("cuda_direct");

	tcase_add_loop_test(t, parts_at_any_offset_are_read_past_the_page_cache, 0, 2);
	tcase_add_loop_test(t, large_parts_that_are_not_cached_are_read_past_the_page_cache, 0, 5);
	tcase_add_test(t, the_page_cache_is_asked);
	tcase_add_loop_test(t, a_disk_that_refuses_is_read_through_the_page_cache, 0, 2);
	tcase_add_test(t, an_open_raw_file_stays_when_the_step_is_packed);
	tcase_add_test(t, encoded_arrays_have_no_raw_file);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
