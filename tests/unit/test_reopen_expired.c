// Versions of a step that was reopened again and again, and that expire in any order.
#include "tests/support/reopening.h"

static struct ckpt_step *next_version(const char *text)
{
	struct ckpt_step *step = base ? reopen() : ckpt_staged_begin(s, "1000");

	if (base)
		write_anew(step, "config.json", text);
	else
		close(ckpt_staged_put(step, "config.json", text));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	return step;
}

START_TEST(of_versions_that_expire_in_any_order_none_comes_back)
{
	static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	char sessions[3][37];

	for (int n = 0; n < 3; n++) {
		if (n) {
			struct ckpt_step *step = next_version("next");

			ckpt_step_unref(base);
			base = step;
		}
		snprintf(sessions[n], sizeof(sessions[n]), "%s", base->session);
	}
	ck_ok(ckpt_delete(base));
	for (size_t n = 0; n < 3; n++) {
		struct ckpt_step *step;

		if (_i % 2)
			start_anew();
		step = ckpt_step_of_session(s, sessions[orders[_i / 2][n]]);
		ck_assert_ptr_nonnull(step);
		ck_ok(ckpt_expire(step));
		ckpt_step_unref(step);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 2 - n);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 0);
	}
	start_anew();
	ck_assert_ptr_null(base);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
}
END_TEST

// The older one has the deletion of the newer one, comes back and goes: no number of a version is in the way of the next.
START_TEST(no_version_that_is_left_is_in_the_way_of_the_next)
{
	struct ckpt_step *newer = next_version("newer");

	ck_ok(ckpt_delete(newer));
	ck_ok(ckpt_expire(newer));
	ckpt_step_unref(newer);
	ck_ok(ckpt_undelete(base));
	ck_ok(ckpt_delete(base));
	ck_ok(ckpt_expire(base));
	ckpt_step_unref(TAKE_PTR(base));
	if (_i)
		start_anew();
	for (int n = 0; n < 8; n++) {
		struct ckpt_step *step = next_version("again");

		ckpt_step_unref(base);
		base = step;
	}
	start_anew();
	ckpt_staged_check(base, "config.json", "again");
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 7);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reopen expired");
	TCase *ends = tcase_create("ends");

	tcase_add_checked_fixture(ends, setup, teardown);
	tcase_add_loop_test(ends, of_versions_that_expire_in_any_order_none_comes_back, 0, 12);
	tcase_add_loop_test(ends, no_version_that_is_left_is_in_the_way_of_the_next, 0, 2);
	suite_add_tcase(suite, ends);
	return ckpt_suite_run(suite);
}
