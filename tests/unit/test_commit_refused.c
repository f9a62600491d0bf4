// What a step cannot hold, and how much of one is written out at once: what a commit says, and that it works once the cause is
// gone.
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "tests/support/fixture_step.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/step/reopened.h"

#include <fcntl.h>
#include <stdio.h>

static void setup(void)
{
	ckpt_fixture_step_open("1000");
}

static void refused(int error, const char *why)
{
	ck_error(ckpt_commit(step, &ckpt_staged_plain), error);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_assert_uint_eq(ckpt_save_errors(s, why), 1);
}

START_TEST(a_name_that_no_step_has_is_told)
{
	static const char *const names[] = {"\xff", "a\x01"};
	static const int errors[] = {EILSEQ, EINVAL};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		close(ckpt_staged_put(step, names[i], ""));
		ck_error(ckpt_commit(step, &ckpt_staged_plain), errors[i]);
		ck_assert_uint_eq(ckpt_save_errors(s, "a name that a step cannot have"), i + 1);
		ck_ok(ckpt_sys.unlink(step->dirfd, names[i], 0));
	}
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
}
END_TEST

// Directories within each other; the innermost is open.
static int nest(unsigned levels, const char *name)
{
	int fd = ckpt_sys.open(step->dirfd, ".", O_RDONLY | O_DIRECTORY, 0);

	for (unsigned i = 0; i < levels; i++) {
		int below;

		ck_ok(ckpt_sys.mkdir(fd, name, 0755));
		below = ckpt_sys.open(fd, name, O_RDONLY | O_DIRECTORY, 0);
		ck_ok(below);
		close(fd);
		fd = below;
	}
	return fd;
}

START_TEST(too_many_levels_are_told)
{
	close(nest(CKPT_DEPTH_MAX + 1, "d"));
	refused(E2BIG, "too many files or too deep");
}
END_TEST

START_TEST(a_path_that_is_too_long_is_told)
{
	char name[CKPT_NAME_MAX + 1];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	close(nest(17, name));
	refused(ENAMETOOLONG, "a name that a step cannot have");
}
END_TEST

START_TEST(too_many_attributes_are_told)
{
	static const char value[CKPT_XATTR_BYTES_MAX / 2];
	int fd = ckpt_staged_put(step, "file", "");

	ck_ok(ckpt_sys.fsetxattr(fd, "user.a", value, sizeof(value), 0));
	ck_ok(ckpt_sys.fsetxattr(fd, "user.b", value, sizeof(value), 0));
	close(fd);
	refused(E2BIG, "of extended attributes");
}
END_TEST

// --- All at once, or one by one -----------------------------------------------------------------------------------------

static int (*below_syncfs)(int fd);
static unsigned synced_all;

static int count_syncfs(int fd)
{
	synced_all++;
	return below_syncfs(fd);
}

static void commit_counting(void)
{
	below_syncfs = ckpt_hooks.syncfs;
	synced_all = 0;
	ckpt_hook_set(syncfs, count_syncfs);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_hook_set(syncfs, below_syncfs);
}

static void make_dirs(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		ck_ok(ckpt_sys.mkdir(step->dirfd, name, 0755));
	}
}

START_TEST(many_files_are_synced_at_once_unless_strangers_have_more)
{
	static const struct {
		unsigned dirs;
		bool file;
		uint64_t dirty;
		unsigned at_once;
	} cases[] = {
		{10, true, 0, 0},        // few
		{100, true, 0, 1},       // many
		{100, false, 0, 0},      // directories alone are cheap
		{300, false, 0, 1},      // not so many
		{300, true, 1 << 30, 0}, // and a stranger writes
	};

	make_dirs(cases[_i].dirs);
	if (cases[_i].file)
		close(ckpt_staged_put(step, "file", "text"));
	ckpt_save_dirty_bytes = cases[_i].dirty;
	commit_counting();
	ck_assert_uint_eq(synced_all, cases[_i].at_once);
}
END_TEST

static struct ckpt_writer dying;

