// Renaming a step: whatever call fails, and wherever it is cut off, the step has one name, and all its bytes.
#include "tests/support/save.h"
#include "tests/support/staged.h"
#include "tests/support/sysfault.h"

#include "core/delete.h"
#include "core/move.h"
#include "core/util.h"

#include <stdio.h>

static char dir[PATH_MAX];
static struct ckpt_store *s;

static void setup(void)
{
	struct ckpt_step *step;

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	step = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(step, "model.bin", "the bytes"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(step);
}

static void teardown(void)
{
	ckpt_store_close(s);
}

static void reopen(void)
{
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
}

static bool has(const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);
	bool there = step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;

	if (there)
		ckpt_staged_check(step, "model.bin", "the bytes");
	ckpt_step_unref(step);
	return there;
}

static int move(const char *from, const char *to)
{
	struct ckpt_step *step = ckpt_step_find(s, "", from);
	int rc = step ? ckpt_move(step, "", to) : -ENOENT;

	ckpt_step_unref(step);
	return rc;
}

// The step alone, and nothing in the trash or left over.
static void check_one(void)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_LEFT, &steps, &count));
	ck_assert_uint_eq(count, 1);
	ckpt_step_list_free(steps, count);
	ck_ok(ckpt_deleted_list(s, &steps, &count));
	ck_assert_uint_eq(count, 0);
	ckpt_step_list_free(steps, count);
}

START_TEST(a_name_that_is_taken_or_is_none_is_refused)
{
	ck_error(move("1000", "1000"), EEXIST);
	ck_error(move("1000", ".."), EINVAL);
	ck_error(move("1000", "a\001b"), EINVAL);
	ck_assert(has("1000"));
	ck_ok(move("1000", "best"));
	ck_error(move("best", ""), EINVAL);
	ck_assert(has("best") && !has("1000"));
	check_one();
}
END_TEST

// Each call of the renaming fails, once or from there on; and then the process ends, or goes on and tries again.
START_TEST(a_call_that_fails_leaves_one_name)
{
	const char *names[] = {"1000", "best"};
	unsigned from = 0;

	for (int mode = 0; mode < 4; mode++) {
		bool failed = true;

		for (uint64_t at = 1; failed; at++) {
			struct ckpt_sysfault fault = {
				.at = at, .error = -EIO, .sticky = mode & 1, .changes_only = true};
			int rc;

			ckpt_sysfault_begin(&fault);
			rc = move(names[from], names[!from]);
			ckpt_sysfault_end(&fault);
			failed = fault.count >= at;
			ck_assert_msg(rc == 0 || failed, "mode %d, call %llu, from %s: %s", mode,
				      (unsigned long long)at, names[from], strerror(-rc));
			if (mode & 2) { // asked again under the living process
				if (rc)
					ck_ok(move(names[from], names[!from]));
				ck_assert(has(names[!from]) && !has(names[from]));
			}
			reopen();
			check_one();
			ck_assert_int_ne(has(names[0]), has(names[1]));
			if (rc == 0 || mode & 2)
				ck_assert(has(names[!from]));
			from = has(names[1]);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("move");
	TCase *tcase = tcase_create("move");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_name_that_is_taken_or_is_none_is_refused);
	tcase_add_test(tcase, a_call_that_fails_leaves_one_name);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
