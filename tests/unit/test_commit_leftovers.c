// Leftovers in a commit: a file that its client has closed and a fork of it still holds open for writing. The commit gets
// a copy of its own unless the holder writes, and the holder keeps his file when the commit fails.
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#define MS INT64_C(1000000)

START_TEST(a_leftover_that_stands_still_gets_a_copy_of_its_own)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "file", "text");

	ck_ok(ckpt_sys.fsetxattr(fd, "user.colour", "blue", 4, 0));
	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	ck_ok(ckpt_staged_commit(step, 30 * MS, NULL));
	ck_assert_int_eq(ckpt_jobs_saving(s->jobs), 0);
	ck_assert_uint_eq(ckpt_save_errors(s, "4711"), 1);
	ck_ok(ckpt_sys.pwrite(fd, "LATE AND LONGER", 15, 0));
	ckpt_staged_check(step, "file", "text");
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_staged_check(step, "file", "text");
	ckpt_step_unref(step);
}
END_TEST

// It may be between two writes.
START_TEST(a_leftover_is_watched_for_as_long_as_a_writer_is_waited_for)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	int64_t began_ns;
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "file", "text");

	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	began_ns = ckpt_sys.mono_ns();
	ck_ok(ckpt_staged_commit(step, 400 * MS, NULL));
	ck_assert_int_ge(ckpt_sys.mono_ns() - began_ns, 400 * MS);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_leftover_that_writes_on_is_a_writer)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "file", "text");

	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	ck_ok(ckpt_sys.pwrite(fd, "more text", 9, 0));
	ck_error(ckpt_staged_commit(step, 30 * MS, NULL), EBUSY);
	ckpt_staged_close_once(&w); // and now it stands still
	ck_ok(ckpt_staged_commit(step, 30 * MS, NULL));
	ckpt_staged_check(step, "file", "more text");
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(step);
}
END_TEST

// Orbax writes one file twice, and a child may have been forked while it did so the first time.
START_TEST(a_leftover_of_a_file_that_was_opened_again_and_closed_stands_still)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer left, again;
	int fd = ckpt_staged_put(step, "file", "text");

	ckpt_staged_writer(step, &left, fd);
	ckpt_staged_close_once(&left);
	ckpt_staged_writer(step, &again, fd);
	ck_ok(ckpt_sys.pwrite(fd, "more text", 9, 0));
	ck_error(ckpt_staged_commit(step, 30 * MS, NULL), EBUSY);
	ckpt_staged_close_once(&again);
	ckpt_stage_writer_remove(&again);
	ck_ok(ckpt_staged_commit(step, 30 * MS, NULL));
	ckpt_staged_check(step, "file", "more text");
	ckpt_stage_writer_remove(&left);
	close(fd);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_file_of_the_same_size_that_was_written_is_a_writers)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct timespec later[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "file", "text");

	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	ck_assert_int_eq(futimens(fd, later), 0);
	ck_error(ckpt_staged_commit(step, 5 * MS, NULL), EBUSY);
	w.fd = -1; // a handle without a descriptor says nothing
	ck_error(ckpt_staged_commit(step, 5 * MS, NULL), EBUSY);
	w.fd = 1 << 20;
	ck_error(ckpt_staged_commit(step, 5 * MS, NULL), EBUSY);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(of_two_files_the_one_that_is_written_is_blamed)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	int left_fd = ckpt_staged_put(step, "left", "text"), fd = ckpt_staged_put(step, "written", "text");
	struct ckpt_writer left, writer;

	ckpt_staged_writer(step, &writer, fd);
	ckpt_staged_writer(step, &left, left_fd); // looked at first
	ckpt_staged_close_once(&left);
	ck_error(ckpt_staged_commit(step, 5 * MS, NULL), EBUSY);
	ck_assert_uint_eq(ckpt_save_errors(s, "being written: written\t"), 1);
	ckpt_stage_writer_remove(&writer);
	close(fd);
	ck_ok(ckpt_staged_commit(step, 5 * MS, NULL));
	ckpt_stage_writer_remove(&left);
	close(left_fd);
	ckpt_step_unref(step);
}
END_TEST

