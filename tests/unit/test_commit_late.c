// Late files in a commit: other ranks may still be writing them when the framework says that its step is complete. The commit
// leaves them out, and each is pending from its end on; where it fails, they are staged as before.
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "tests/support/fixture_step.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/step/reopened.h"

#define MS INT64_C(1000000)

static struct ckpt_writer w; // of the file "late"
static int fd;

static void setup(void)
{
	ckpt_fixture_step_open("1");
	close(ckpt_staged_put(step, "file", "text"));
	fd = ckpt_staged_put(step, "late", "half");
	ckpt_staged_writer(step, &w, fd);
	w.late = true;
}

static void end_writer(void)
{
	if (fd < 0)
		return;
	ckpt_stage_writer_remove(&w);
	close(TAKE_FD(fd));
}

static void teardown(void)
{
	end_writer();
	ckpt_fixture_step_close();
}

static int commit_leaving(void)
{
	struct ckpt_commit how = ckpt_staged_plain;

	how.leaves_late = true;
	return ckpt_commit(step, &how);
}

START_TEST(a_late_file_is_left_out_and_can_be_added)
{
	ck_ok(commit_leaving());
	ckpt_staged_check(step, "file", "text");
	ck_assert(!ckpt_staged_has(step, "late"));
	ck_assert(ckpt_amending_is_pending(step, "late"));
	ck_ok(ckpt_sys.pwrite(fd, "whole", 5, 0));
	ck_ok(ckpt_stage_writer_await(&w));
	end_writer();
	ck_ok(ckpt_amend_add(step, "late"));
	ckpt_staged_check(step, "late", "whole");
}
END_TEST

START_TEST(a_late_file_goes_along_when_the_step_is_reopened)
{
	struct ckpt_step *again;

	ck_ok(commit_leaving());
	ck_ok(ckpt_reopen(step, &again));
	ck_ok(ckpt_sys.pwrite(fd, "whole", 5, 0));
	end_writer();
	ck_ok(ckpt_commit(again, &ckpt_staged_plain));
	ckpt_staged_check(again, "late", "whole");
	ckpt_staged_check(again, "file", "text");
	ckpt_step_unref(again);
}
END_TEST

START_TEST(only_a_commit_that_leaves_late_files_does)
{
	ck_error(ckpt_staged_commit(step, 5 * MS, NULL), EBUSY);
	ck_assert(!ckpt_amending_is_pending(step, "late"));
	end_writer();
	ck_ok(ckpt_staged_commit(step, 5 * MS, NULL));
	ckpt_staged_check(step, "late", "half");
}
END_TEST

START_TEST(a_late_file_holds_up_no_blame_for_others)
{
	struct ckpt_writer other;
	int other_fd = ckpt_staged_put(step, "other", "text");

	ckpt_staged_writer(step, &other, other_fd);
	ck_error(commit_leaving(), EBUSY);
	ck_assert_uint_eq(ckpt_save_errors(s, "other"), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "late"), 0);
	ckpt_stage_writer_remove(&other);
	close(other_fd);
	ck_ok(commit_leaving());
	ck_assert(ckpt_staged_has(step, "other") && !ckpt_staged_has(step, "late"));
}
END_TEST

START_TEST(a_late_file_that_was_closed_is_in_the_step)
{
	ckpt_staged_close_once(&w);
	ck_ok(commit_leaving());
	ckpt_staged_check(step, "late", "half");
	ck_assert(!ckpt_amending_is_pending(step, "late"));
}
END_TEST

START_TEST(a_late_file_is_staged_as_before_when_the_commit_fails)
{
	struct ckpt_fault fault = {.at = 1, .error = -ENOSPC, .sticky = true};

	ckpt_save_fault(s, &fault);
	ck_error(commit_leaving(), ENOSPC);
	ck_ok(ckpt_stage_writer_await(&w));
	ck_assert(!w.left && !ckpt_amending_is_pending(step, "late"));
	ck_ok(ckpt_sys.pwrite(fd, "whole", 5, 0));
	end_writer();
	__atomic_store_n(&fault.at, 0, __ATOMIC_RELAXED);
	ck_ok(commit_leaving());
	ckpt_staged_check(step, "late", "whole");
	ck_assert(!ckpt_amending_is_pending(step, "late"));
}
END_TEST

