// The default table of core/base/sys.h: what it adds to the kernel's calls. And faults by number on top of it.
#include "tests/support/suite.h"
#include "tests/support/sysfault.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

static int store; // the directory that calls are made beneath
static int outside;

static void setup(void)
{
	CLEANUP_FD int fd = -1;
	char link[64], path[PATH_MAX];
	ssize_t n;

	store = ckpt_temp_fd();
	outside = ckpt_temp_fd();
	snprintf(link, sizeof(link), "/proc/self/fd/%d", outside);
	n = readlink(link, path, sizeof(path) - 1);
	ck_assert_int_gt(n, 0);
	path[n] = '\0';
	ck_ok(mkdirat(store, "d", 0700));
	ck_ok(symlinkat("d", store, "in"));
	ck_ok(symlinkat(path, store, "out"));
	fd = openat(outside, "f", O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
}

static void teardown(void)
{
	close(store);
	close(outside);
}

static int file_new(const char *name, const char *text)
{
	int fd = ckpt_sys.open(store, name, O_RDWR | O_CREAT | O_EXCL, 0600);

	ck_ok(fd);
	ck_assert_int_eq(ckpt_sys.pwrite(fd, text, strlen(text), 0), (int)strlen(text));
	return fd;
}

START_TEST(open_stays_beneath_and_follows_no_symlink)
{
	static const struct {
		const char *path;
		int error;
	} paths[] = {{"in/f", ELOOP}, {"in", ELOOP},        {"out", ELOOP},         {"out/f", ELOOP},   {"..", EXDEV},
		     {"../x", EXDEV}, {"d/../../x", EXDEV}, {"/etc/passwd", EXDEV}, {"d/none", ENOENT}, {"", ENOENT}};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		ck_error(ckpt_sys.open(store, paths[i].path, O_RDONLY, 0), paths[i].error);
	ck_error(ckpt_sys.open(store, "in", O_WRONLY | O_CREAT, 0600), ELOOP);
	ck_error(ckpt_sys.open(store, "/proc/self/fd/0", O_RDONLY, 0), EXDEV);
	ck_ok(ckpt_sys.close(ckpt_sys.open(store, ".", O_RDONLY | O_DIRECTORY, 0)));
	ck_ok(ckpt_sys.close(ckpt_sys.open(store, "d/f", O_WRONLY | O_CREAT, 0600)));
}
END_TEST

START_TEST(open_closes_on_exec_and_takes_the_mode)
{
	CLEANUP_FD int fd = ckpt_sys.open(store, "f", O_WRONLY | O_CREAT, 0640);
	struct stat st;
	mode_t mask = umask(0);

	umask(mask);
	ck_ok(fd);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_ok(fstat(fd, &st));
	ck_assert_uint_eq(st.st_mode & 07777, 0640 & ~mask);
}
END_TEST

static void assert_not_followed(int r)
{
	ck_assert_msg(r == -ELOOP || r == -ENOTDIR, "%d", r);
}

START_TEST(changes_of_names_follow_no_symlink_on_the_way)
{
	assert_not_followed(ckpt_sys.mkdir(store, "out/d", 0700));
	assert_not_followed(ckpt_sys.symlink("x", store, "out/l"));
	assert_not_followed(ckpt_sys.unlink(store, "out/f", 0));
	assert_not_followed(ckpt_sys.link(store, "out/f", store, "f"));
	assert_not_followed(ckpt_sys.link(store, "in", store, "out/l"));
	assert_not_followed(ckpt_sys.rename(store, "out/f", store, "f", 0));
	assert_not_followed(ckpt_sys.rename(store, "d", store, "out/d", 0));
	ck_error(ckpt_sys.mkdir(store, "../x", 0700), EXDEV);
	ck_error(ckpt_sys.unlink(store, "/etc/passwd", 0), EXDEV);
	ck_ok(faccessat(outside, "f", F_OK, 0));
	ck_ok(ckpt_sys.mkdir(store, "d/e", 0700));
	ck_ok(ckpt_sys.rename(store, "d/e", store, "d/g", RENAME_NOREPLACE));
	ck_ok(ckpt_sys.unlink(store, "d/g", AT_REMOVEDIR));
	// The last component is the link itself.
	ck_ok(ckpt_sys.link(store, "out", store, "d/out"));
	ck_ok(ckpt_sys.unlink(store, "out", 0));
	ck_error(ckpt_sys.open(store, "d/out", O_RDONLY, 0), ELOOP);
}
END_TEST

START_TEST(pread_is_short_at_the_end_only)
{
	CLEANUP_FD int fd = file_new("f", "0123456789");
	char buf[20];

	ck_assert_int_eq(ckpt_sys.pread(fd, buf, 20, 0), 10);
	ck_assert_int_eq(ckpt_sys.pread(fd, buf, 4, 8), 2);
	ck_assert_int_eq(ckpt_sys.pread(fd, buf, 4, 99), 0);
	ck_error(ckpt_sys.pread(fd, buf, 4, -1), EINVAL);
	ck_error(ckpt_sys.pread(-1, buf, 4, 0), EBADF);
}
END_TEST

START_TEST(clone_copies_the_whole_content)
{
	static const size_t sizes[] = {0, 1, 4096, (3u << 20) + 17};

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		CLEANUP_FD int from = file_new("from", ""), to = file_new("to", "");
		CLEANUP_FREE char *data = calloc(1, sizes[i] + 1), *copy = calloc(1, sizes[i] + 1);

		for (size_t at = 0; at < sizes[i]; at++)
			data[at] = (char)(at * 31 + (at >> 9));
		ck_assert_int_eq(ckpt_sys.pwrite(from, data, sizes[i], 0), (long)sizes[i]);
		ck_ok(ckpt_sys.clone(from, to));
		ck_assert_int_eq(ckpt_sys.pread(to, copy, sizes[i] + 1, 0), (long)sizes[i]);
		ck_assert(memcmp(data, copy, sizes[i]) == 0);
		ck_ok(ckpt_sys.unlink(store, "from", 0));
		ck_ok(ckpt_sys.unlink(store, "to", 0));
	}
}
END_TEST