static struct {
	uint64_t ino;
	unsigned count;
	int fd; // >= 0: written to meanwhile
} written_back;

static void write_back(void *arg, uint64_t ino)
{
	(void)arg;
	written_back.ino = ino;
	written_back.count++;
	if (written_back.fd >= 0)
		ck_ok(ckpt_sys.pwrite(written_back.fd, "MAPPED TEXT", 11, 0));
}

// What a client has stored through a mapping reaches the file only then.
START_TEST(a_leftover_stands_still_only_after_its_mappings_were_written_back)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "file", "text");

	s->calls.write_back = write_back;
	written_back.fd = fd;
	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	ck_error(ckpt_staged_commit(step, 5 * MS, NULL), EBUSY);
	ck_assert_uint_eq(written_back.ino, w.ino);
	ck_assert_uint_eq(written_back.count, 1);
	ckpt_staged_close_once(&w);
	written_back.fd = -1;
	ck_ok(ckpt_staged_commit(step, 5 * MS, NULL));
	ck_assert_uint_eq(written_back.count, 2);
	ckpt_staged_check(step, "file", "MAPPED TEXT");
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(step);
}
END_TEST

static uint64_t inode_of(struct ckpt_step *step, const char *path)
{
	struct stat st;

	ck_assert_int_eq(fstatat(step->dirfd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_ino;
}

static void assert_trash_is_empty(void)
{
	char path[2 * PATH_MAX];
	struct dirent **names;
	int count;

	snprintf(path, sizeof(path), "%s/trash", dir);
	count = scandir(path, &names, NULL, NULL);
	ck_assert_int_eq(count, 2); // "." and ".."
	while (count-- > 0)
		free(names[count]);
	free(names);
}

// The writer goes on in its own file, and a later commit has what it wrote since.
START_TEST(a_leftover_keeps_its_file_when_the_commit_fails)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_fault fault = {.at = _i == 1, .error = -ENOSPC, .sticky = true};
	int fd, leaked = -1;
	struct ckpt_writer w;
	uint64_t ino;
	struct stat before, after;

	ck_ok(ckpt_sys.mkdir(step->dirfd, "dir", 0755));
	fd = ckpt_staged_put(step, "dir/file", "text");
	ck_ok(ckpt_sys.link(step->dirfd, "dir/file", step->dirfd, "twin"));
	ino = inode_of(step, "twin");
	if (_i == 0)
		leaked = ckpt_staged_put(step, "zz leaked", "text");
	else
		ckpt_save_fault(s, &fault);
	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	ck_assert_int_eq(fstatat(step->dirfd, "dir", &before, 0), 0);
	ck_error(ckpt_staged_commit(step, 30 * MS, NULL), _i ? ENOSPC : EBUSY);
	ckpt_save_settle(s);
	ck_assert_uint_eq(inode_of(step, "dir/file"), ino);
	ck_assert_uint_eq(inode_of(step, "twin"), ino);
	ck_assert_int_eq(fstatat(step->dirfd, "dir", &after, 0), 0);
	ck_assert_mem_eq(&before.st_mtim, &after.st_mtim, sizeof(after.st_mtim));
	assert_trash_is_empty();
	ck_ok(ckpt_sys.pwrite(fd, "more text", 9, 0));
	ckpt_staged_close_once(&w);
	close(leaked);
	__atomic_store_n(&fault.at, 0, __ATOMIC_RELAXED);
	ck_ok(ckpt_staged_commit(step, 30 * MS, NULL));
	ckpt_save_settle(s);
	ck_ok(ckpt_sys.pwrite(fd, "LATE AND LONGER", 15, 0));
	ckpt_staged_check(step, "dir/file", "more text");
	ckpt_staged_check(step, "twin", "more text");
	assert_trash_is_empty();
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_leftover_has_its_file_back_once_an_unknown_outcome_was_none)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_fault fault = {.at = 1, .error = -EIO, .sticky = true};
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "file", "text");

	ckpt_save_fault(s, &fault);
	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	ck_error(ckpt_staged_commit(step, 30 * MS, NULL), EIO);
	ck_assert(ckpt_staging_of(step)->outcome_unknown);
	ck_ok(ckpt_sys.pwrite(fd, "more text", 9, 0));
	ckpt_staged_close_once(&w);
	__atomic_store_n(&fault.at, 0, __ATOMIC_RELAXED);
	ck_ok(ckpt_staged_commit(step, 30 * MS, NULL));
	ckpt_save_settle(s);
	ckpt_staged_check(step, "file", "more text");
	assert_trash_is_empty();
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_copy_has_every_attribute_that_its_file_had)
{
	static char large[20000];
	char there[sizeof(large)], path[2 * PATH_MAX];
	struct ckpt_step *step;
	struct ckpt_writer w;
	ssize_t lens[2];
	int fd;

	// Attributes of this size want another filesystem than most disks have.
	ckpt_store_close(s);
	s = NULL;
	if (!access("/dev/shm", W_OK)) {
		strcpy(dir, "/dev/shm/ckptfs-test-XXXXXX");
		ck_assert_ptr_nonnull(mkdtemp(dir));
		ck_ok(ckpt_store_init(dir));
	}
	s = ckpt_save_open(dir);
	step = ckpt_staged_begin(s, "1");
	fd = ckpt_staged_put(step, "file", "text");
	memset(large, 'x', sizeof(large));
	lens[0] = fsetxattr(fd, "user.large", large, sizeof(large), 0) ? -1 : (ssize_t)sizeof(large);
	lens[1] = fsetxattr(fd, "user.ckptfs.ours", "hidden", 6, 0) ? -1 : 6;
	ck_assert_int_eq(fchmod(fd, 0444), 0);
	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	ck_ok(ckpt_staged_commit(step, 30 * MS, NULL));
	ckpt_save_settle(s);
	snprintf(path, sizeof(path), "%s/sessions/%s/file", dir, step->session);
	ck_assert_int_eq(getxattr(path, "user.large", there, sizeof(there)), lens[0]);
	ck_assert_int_eq(getxattr(path, "user.ckptfs.ours", there, sizeof(there)), lens[1]);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(step);
	if (!strncmp(dir, "/dev/shm/", 9)) {
		ckpt_store_close(s);
		ckpt_temp_empty(dir, true);
		ckpt_fixture_open();
	}
}
END_TEST