// Whether the file belongs to a step that is there is not known: who closes it is told.
START_TEST(a_late_file_that_is_closed_while_the_outcome_is_unknown_is_refused)
{
	struct ckpt_fault fault = {.at = 1, .error = -EIO, .half = true, .sticky = true};

	ckpt_save_fault(s, &fault);
	ck_error(commit_leaving(), EIO);
	ck_error(ckpt_stage_writer_await(&w), EIO);
	end_writer();
	__atomic_store_n(&fault.at, 0, __ATOMIC_RELAXED);
	ck_ok(commit_leaving());
	ck_assert(!ckpt_staged_has(step, "late") && !ckpt_amending_is_pending(step, "late"));
}
END_TEST

START_TEST(a_late_file_that_is_open_when_the_outcome_is_known_can_be_added)
{
	struct ckpt_fault fault = {.at = 1, .error = -EIO, .half = true, .sticky = true};

	ckpt_save_fault(s, &fault);
	ck_error(commit_leaving(), EIO);
	__atomic_store_n(&fault.at, 0, __ATOMIC_RELAXED);
	ck_ok(commit_leaving());
	ck_assert(!ckpt_staged_has(step, "late") && ckpt_amending_is_pending(step, "late"));
	ck_ok(ckpt_stage_writer_await(&w));
	end_writer();
	ck_ok(ckpt_amend_add(step, "late"));
	ckpt_staged_check(step, "late", "half");
}
END_TEST

// fsync says so once: a second one finds nothing to write.
START_TEST(a_lost_write_of_a_late_file_is_known_until_it_is_added)
{
	ckpt_stage_synced(step, w.ino, 0, 0, -EIO);
	ck_ok(commit_leaving());
	end_writer();
	ck_error(ckpt_amend_add(step, "late"), EIO);
	ck_assert(!ckpt_staged_has(step, "late"));
}
END_TEST

START_TEST(a_leftover_beside_a_late_file_gets_its_copy)
{
	int left_fd = ckpt_staged_put(step, "left", "as it was");
	struct ckpt_writer left;

	ckpt_staged_writer(step, &left, left_fd);
	ck_error(commit_leaving(), EBUSY); // it is no late one
	ck_assert_uint_eq(ckpt_save_errors(s, "being written: left\t"), 1);
	ckpt_staged_close_once(&left);
	ck_ok(commit_leaving());
	ck_assert_uint_eq(ckpt_save_errors(s, "still open for writing"), 1);
	ck_ok(ckpt_sys.pwrite(left_fd, "as it is", 8, 0));
	ckpt_staged_check(step, "left", "as it was");
	ck_assert(!ckpt_staged_has(step, "late"));
	ck_assert(ckpt_amending_is_pending(step, "late"));
	ckpt_stage_writer_remove(&left);
	close(left_fd);
}
END_TEST

static Suite *late_suite(void)
{
	Suite *suite = suite_create("commit late");
	TCase *tcase = tcase_create("late");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_leftover_beside_a_late_file_gets_its_copy);
	tcase_add_test(tcase, a_late_file_is_left_out_and_can_be_added);
	tcase_add_test(tcase, a_late_file_goes_along_when_the_step_is_reopened);
	tcase_add_test(tcase, only_a_commit_that_leaves_late_files_does);
	tcase_add_test(tcase, a_late_file_holds_up_no_blame_for_others);
	tcase_add_test(tcase, a_late_file_that_was_closed_is_in_the_step);
	tcase_add_test(tcase, a_late_file_is_staged_as_before_when_the_commit_fails);
	tcase_add_test(tcase, a_late_file_that_is_closed_while_the_outcome_is_unknown_is_refused);
	tcase_add_test(tcase, a_late_file_that_is_open_when_the_outcome_is_known_can_be_added);
	tcase_add_test(tcase, a_lost_write_of_a_late_file_is_known_until_it_is_added);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(late_suite());
}