static bool writer_dies(void *arg __attribute__((unused)))
{
	if (ckpt_stage_writer_is_awaited(&dying)) {
		ckpt_stage_writer_killed(&dying);
		ckpt_stage_writer_remove(&dying);
	}
	return false;
}

START_TEST(a_writer_that_is_killed_while_it_is_waited_for_fails_the_commit)
{
	struct ckpt_commit how = ckpt_staged_plain;
	int fd = ckpt_staged_put(step, "half", "ha");

	how.writers_ns = INT64_C(20000000000);
	how.abandoned = writer_dies;
	ckpt_staged_writer(step, &dying, fd);
	ck_assert(!ckpt_stage_writer_is_awaited(&dying)); // by nobody so far
	ck_error(ckpt_commit(step, &how), EIO);
	close(fd);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_assert_uint_eq(ckpt_save_errors(s, "a file was not written to its end: half"), 1);
	ck_ok(ckpt_commit(step, &how)); // who completes it once more knows
}
END_TEST

static bool writer_dies_beside_another(void *arg)
{
	struct ckpt_writer *other = arg;

	if (other->step) {
		ckpt_stage_writer_killed(&dying);
		ckpt_stage_writer_remove(&dying);
		ckpt_stage_writer_remove(other);
		close(dying.fd);
		close(other->fd);
	}
	return false;
}

START_TEST(a_late_file_whose_writer_is_killed_fails_only_a_commit_that_waits_for_late_files)
{
	bool late = _i & 1, leaves = _i & 2;
	struct ckpt_commit how = ckpt_staged_plain;
	struct ckpt_writer other;
	int fd = ckpt_staged_put(step, "half", "ha"), other_fd = ckpt_staged_put(step, "other", "whole");

	how.writers_ns = INT64_C(20000000000);
	how.abandoned = writer_dies_beside_another;
	how.abandoned_arg = &other;
	how.leaves_late = leaves;
	ckpt_staged_writer(step, &dying, fd);
	dying.late = late;
	ckpt_staged_writer(step, &other, other_fd);
	if (late && leaves)
		ck_ok(ckpt_commit(step, &how));
	else
		ck_error(ckpt_commit(step, &how), EIO);
}
END_TEST

START_TEST(a_step_that_gets_its_name_by_its_commit_is_listed_once)
{
	struct ckpt_commit how = ckpt_staged_plain;
	char name[16];

	how.folder_id = "";
	how.name = name;
	for (unsigned i = 1; i <= 40; i++) {
		struct ckpt_step *each;

		snprintf(name, sizeof(name), "tmp%u", i);
		each = ckpt_staged_begin(s, name);
		snprintf(name, sizeof(name), "%u", i);
		ck_ok(ckpt_commit(each, &how));
		ck_assert_str_eq(ckpt_commits_of(s)->last_commit.name, name);
		ckpt_step_unref(each);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), i);
	}
	for (unsigned i = 1; i <= 40; i++) {
		struct ckpt_step *each;

		snprintf(name, sizeof(name), "%u", i);
		each = ckpt_step_find(s, "", name);
		ck_assert_ptr_nonnull(each);
		ckpt_step_unref(each);
	}
}
END_TEST

static int (*below_rename)(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags);
static unsigned exchanges; // the first brings the copy in, the second takes it out again

static int rename_once(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
	if (flags & RENAME_EXCHANGE && exchanges++)
		return -EIO;
	return below_rename(from_dirfd, from, to_dirfd, to, flags);
}

START_TEST(a_leftover_that_could_not_have_its_file_back_is_told_and_has_it_at_the_next_attempt)
{
	struct ckpt_commit how = ckpt_staged_plain;
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "file", "text");

	how.writers_ns = INT64_C(30000000);
	ckpt_staged_writer(step, &w, fd);
	ckpt_staged_close_once(&w);
	ckpt_save_plant(s, "1000");
	below_rename = ckpt_hooks.rename;
	ckpt_hook_set(rename, rename_once);
	ck_error(ckpt_commit(step, &how), EEXIST);
	ckpt_hook_set(rename, below_rename);
	ck_assert_uint_eq(exchanges, 2);
	ck_assert_uint_eq(ckpt_save_errors(s, "could not get back its place"), 1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_ok(ckpt_stage_rename(step, "", "1001"));
	ck_ok(ckpt_sys.pwrite(fd, "longer text", 11, 0));
	ckpt_stage_writer_remove(&w);
	close(fd);
	ck_ok(ckpt_commit(step, &how));
	ckpt_staged_check(step, "file", "longer text");
}
END_TEST