START_TEST(a_leftover_whose_fsync_failed_is_not_copied_but_refused)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "file", "text");

	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	ckpt_stage_synced(step, w.ino, 0, 0, -EIO);
	ck_error(ckpt_staged_commit(step, 30 * MS, NULL), EIO);
	ck_error(ckpt_staged_commit(step, 30 * MS, NULL), EIO);
	ckpt_stage_rewritten(step, w.ino);
	ck_ok(ckpt_staged_commit(step, 30 * MS, NULL));
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(step);
}
END_TEST

// --- Several of them ------------------------------------------------------------------------------------------------------

static int (*below_rename)(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags);
static unsigned exchanges, exchange_fails_from, exchange_fails_to; // by number, from 1 on

static int rename_failing(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
	if (flags & RENAME_EXCHANGE && ++exchanges >= exchange_fails_from && exchanges <= exchange_fails_to)
		return -EIO;
	return below_rename(from_dirfd, from, to_dirfd, to, flags);
}

static int commit_with_exchanges_failing(struct ckpt_step *step, unsigned from, unsigned to)
{
	int rc;

	below_rename = ckpt_hooks.rename;
	exchanges = 0;
	exchange_fails_from = from;
	exchange_fails_to = to;
	ckpt_hook_set(rename, rename_failing);
	rc = ckpt_staged_commit(step, 30 * MS, NULL);
	ckpt_save_settle(s);
	ckpt_hook_set(rename, below_rename);
	return rc;
}

