// The index: what is put is found, by threads and processes, in a map that grows. What damage does is in
// test_index_damage.c.
#include "tests/support/formats.h"
#include "tests/support/hooks.h"
#include "tests/support/rows.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/index/index_check.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SMALL_MAP (UINT64_C(1) << 20)

enum { ROWS = 40, PAGE = 4096, MANY = 1000 };

static char dir[PATH_MAX];
static struct ckpt_index *ix;
static bool fresh;

static void setup(void)
{
	ckpt_rows_dir(dir);
}

static void close_index(void)
{
	ckpt_index_close(TAKE_PTR(ix));
}

static int open_index(void)
{
	return ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh);
}

static void make_index(uint32_t rows)
{
	ix = ckpt_rows_make(dir, rows);
}

// ---- What it is for

START_TEST(what_is_put_is_found_after_reopening)
{
	struct ckpt_index_stat stat;

	make_index(ROWS);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < ROWS; i++)
			ck_ok(ckpt_row_check(ix, i));
		ck_error(ckpt_row_check(ix, ROWS), ENOENT);
		ck_assert_int_eq(ckpt_rows_count(ix), ROWS);
		ck_ok(ckpt_index_stat(ix, &stat));
		ck_assert(stat.manifests == ROWS && stat.bytes_used <= stat.bytes_file);
		close_index();
		ck_ok(open_index());
		ck_assert(!fresh);
	}
}
END_TEST

START_TEST(a_manifest_that_is_too_long_is_refused)
{
	const uint8_t sha256[CKPT_SHA256_LEN] = {1};

	make_index(0);
	ck_error(ckpt_index_put_manifest(ix, sha256, "", CKPT_MANIFEST_BYTES_MAX + 1), EINVAL);
	ck_assert_int_eq(ckpt_rows_count(ix), 0);
}
END_TEST

START_TEST(reset_forgets_everything)
{
	make_index(ROWS);
	ck_ok(ckpt_index_reset(ix));
	ck_assert_int_eq(ckpt_rows_count(ix), 0);
	ck_error(ckpt_row_check(ix, 0), ENOENT);
	ck_ok(ckpt_row_put(ix, 0));
	ck_ok(ckpt_row_check(ix, 0));
	close_index();
	ck_ok(open_index());
	ck_assert(!fresh);
	ck_ok(ckpt_row_check(ix, 0));
}
END_TEST

START_TEST(a_directory_opens_once_in_a_process)
{
	struct ckpt_index *second;
	bool second_fresh;

	make_index(1);
	ck_error(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &second, &second_fresh), EBUSY);
	ck_error(ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &second, &second_fresh), EBUSY);
	ck_ok(ckpt_row_check(ix, 0));
	close_index();
	ck_ok(open_index());
}
END_TEST

START_TEST(readonly_reads_and_never_writes)
{
	char path[PATH_MAX];

	ck_error(ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &ix, &fresh), ENOENT);
	make_index(ROWS);
	close_index();
	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &ix, &fresh));
	ck_assert(!fresh);
	ck_ok(ckpt_row_check(ix, 1));
	ck_error(ckpt_row_put(ix, ROWS), EROFS);
	ck_error(ckpt_index_reset(ix), EROFS);
	close_index();
	ckpt_rows_path(dir, "data.mdb", path);
	ck_ok(truncate(path, PAGE));
	ck_error(ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &ix, &fresh), EBADMSG);
	ckpt_rows_path(dir, "index.bad", path);
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(the_map_grows_when_full)
{
	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	for (uint32_t i = 0; i < 2000; i++)
		ck_ok(ckpt_row_put(ix, i));
	for (uint32_t i = 0; i < 2000; i++)
		ck_ok(ckpt_row_check(ix, i));
	close_index();
	// Opened smaller than it has become.
	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	ck_assert(!fresh);
	ck_assert_int_eq(ckpt_rows_count(ix), 2000);
}
END_TEST

START_TEST(a_value_larger_than_the_map_fits)
{
	CLEANUP_FREE uint8_t *big = ckpt_calloc(1, 24 << 20);
	const uint8_t sha256[CKPT_SHA256_LEN] = {1};
	void *data;
	size_t len;

	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	ck_ok(ckpt_index_put_manifest(ix, sha256, big, 24 << 20));
	ck_ok(ckpt_index_manifest(ix, sha256, &data, &len));
	ck_assert(len == 24 << 20 && !memcmp(data, big, len));
	free(data);
}
END_TEST

// ---- Threads and processes

enum { THREADS = 4, ROUNDS = 200 };
static atomic_int stop_readers, rows_read;

static void *writer_thread(void *arg)
{
	uint32_t base = *(const uint32_t *)arg * ROUNDS;

	for (uint32_t i = 0; i < ROUNDS; i++)
		if (ckpt_row_put(ix, base + i) || ckpt_row_check(ix, base + i))
			return arg;
	return NULL;
}

static void *reader_thread(void *arg)
{
	uint64_t state = 1;

	while (!atomic_load(&stop_readers)) {
		int r = ckpt_row_check(ix, (uint32_t)ckpt_sample_random(&state, THREADS * ROUNDS));

		if (r && r != -ENOENT)
			return arg;
		atomic_fetch_add(&rows_read, !r);
		if (!(state & 63) && ckpt_rows_count(ix) < 0)
			return arg;
	}
	return NULL;
}