START_TEST(clone_leaves_holes_out)
{
	const off_t places[] = {0, 1 << 20, (off_t)1 << 40}, size = ((off_t)1 << 41) + 5;
	CLEANUP_FD int from = file_new("from", ""), to = file_new("to", "");
	struct stat st;
	char buf[8];

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		ck_assert_int_eq(ckpt_sys.pwrite(from, "data", 4, places[i]), 4);
	ck_ok(ckpt_sys.ftruncate(from, size)); // ends in a hole
	ck_ok(ckpt_sys.clone(from, to));
	ck_assert(!fstat(to, &st) && st.st_size == size && st.st_blocks < 1 << 16);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		ck_assert_int_eq(ckpt_sys.pread(to, buf, sizeof(buf), places[i]), sizeof(buf));
		ck_assert_mem_eq(buf, "data\0\0\0\0", sizeof(buf));
	}
	ck_assert_int_eq(ckpt_sys.pread(to, buf, sizeof(buf), size - 5), 5);
}
END_TEST

START_TEST(clone_copies_where_the_kernel_cannot)
{
	// copy_file_range gives nothing of files in /proc, whose size says 0.
	CLEANUP_FD int from = open("/proc/self/status", O_RDONLY | O_CLOEXEC), to = file_new("to", "");
	char buf[8];

	ck_ok(ckpt_sys.clone(from, to));
	ck_assert_int_eq(ckpt_sys.pread(to, buf, 5, 0), 5);
	ck_assert_mem_eq(buf, "Name:", 5);
}
END_TEST

