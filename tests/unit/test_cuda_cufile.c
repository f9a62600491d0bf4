// Loads by cuFile, with a library that reads into the memory of the host device: which parts go this way, what goes the other way after a refusal.
#include "tests/support/cuda.h"

#include "core/base/sys.h"
#include "tools/cuda/cufile.h"

#include <dlfcn.h>

#define SMALL_POOL (UINT64_C(64) << 10) // buffers of 16 KiB
#define STEP "1000"
#define ARRAYS 20

struct fake_cufile { // of cufile/fake.c
	atomic_uint calls, fail_at;
	int open_error;
	size_t most;
	atomic_uint reads, files;
};

static struct fake_cufile *fake;
static struct ckpt_device_host *host;
static char driver[PATH_MAX], directory[PATH_MAX];

static void begin(void)
{
	void *library = dlopen(CKPT_FAKE_CUFILE, RTLD_NOW | RTLD_LOCAL);
	FILE *file;

	ck_assert_msg(library != NULL, "%s", dlerror());
	fake = dlsym(library, "fake_cufile");
	ck_assert_ptr_nonnull(fake);
	ckpt_temp_dir(driver);
	strcat(driver, "/version");
	file = fopen(driver, "w");
	ck_assert_int_gt(fputs("version: 2.17\n", file), 0);
	ck_assert_int_eq(fclose(file), 0);
	ckpt_cufile_library = CKPT_FAKE_CUFILE;
	ckpt_cufile_driver = driver;
}

// A pool on a host device that cuFile can write to. The arrays' memory is that of device 1.
static struct ckpt_cuda_pool *gpu_pool(unsigned flags, const struct cuda_arrays *t)
{
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool;

	ck_assert_int_eq(ckpt_device_host_new(0, &host), 0);
	ckpt_device_host_as_device(host)->takes_cufile = true;
	ck_assert_int_eq(ckpt_pool_new(ckpt_device_host_as_device(host), SMALL_POOL, flags, why, &pool), 0);
	for (size_t i = 0; t && i < t->count; i++)
		ckpt_device_host_place(host, t->at[i], t->bytes[i], 1);
	return pool;
}

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

static int load_all(struct ckpt_cuda_pool *pool, struct ckpt *ckpt, const struct cuda_arrays *t, void *stream,
		    char why[CKPT_CUDA_WHY_MAX])
{
	struct ckpt_cuda_load *load;
	int rc = ckpt_cuda_load_step(pool, ckpt, STEP, why, &load);

	ck_assert_int_eq(rc, 0);
	for (size_t i = 0; i < t->count && !rc; i++)
		rc = ckpt_cuda_load_array(load, t->arrays[i].name, t->at[i], t->bytes[i], stream);
	rc = ckpt_cuda_loaded(load);
	snprintf(why, CKPT_CUDA_WHY_MAX, "%s", ckpt_cuda_load_why(load));
	ckpt_cuda_load_free(load);
	ck_assert_uint_eq(pool->free_count, pool->buffer_count);
	ck_assert_uint_eq(fake->files, 0);
	return rc;
}

static bool has_bytes(const struct cuda_arrays *t, unsigned seed)
{
	for (size_t i = 0; i < t->count; i++)
		for (uint64_t k = 0; k < t->bytes[i]; k++)
			if (t->at[i][k] != cuda_byte(i, k, seed))
				return false;
	return true;
}

// --- Which parts ------------------------------------------------------------------------------------------------------------

START_TEST(raw_files_go_to_device_memory_without_a_buffer)
{
	static const struct {
		const char *format;
		unsigned flags;
		bool placed;   // the memory is that of a device
		bool takes_it; // cuFile is used
	} rows[] = {
		{"safetensors", CKPT_CUDA_DIRECT, true, true},
		{"raw", CKPT_CUDA_DIRECT, true, true},
		{"dcp", CKPT_CUDA_DIRECT, true, false},  // encoded
		{"raw", CKPT_CUDA_DIRECT, false, false}, // plain memory
		{"raw", 0, true, false},                 // small parts
		{"raw", CKPT_CUDA_BUFFERED, true, false},
	};
	struct cuda_arrays t = cuda_arrays_new(ARRAYS, 9000);
	struct ckpt *ckpt = saved(&t, rows[_i].format);
	struct ckpt_cuda_pool *pool;
	char why[CKPT_CUDA_WHY_MAX];

	begin();
	fake->most = 5000; // a read may give less than it was asked for
	pool = gpu_pool(rows[_i].flags, rows[_i].placed ? &t : NULL);
	cuda_fill_all(&t, 5);
	ck_assert_int_eq(load_all(pool, ckpt, &t, NULL, why), 0);
	ck_assert(has_bytes(&t, 0));
	ck_assert_int_eq(fake->reads > 0, rows[_i].takes_it && cuda_disk_is_direct(directory));
	if (fake->reads)
		ck_assert_uint_eq(pool->free_min, pool->buffer_count);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&t);
}
END_TEST

struct kernel {
	struct cuda_gate gate;
	const struct cuda_arrays *t;
	bool had_old;
};

static void look(void *arg)
{
	struct kernel *k = arg;

	cuda_gate_pass(&k->gate);
	k->had_old = has_bytes(k->t, 5) && !fake->reads;
}

