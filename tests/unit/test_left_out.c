// Files that a killed writer has left cut off: the step is committed without them, and nothing of them is lost.
#include "core/save/stage.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>

#define WHY "a killed process had not written it to its end"

static struct ckpt_step *step;
static const char *const cut[] = {"b.npy", "d/e/c.npy"};

static void setup(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "d", 0755));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "d/e", 0755));
	ckpt_staged_put_array(step, "a.npy", 'a', 8);
	ckpt_staged_put_array(step, cut[0], 'b', 4);
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static bool stands(struct ckpt_step *in, const char *path)
{
	CLEANUP_FD int dirfd = ckpt_sys.open(s->sessions_fd, in->session, O_RDONLY | O_DIRECTORY, 0);

	ck_ok(dirfd);
	return !faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

static void check_committed(size_t count)
{
	struct ckpt_step *left = ckpt_save_left(s);

	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ck_assert(ckpt_staged_has(step, "a.npy"));
	ck_assert_str_eq(left->name, "1000");
	for (size_t i = 0; i < count; i++) {
		ck_assert(!ckpt_staged_has(step, cut[i]));
		ck_assert(!stands(step, cut[i]));
		ck_assert(stands(left, cut[i]));
	}
	ckpt_step_unref(left);
}

START_TEST(a_file_that_is_cut_off_is_kept_as_a_session)
{
	size_t count = 1 + (size_t)_i;

	if (_i)
		ckpt_staged_put_array(step, cut[1], 'c', 4);
	ckpt_stage_interrupt(step);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	check_committed(count);
	ck_assert_uint_eq(ckpt_save_errors(s, _i ? " and 1 more: " WHY : "b.npy: " WHY), 1);
	ckpt_step_unref(TAKE_PTR(step));
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "1000");
	check_committed(count);
}
END_TEST

// Its writer is not known to be dead: the format alone says nothing.
START_TEST(a_file_that_is_cut_off_is_part_of_a_step_that_was_not_interrupted)
{
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_assert(ckpt_staged_has(step, cut[0]));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
}
END_TEST

static struct ckpt_sys below;
static int failing; // which call

static int failing_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	return failing == 0 ? -ENOSPC : below.link(from_dirfd, from, to_dirfd, to);
}

static int failing_mkdir(int dirfd, const char *path, mode_t mode)
{
	return failing == 1 && !strcmp(path, "d/e") ? -ENOSPC : below.mkdir(dirfd, path, mode);
}

static struct ckpt_fault fault;

// The commit is refused, all files are in the staged step, and no session has them.
START_TEST(a_commit_that_fails_leaves_out_nothing)
{
	ckpt_staged_put_array(step, cut[1], 'c', 4);
	ckpt_stage_interrupt(step);
	below = ckpt_hooks;
	failing = _i;
	ckpt_save_fault(s, &fault);
	fault = (struct ckpt_fault){.at = _i == 2 ? 1 : 0, .error = -ENOSPC, .sticky = true};
	ckpt_hook_set(link, failing_link);
	ckpt_hook_set(mkdir, failing_mkdir);
	ck_error(ckpt_commit(step, &ckpt_staged_plain), ENOSPC);
	ckpt_hook_set(link, below.link);
	ckpt_hook_set(mkdir, below.mkdir);
	fault.at = 0;
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	ck_assert(stands(step, cut[0]) && stands(step, cut[1]));
	ck_assert_uint_eq(ckpt_save_errors(s, WHY), 0);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	check_committed(2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("left out");
	TCase *files = tcase_create("files");

	tcase_add_checked_fixture(files, setup, teardown);
	tcase_add_loop_test(files, a_file_that_is_cut_off_is_kept_as_a_session, 0, 2);
	tcase_add_test(files, a_file_that_is_cut_off_is_part_of_a_step_that_was_not_interrupted);
	tcase_add_loop_test(files, a_commit_that_fails_leaves_out_nothing, 0, 3);
	suite_add_tcase(suite, files);
	return ckpt_suite_run(suite);
}