// Within a disk and from another one, whatever the places are within blocks.
START_TEST(a_range_goes_to_another_place)
{
	static const struct {
		uint64_t from, to, len;
	} ranges[] = {{0, 0, 20000}, {4096, 8192, 8192}, {100, 4196, 9000}, {100, 100, 50},
		      {1, 2, 9999},  {4095, 1, 4098},    {20000, 3, 0},     {5, 12293, 19995}};
	CLEANUP_FD int shm = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	CLEANUP_FD int here = file_new("from", ""), to = file_new("to", "");
	static char data[20000], copy[40000], want[40000];

	ck_assert_int_ge(shm, 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 31 + (i >> 9));
	for (int k = 0; k < 2; k++)
		ck_assert_int_eq(ckpt_sys.pwrite(k ? shm : here, data, sizeof(data), 0), sizeof(data));
	for (size_t i = 0; i < 2 * ARRAY_LEN(ranges); i++) {
		uint64_t from = ranges[i / 2].from, at = ranges[i / 2].to, len = ranges[i / 2].len;

		ck_ok(ckpt_sys.ftruncate(to, 0));
		ck_ok(ckpt_sys.ftruncate(to, sizeof(copy)));
		ck_ok(ckpt_sys.copy_range(i % 2 ? shm : here, from, to, at, len));
		memset(want, 0, sizeof(want));
		memcpy(want + at, data + from, len);
		ck_assert_int_eq(ckpt_sys.pread(to, copy, sizeof(copy), 0), sizeof(copy));
		ck_assert_mem_eq(copy, want, sizeof(copy));
	}
	ck_error(ckpt_sys.copy_range(here, 1, to, 0, sizeof(data)), ENODATA);
	ck_error(ckpt_sys.copy_range(here, 30000, to, 30000, 1), ENODATA);
	ck_error(ckpt_sys.copy_range(here, 4097, to, 1, UINT64_MAX), EOVERFLOW);
	ck_error(ckpt_sys.copy_range(here, 0, -1, 0, 1), EBADF);
	ck_error(ckpt_sys.copy_range(-1, 0, to, 0, 1), EBADF);
}
END_TEST

START_TEST(lease_tells_whether_anybody_may_write)
{
	CLEANUP_FD int fd = file_new("f", "x"), reader = ckpt_sys.open(store, "f", O_RDONLY, 0);
	int fresh;

	ck_error(ckpt_sys.lease(reader), EAGAIN);
	close(fd);
	fd = -1;
	ck_ok(ckpt_sys.lease(reader));
	ck_ok(ckpt_sys.lease(reader));
	fresh = ckpt_sys.open(store, "f", O_WRONLY | O_NONBLOCK, 0); // no lease is left
	ck_ok(fresh);
	ck_error(ckpt_sys.lease(reader), EAGAIN);
	close(fresh);
}
END_TEST

// All that a test can see of them without a disk of its own is that the kernel is asked, and its answer handed on.
START_TEST(a_sync_is_the_kernels)
{
	int ends[2];

	ck_ok(pipe2(ends, O_CLOEXEC));
	ck_error(ckpt_sys.fsync(ends[0]), EINVAL);
	ck_error(ckpt_sys.fdatasync(ends[0]), EINVAL);
	close(ends[0]);
	close(ends[1]);
	ck_error(ckpt_sys.fsync(ends[0]), EBADF);
	ck_error(ckpt_sys.fdatasync(ends[0]), EBADF);
	ck_error(ckpt_sys.syncfs(ends[0]), EBADF);
	ck_ok(ckpt_sys.fsync(store));
	ck_ok(ckpt_sys.fdatasync(store));
	ck_ok(ckpt_sys.syncfs(store));
}
END_TEST

static void *open_and_close(void *arg)
{
	for (int i = 0; i < 2000; i++) {
		int fd = ckpt_sys.open(store, "f", O_WRONLY, 0);

		ck_ok(fd);
		close(fd);
	}
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
	return NULL;
}