// Four readers have registered a file, and wait for the stream.
START_TEST(memory_is_written_behind_the_streams_work)
{
	struct cuda_arrays t = cuda_arrays_new(ARRAYS, 3000);
	struct ckpt *ckpt = saved(&t, "raw");
	struct kernel k = {.gate = CUDA_GATE_INIT, .t = &t};
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool;
	struct ckpt_cuda_load *load;
	struct ckpt_device *d;
	void *stream;

	begin();
	if (!cuda_disk_is_direct(directory)) // nothing is registered there
		return;
	pool = gpu_pool(CKPT_CUDA_DIRECT, &t);
	d = ckpt_device_host_as_device(host);
	cuda_fill_all(&t, 5);
	ck_assert_int_eq(d->ops->stream_new(d, 1, &stream), 0);
	ck_assert_int_eq(ckpt_device_host_launch(host, stream, look, &k), 0);
	ck_assert_int_eq(ckpt_cuda_load_step(pool, ckpt, STEP, why, &load), 0);
	for (size_t i = 0; i < t.count; i++)
		ck_assert_int_eq(ckpt_cuda_load_array(load, t.arrays[i].name, t.at[i], t.bytes[i], stream), 0);
	while (fake->calls < 4)
		sched_yield();
	cuda_gate_open(&k.gate);
	ck_assert_int_eq(ckpt_cuda_loaded(load), 0);
	ck_assert(has_bytes(&t, 0));
	ck_assert_uint_gt(fake->reads, 0);
	ckpt_cuda_load_free(load);
	d->ops->stream_free(d, stream);
	ck_assert(k.had_old);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&t);
}
END_TEST

// --- Refusals ---------------------------------------------------------------------------------------------------------------

// Other readers may have a read under way: then each of them has one more.
START_TEST(after_a_refusal_loads_go_through_buffers)
{
	struct cuda_arrays t = cuda_arrays_new(ARRAYS, 3000);
	struct ckpt *ckpt = saved(&t, "safetensors");
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool;
	unsigned n = 1;

	begin();
	pool = gpu_pool(CKPT_CUDA_DIRECT, &t);
	for (;; n++) {
		fake->calls = 0;
		fake->fail_at = n;
		cuda_fill_all(&t, 5);
		ck_assert_int_eq(load_all(pool, ckpt, &t, NULL, why), 0);
		ck_assert(has_bytes(&t, 0));
		if (fake->calls < n)
			break;
		ck_assert_uint_le(fake->calls, n + 2 * 3);
	}
	ck_assert(n > 10 || !cuda_disk_is_direct(directory));
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&t);
}
END_TEST

START_TEST(each_call_of_the_device_may_fail)
{
	struct cuda_arrays t = cuda_arrays_new(8, 9000);
	struct ckpt *ckpt = saved(&t, "raw");
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool;
	uint64_t n = 1;

	begin();
	pool = gpu_pool(CKPT_CUDA_DIRECT, &t);
	for (;; n++) {
		ckpt_device_host_fail(host, n, false);
		if (!load_all(pool, ckpt, &t, NULL, why))
			break;
		ck_assert_ptr_nonnull(strstr(why, "failed on demand"));
	}
	ck_assert_uint_gt(n, 20);
	ck_assert(has_bytes(&t, 0));
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&t);
}
END_TEST

static void expect_told(int rc, const char *text)
{
	char told[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool = gpu_pool(0, NULL);

	ck_assert_int_eq(ckpt_cuda_describe_gpudirect(told), rc);
	ck_assert_str_eq(told, text);
	ck_assert_int_eq(pool->cufile != NULL, !rc);
	ckpt_cuda_pool_free(pool);
}

START_TEST(the_reason_why_it_is_not_used_is_told)
{
#define NOT_USED "not used, loads go through pinned memory: "
	begin();
	expect_told(0, "driver nvidia-fs, version: 2.17");
	fake->open_error = 5026; // the program has opened it
	expect_told(0, "driver nvidia-fs, version: 2.17");
	fake->open_error = 5001;
	expect_told(-ENOENT, NOT_USED "cuFileDriverOpen failed with 5001, CUDA 0");
	fake->open_error = 0;
	ckpt_cufile_library = "libckptfs-none.so.0";
	expect_told(-ENOENT, NOT_USED "libckptfs-none.so.0: cannot open shared object file: No such file or directory");
	ckpt_cufile_library = "libc.so.6";
	expect_told(-ENOENT, NOT_USED "libc.so.6 has no cuFileDriverOpen");
	ckpt_cufile_library = CKPT_FAKE_CUFILE;
	ckpt_cufile_driver = "/proc/driver/ckptfs-none";
	expect_told(-ENOENT, NOT_USED "the driver nvidia-fs is not loaded");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_cufile");
	TCase *t = tcase_create("cuda_cufile");

	tcase_add_loop_test(t, raw_files_go_to_device_memory_without_a_buffer, 0, 6);
	tcase_add_test(t, memory_is_written_behind_the_streams_work);
	tcase_add_test(t, after_a_refusal_loads_go_through_buffers);
	tcase_add_test(t, each_call_of_the_device_may_fail);
	tcase_add_test(t, the_reason_why_it_is_not_used_is_told);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