START_TEST(readers_and_writers_go_together_while_the_map_grows)
{
	pthread_t writers[THREADS], readers[THREADS];
	uint32_t numbers[THREADS];
	void *result;

	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	for (uint32_t i = 0; i < THREADS; i++) {
		numbers[i] = i;
		ck_ok(-pthread_create(&readers[i], NULL, reader_thread, &numbers[i]));
		ck_ok(-pthread_create(&writers[i], NULL, writer_thread, &numbers[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(writers[i], &result);
		ck_assert_ptr_null(result);
	}
	atomic_store(&stop_readers, 1);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(readers[i], &result);
		ck_assert_ptr_null(result);
	}
	ck_assert_int_gt(atomic_load(&rows_read), 0);
	ck_assert_int_eq(ckpt_rows_count(ix), THREADS * ROUNDS);
}
END_TEST

// A child process that runs fn and ends with what it returns.
static pid_t start(int (*fn)(void))
{
	pid_t pid = fork();

	if (!pid)
		_exit(fn() ? 1 : 0);
	ck_assert_int_gt(pid, 0);
	return pid;
}

static void join(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", status);
}

// Opens and reads again and again beside the writer: the check at each open meets a file in change.
static int read_beside(void)
{
	for (int i = 0; i < 50; i++) {
		struct ckpt_index *mine;
		bool mine_fresh;
		int r = ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &mine, &mine_fresh);

		if (r)
			return r;
		for (uint32_t k = 0; k < 3; k++)
			if (ckpt_row_check(mine, k))
				return -EBADMSG;
		r = ckpt_rows_count(mine);
		if (r < 3)
			return -EBADMSG;
		ckpt_index_close(mine);
	}
	return 0;
}

static int write_beside(void)
{
	int r;

	ix = NULL; // the parent's is not for us
	r = ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh);

	if (r || fresh)
		return -EBADMSG;
	for (uint32_t i = 3; i < 600; i++) {
		r = ckpt_row_put(ix, i);
		if (r)
			return r;
	}
	close_index();
	return 0;
}

START_TEST(two_processes_share_it)
{
	pid_t writer, readers[2];

	make_index(3);
	close_index();
	writer = start(write_beside);
	readers[0] = start(read_beside);
	readers[1] = start(read_beside);
	join(readers[0]);
	join(readers[1]);
	join(writer);
	ck_ok(open_index());
	ck_assert_int_eq(ckpt_rows_count(ix), 600);
}
END_TEST

static ssize_t (*real_pread)(int fd, void *buf, size_t len, off_t offset);
static uint32_t rows_put; // behind the first read of the file

static ssize_t pread_beside_a_writer(int fd, void *buf, size_t len, off_t offset)
{
	ssize_t n = real_pread(fd, buf, len, offset);

	for (; rows_put < 8; rows_put++)
		ck_ok(ckpt_row_put(ix, 3 + rows_put));
	return n;
}

START_TEST(a_writer_may_get_far_between_two_reads_of_the_look)
{
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX];

	make_index(3);
	snprintf(path, sizeof(path), "%.4000s/data.mdb", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	real_pread = ckpt_hooks.pread;
	ckpt_hook_set(pread, pread_beside_a_writer);
	ck_ok(ckpt_index_check_header(fd));
	ckpt_hook_set(pread, real_pread);
	ck_assert_int_eq(rows_put, 8);
}
END_TEST

START_TEST(a_grown_map_is_taken_over_from_another_process)
{
	make_index(3);
	close_index();
	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	join(start(write_beside));
	ck_assert_int_eq(ckpt_rows_count(ix), 600);
	ck_ok(ckpt_row_put(ix, 700));
	ck_ok(ckpt_row_check(ix, 700));
}
END_TEST

// ---- What opening reads

static uint64_t *bytes_read; // also in the child that looks at the file

static ssize_t pread_counted(int fd, void *buf, size_t len, off_t offset)
{
	ssize_t n = real_pread(fd, buf, len, offset);

	if (n > 0)
		__atomic_fetch_add(bytes_read, (uint64_t)n, __ATOMIC_SEQ_CST);
	return n;
}

START_TEST(to_open_reads_no_manifest)
{
	enum { BYTES = 100000 }; // the manifest of 1,000 files
	CLEANUP_FREE uint8_t *manifest = ckpt_calloc(1, BYTES);

	make_index(0);
	for (uint32_t i = 0; i < MANY; i++) {
		uint8_t sha256[CKPT_SHA256_LEN];

		ckpt_sha256(&i, sizeof(i), sha256);
		ck_ok(ckpt_index_put_manifest(ix, sha256, manifest, BYTES));
	}
	close_index();
	bytes_read = mmap(NULL, sizeof(*bytes_read), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(bytes_read, MAP_FAILED);
	real_pread = ckpt_hooks.pread;
	ckpt_hook_set(pread, pread_counted);
	ck_ok(open_index());
	ckpt_hook_set(pread, real_pread);
	ck_assert(!fresh);
	ck_assert_int_eq(ckpt_rows_count(ix), MANY);
	ck_assert_uint_gt(*bytes_read, 0);
	ck_assert_uint_lt(*bytes_read, MANY * UINT64_C(1000)); // of 100 MB
	munmap(bytes_read, sizeof(*bytes_read));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("index");
	TCase *t = tcase_create("index");

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, close_index);
	tcase_add_test(t, what_is_put_is_found_after_reopening);
	tcase_add_test(t, a_manifest_that_is_too_long_is_refused);
	tcase_add_test(t, reset_forgets_everything);
	tcase_add_test(t, a_directory_opens_once_in_a_process);
	tcase_add_test(t, readonly_reads_and_never_writes);
	tcase_add_test(t, the_map_grows_when_full);
	tcase_add_test(t, a_value_larger_than_the_map_fits);
	tcase_add_test(t, readers_and_writers_go_together_while_the_map_grows);
	tcase_add_test(t, two_processes_share_it);
	tcase_add_test(t, a_writer_may_get_far_between_two_reads_of_the_look);
	tcase_add_test(t, a_grown_map_is_taken_over_from_another_process);
	tcase_add_test(t, to_open_reads_no_manifest);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