// Two leftovers' files in one directory, the second under a name in another one, too.
static struct {
	struct ckpt_step *step;
	struct ckpt_writer a, b;
} two;
static const char *const two_names[] = {"dir/a", "dir/b", "twin of b"};

static void two_begin(void)
{
	two.step = ckpt_staged_begin(s, "1");
	ck_ok(ckpt_sys.mkdir(two.step->dirfd, "dir", 0755));
	ckpt_staged_writer(two.step, &two.a, ckpt_staged_put(two.step, "dir/a", "text of a"));
	ckpt_staged_writer(two.step, &two.b, ckpt_staged_put(two.step, "dir/b", "text of b"));
	ck_ok(ckpt_sys.link(two.step->dirfd, "dir/b", two.step->dirfd, "twin of b"));
	ckpt_staged_close_once(&two.a);
	ckpt_staged_close_once(&two.b);
}

static void two_end(void)
{
	close(two.a.fd);
	close(two.b.fd);
	ckpt_stage_writer_remove(&two.a);
	ckpt_stage_writer_remove(&two.b);
	ckpt_step_unref(two.step);
}

START_TEST(of_several_copies_none_stays_where_one_could_not_take_its_place)
{
	uint64_t inos[ARRAY_LEN(two_names)];
	struct stat before, after;

	two_begin();
	for (size_t i = 0; i < ARRAY_LEN(two_names); i++)
		inos[i] = inode_of(two.step, two_names[i]);
	ck_assert_int_eq(fstatat(two.step->dirfd, "dir", &before, 0), 0);
	ck_error(commit_with_exchanges_failing(two.step, (unsigned)_i, (unsigned)_i), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "could not take its place"), 1);
	ck_assert_uint_eq(exchanges, 2 * (unsigned)_i - 1); // what was done is undone
	for (size_t i = 0; i < ARRAY_LEN(two_names); i++)
		ck_assert_uint_eq(inode_of(two.step, two_names[i]), inos[i]);
	ck_assert_int_eq(fstatat(two.step->dirfd, "dir", &after, 0), 0);
	ck_assert_mem_eq(&before.st_mtim, &after.st_mtim, sizeof(after.st_mtim));
	assert_trash_is_empty();
	ck_ok(ckpt_staged_commit(two.step, 30 * MS, NULL));
	ckpt_save_settle(s);
	ck_ok(ckpt_sys.pwrite(two.a.fd, "LATE", 4, 0));
	ck_ok(ckpt_sys.pwrite(two.b.fd, "LATE", 4, 0));
	ckpt_staged_check(two.step, "dir/a", "text of a");
	ckpt_staged_check(two.step, "dir/b", "text of b");
	ckpt_staged_check(two.step, "twin of b", "text of b");
	assert_trash_is_empty();
	two_end();
}
END_TEST

// All copies have their place, the put fails, and no leftover's file comes back.
static void two_stuck(void)
{
	two_begin();
	ckpt_save_plant(s, "1");
	ck_error(commit_with_exchanges_failing(two.step, 4, 6), EEXIST);
	ck_assert_uint_eq(exchanges, 6); // each is tried
	ck_assert_uint_eq(ckpt_save_errors(s, "could not get back its place"), 1);
	ck_ok(ckpt_stage_rename(two.step, "", "2"));
}