// --- What does not reach the disk ---------------------------------------------------------------------------------------

static struct ckpt_sys below;
static unsigned syncs_of_files, syncs_to_fail;

static int failing_sync(int fd, int (*sync)(int fd))
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	if (!S_ISREG(st.st_mode) || st.st_nlink < 2)
		return sync(fd);
	syncs_of_files++;
	return syncs_to_fail && syncs_to_fail-- ? -EIO : sync(fd);
}

static int failing_fsync(int fd)
{
	return failing_sync(fd, below.fsync);
}

static int failing_fdatasync(int fd)
{
	return failing_sync(fd, below.fdatasync);
}

// The first sync of a file of several names fails.
static int commit_with_a_failing_sync(struct ckpt_step *which)
{
	int rc;

	below = ckpt_hooks;
	syncs_of_files = 0;
	syncs_to_fail = 1;
	ckpt_hook_set(fsync, failing_fsync);
	ckpt_hook_set(fdatasync, failing_fdatasync);
	rc = ckpt_commit(which, &ckpt_staged_plain);
	ckpt_save_settle(s);
	ckpt_hooks_restore(&below);
	return rc;
}

// A second sync would say that all is well, whatever was lost.
START_TEST(a_file_of_two_names_that_did_not_reach_the_disk_is_not_synced_again)
{
	struct statx stx;

	close(ckpt_staged_put(step, "file", "text"));
	ck_ok(ckpt_sys.link(step->dirfd, "file", step->dirfd, "twin"));
	ck_error(commit_with_a_failing_sync(step), EIO);
	ck_assert_uint_eq(syncs_of_files, 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "write-out failed"), 1);
	ck_error(ckpt_commit(step, &ckpt_staged_plain), EIO);
	ck_assert_int_eq(statx(step->dirfd, "twin", 0, CKPT_STATX_WANT, &stx), 0);
	ckpt_stage_rewritten(step, ckpt_store_ino(&stx));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_staged_check(step, "twin", "text");
}
END_TEST

// What was committed before is on disk: only its new name was not.
START_TEST(a_file_of_the_version_before_is_not_lost_by_a_sync_that_fails)
{
	struct ckpt_step *again;

	close(ckpt_staged_put(step, "file", "text"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_reopen(step, &again));
	ck_error(commit_with_a_failing_sync(again), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "write-out failed"), 1);
	ck_ok(ckpt_commit(again, &ckpt_staged_plain));
	ckpt_staged_check(again, "file", "text");
	ckpt_step_unref(again);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("commit refused");
	TCase *t = tcase_create("refused");

	tcase_add_checked_fixture(t, setup, ckpt_fixture_step_close);
	tcase_add_test(t, a_name_that_no_step_has_is_told);
	tcase_add_test(t, too_many_levels_are_told);
	tcase_add_test(t, a_path_that_is_too_long_is_told);
	tcase_add_test(t, too_many_attributes_are_told);
	tcase_add_loop_test(t, many_files_are_synced_at_once_unless_strangers_have_more, 0, 5);
	tcase_add_test(t, a_writer_that_is_killed_while_it_is_waited_for_fails_the_commit);
	tcase_add_loop_test(t, a_late_file_whose_writer_is_killed_fails_only_a_commit_that_waits_for_late_files, 0, 4);
	tcase_add_test(t, a_step_that_gets_its_name_by_its_commit_is_listed_once);
	tcase_add_test(t, a_leftover_that_could_not_have_its_file_back_is_told_and_has_it_at_the_next_attempt);
	tcase_add_test(t, a_file_of_two_names_that_did_not_reach_the_disk_is_not_synced_again);
	tcase_add_test(t, a_file_of_the_version_before_is_not_lost_by_a_sync_that_fails);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