START_TEST(lease_survives_a_writer_that_opens_at_the_wrong_moment)
{
	CLEANUP_FD int reader = -1;
	bool done = false;
	pthread_t thread;

	close(file_new("f", "x"));
	reader = ckpt_sys.open(store, "f", O_RDONLY, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, open_and_close, &done), 0);
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
		int r = ckpt_sys.lease(reader);

		ck_assert_msg(r == 0 || r == -EAGAIN, "%d", r);
	}
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(time_goes_on_and_random_differs)
{
	int64_t started_ns = ckpt_sys.mono_ns();
	char a[16], b[16];

	ckpt_sys.sleep_ns(2000000);
	ckpt_sys.sleep_ns(0);
	ckpt_sys.sleep_ns(-5);
	ck_assert_int_ge(ckpt_sys.mono_ns() - started_ns, 2000000);
	ck_assert_int_gt(ckpt_sys.now_ns(), 1700000000ll * 1000000000);
	ck_ok(ckpt_sys.random(a, sizeof(a)));
	ck_ok(ckpt_sys.random(b, sizeof(b)));
	ck_assert_mem_ne(a, b, sizeof(a));
}
END_TEST

// ---- Faults by number

static void count_death(void *arg)
{
	++*(int *)arg;
}

START_TEST(a_fault_fires_once_sticky_or_dies)
{
	struct ckpt_sysfault fault = {.at = 2, .error = -ENOSPC};
	int deaths = 0;

	ckpt_sysfault_begin(&fault);
	ck_ok(ckpt_sys.mkdir(store, "1", 0700));
	ck_error(ckpt_sys.mkdir(store, "2", 0700), ENOSPC);
	ck_ok(ckpt_sys.mkdir(store, "2", 0700));
	ck_assert_uint_eq(fault.count, 3);
	fault = (struct ckpt_sysfault){.at = 1, .error = -EIO, .sticky = true};
	ck_error(ckpt_sys.unlink(store, "1", AT_REMOVEDIR), EIO);
	ck_error(ckpt_sys.unlink(store, "1", AT_REMOVEDIR), EIO);
	fault = (struct ckpt_sysfault){.at = 1, .die = count_death, .arg = &deaths};
	ck_ok(ckpt_sys.unlink(store, "1", AT_REMOVEDIR));
	ck_assert_int_eq(deaths, 1);
	ckpt_sysfault_end(&fault);
	ck_ok(ckpt_sys.unlink(store, "2", AT_REMOVEDIR));
	ck_assert_uint_eq(fault.count, 1);
}
END_TEST

START_TEST(a_torn_write_wrote_its_half)
{
	CLEANUP_FD int fd = file_new("f", "");
	struct ckpt_sysfault fault = {.at = 1, .error = -ENOSPC, .torn = true, .changes_only = true};
	char buf[8];

	ckpt_sysfault_begin(&fault);
	ck_assert_int_eq(ckpt_sys.pread(fd, buf, 8, 0), 0); // does not count
	ck_error(ckpt_sys.pwrite(fd, "abcd", 4, 0), ENOSPC);
	ckpt_sysfault_end(&fault);
	ck_assert_int_eq(ckpt_sys.pread(fd, buf, 8, 0), 2);
}
END_TEST

static Suite *sys_suite(void)
{
	Suite *suite = suite_create("sys");
	TCase *tcase = tcase_create("sys");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, open_stays_beneath_and_follows_no_symlink);
	tcase_add_test(tcase, open_closes_on_exec_and_takes_the_mode);
	tcase_add_test(tcase, changes_of_names_follow_no_symlink_on_the_way);
	tcase_add_test(tcase, pread_is_short_at_the_end_only);
	tcase_add_test(tcase, clone_copies_the_whole_content);
	tcase_add_test(tcase, clone_leaves_holes_out);
	tcase_add_test(tcase, clone_copies_where_the_kernel_cannot);
	tcase_add_test(tcase, a_range_goes_to_another_place);
	tcase_add_test(tcase, a_sync_is_the_kernels);
	tcase_add_test(tcase, lease_tells_whether_anybody_may_write);
	tcase_add_test(tcase, lease_survives_a_writer_that_opens_at_the_wrong_moment);
	tcase_add_test(tcase, time_goes_on_and_random_differs);
	tcase_add_test(tcase, a_fault_fires_once_sticky_or_dies);
	tcase_add_test(tcase, a_torn_write_wrote_its_half);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(sys_suite());
}