START_TEST(what_a_client_did_to_a_name_meanwhile_stays_when_the_others_come_back)
{
	static const char *const left[] = {"dir/b", "dir/a"}; // untouched
	int dirfd;

	two_stuck();
	dirfd = two.step->dirfd;
	if (_i == 0) {
		ck_ok(ckpt_sys.unlink(dirfd, "dir/a", 0));
	} else if (_i == 1) {
		ck_ok(ckpt_sys.unlink(dirfd, "dir/b", 0));
		close(ckpt_staged_put(two.step, "dir/b", "a new one"));
	} else {
		ck_ok(ckpt_sys.unlink(dirfd, "dir/a", 0));
		ck_ok(ckpt_sys.unlink(dirfd, "dir/b", 0));
		ck_ok(ckpt_sys.unlink(dirfd, "dir", AT_REMOVEDIR));
		close(ckpt_staged_put(two.step, "dir", "no directory"));
	}
	ck_ok(ckpt_sys.pwrite(two.b.fd, "TEXT", 4, 0)); // it goes on in its own file
	ckpt_staged_close_once(&two.b);
	ck_ok(ckpt_staged_commit(two.step, 30 * MS, NULL));
	ckpt_save_settle(s);
	ckpt_staged_check(two.step, "twin of b", "TEXT of b");
	ck_assert(_i == 1 || !ckpt_staged_has(two.step, "dir/a"));
	if (_i < 2)
		ckpt_staged_check(two.step, left[_i], _i ? "text of a" : "TEXT of b");
	if (_i)
		ckpt_staged_check(two.step, _i == 1 ? "dir/b" : "dir", _i == 1 ? "a new one" : "no directory");
	assert_trash_is_empty();
	two_end();
}
END_TEST

// As for a disk that does not answer: whether the copy is still there is not known, so its leftover's file is kept.
START_TEST(a_name_that_cannot_be_looked_at_keeps_the_leftovers_file)
{
	int dirfd;

	two_stuck();
	dirfd = two.step->dirfd;
	ck_ok(ckpt_sys.rename(dirfd, "dir", dirfd, "aside", 0));
	ck_ok(ckpt_sys.symlink("dir", dirfd, "dir")); // ELOOP
	ck_error(ckpt_staged_commit(two.step, 30 * MS, NULL), ELOOP);
	ck_assert_uint_eq(ckpt_save_errors(s, "could not get back its place"), 3); // the attempt tries it twice
	ck_ok(ckpt_sys.unlink(dirfd, "dir", 0));
	ck_ok(ckpt_sys.rename(dirfd, "aside", dirfd, "dir", 0));
	ck_ok(ckpt_sys.pwrite(two.a.fd, "TEXT", 4, 0));
	ckpt_staged_close_once(&two.a);
	ck_ok(ckpt_staged_commit(two.step, 30 * MS, NULL));
	ckpt_save_settle(s);
	ckpt_staged_check(two.step, "dir/a", "TEXT of a");
	assert_trash_is_empty();
	two_end();
}
END_TEST

static Suite *leftovers_suite(void)
{
	Suite *suite = suite_create("commit leftovers");
	TCase *tcase = tcase_create("leftovers");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, a_leftover_that_stands_still_gets_a_copy_of_its_own);
	tcase_add_test(tcase, a_leftover_is_watched_for_as_long_as_a_writer_is_waited_for);
	tcase_add_test(tcase, a_file_of_the_same_size_that_was_written_is_a_writers);
	tcase_add_test(tcase, of_two_files_the_one_that_is_written_is_blamed);
	tcase_add_test(tcase, a_leftover_stands_still_only_after_its_mappings_were_written_back);
	tcase_add_test(tcase, a_leftover_that_writes_on_is_a_writer);
	tcase_add_test(tcase, a_leftover_of_a_file_that_was_opened_again_and_closed_stands_still);
	tcase_add_loop_test(tcase, a_leftover_keeps_its_file_when_the_commit_fails, 0, 2);
	tcase_add_test(tcase, a_leftover_has_its_file_back_once_an_unknown_outcome_was_none);
	tcase_add_test(tcase, a_copy_has_every_attribute_that_its_file_had);
	tcase_add_test(tcase, a_leftover_whose_fsync_failed_is_not_copied_but_refused);
	tcase_add_loop_test(tcase, of_several_copies_none_stays_where_one_could_not_take_its_place, 1, 4);
	tcase_add_loop_test(tcase, what_a_client_did_to_a_name_meanwhile_stays_when_the_others_come_back, 0, 3);
	tcase_add_test(tcase, a_name_that_cannot_be_looked_at_keeps_the_leftovers_file);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(leftovers_suite());
}
