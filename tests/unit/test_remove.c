// A step that is removed piece by piece: what is marked, what is refused, and when the marks are void.
#include "tests/support/fixture.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/amend.h"
#include "core/commit/remove.h"
#include "core/record/manifest.h"

static struct ckpt_step *step;
static struct ckpt_manifest *m; // of the version that was committed
static struct ckpt_fault fault;

static void setup(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(step, "model.bin", "committed"));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	close(ckpt_staged_put(step, "sub/w", "w"));
	close(ckpt_staged_put(step, "late", "late"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_amend_remove(step, "late")); // in the session's directory, and in no version any more
	ck_ok(ckpt_step_manifest(step, &m));
	fault = (struct ckpt_fault){0};
	ck_ok(ckpt_backend_fault_new(s->backend, &fault, &s->backend));
}

static void teardown(void)
{
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static uint32_t index_of(const char *path)
{
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	return index;
}

START_TEST(each_piece_goes_by_the_call_for_it_the_inner_ones_first)
{
	uint32_t sub = index_of("sub");

	ck_error(ckpt_remove_entry(step, m, 0, "model.bin", true), ENOTDIR);
	ck_error(ckpt_remove_entry(step, m, 0, "sub", false), EISDIR);
	ck_error(ckpt_remove_entry(step, m, 0, "sub", true), ENOTEMPTY);
	ck_assert(!ckpt_remove_any(step));
	ck_ok(ckpt_remove_entry(step, m, 0, "model.bin", false));
	ck_error(ckpt_remove_entry(step, m, 0, "sub", true), ENOTEMPTY);
	ck_ok(ckpt_remove_entry(step, m, sub, "w", false));
	ck_error(ckpt_remove_whole(step), ENOTEMPTY);
	ck_ok(ckpt_remove_entry(step, m, 0, "sub", true));
	ck_assert(ckpt_remove_has(step, sub) && ckpt_remove_has(step, index_of("sub/w")));
	ck_assert(!ckpt_remove_has(step, 0));
	ck_assert(!ckpt_remove_has(step, 100000)); // by who still has a larger version of before
	ck_ok(ckpt_remove_whole(step));
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED);
	ck_assert(!ckpt_remove_any(step));
}
END_TEST

START_TEST(a_step_that_is_not_being_removed_is_not_given_up)
{
	ck_assert(!ckpt_remove_hides(step));
	ckpt_remove_give_up(step);
	ck_assert_uint_eq(ckpt_save_errors(s, "its removal was not brought to an end"), 0);
	ck_ok(ckpt_remove_entry(step, m, 0, "model.bin", false));
	ck_assert(ckpt_remove_hides(step));
	ckpt_remove_give_up(step); // it does not stand still
	ck_assert(ckpt_remove_hides(step));
	ck_assert_uint_eq(ckpt_save_errors(s, "its removal was not brought to an end"), 0);
}
END_TEST

// The answer to an amend was lost, and the removal began before it came to light: the entries are others then.
START_TEST(marks_of_another_version_say_nothing)
{
	fault = (struct ckpt_fault){.at = 2, .error = -EIO, .half = true, .sticky = true};
	ck_error(ckpt_amend_add(step, "late"), EIO);
	fault.at = 0;
	ck_ok(ckpt_remove_entry(step, m, 0, "model.bin", false));
	ck_assert(ckpt_remove_has(step, index_of("model.bin")));
	ck_ok(ckpt_amend_settle(step));
	ck_assert(!ckpt_remove_has(step, index_of("model.bin")));
	ck_error(ckpt_remove_entry(step, m, index_of("sub"), "w", false), EBUSY);
	ckpt_manifest_unref(m);
	ck_ok(ckpt_step_manifest(step, &m));
	ck_ok(ckpt_remove_entry(step, m, index_of("sub"), "w", false));
	ck_assert(ckpt_remove_has(step, index_of("sub/w")));
	ck_assert(!ckpt_remove_has(step, index_of("model.bin")));
	ckpt_staged_check(step, "late", "late");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remove");
	TCase *tcase = tcase_create("remove");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, each_piece_goes_by_the_call_for_it_the_inner_ones_first);
	tcase_add_test(tcase, a_step_that_is_not_being_removed_is_not_given_up);
	tcase_add_test(tcase, marks_of_another_version_say_nothing);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
