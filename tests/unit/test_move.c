// Renaming a step: whatever call fails, and wherever it is cut off, the step has one name, and all its bytes.
#include "core/store/open.h"
#include "tests/support/backendfault.h"
#include "tests/support/fixture.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>

static void setup(void)
{
	ckpt_fixture_open();
	ckpt_step_unref(ckpt_staged_one(s, "1000", "model.bin", "the bytes"));
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

	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED) + ckpt_save_count(s, CKPT_STEP_LEFT), 1);
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
			ckpt_fixture_reopen();
			check_one();
			ck_assert_int_ne(has(names[0]), has(names[1]));
			if (rc == 0 || mode & 2)
				ck_assert(has(names[!from]));
			from = has(names[1]);
		}
	}
}
END_TEST

// The step in the trash of this name, with a reference, or NULL.
static struct ckpt_step *find_in_trash(struct ckpt_store *store, const char *name)
{
	struct ckpt_step **steps, *found = NULL;
	size_t count;

	ck_ok(ckpt_deleted_list(store, &steps, &count));
	for (size_t i = 0; i < count; i++)
		if (!strcmp(steps[i]->name, name) && !found)
			found = ckpt_step_ref(steps[i]);
	ckpt_step_list_free(steps, count);
	return found;
}

static size_t expire_all(void)
{
	bool stop = false;

	ckpt_expire_before(s, INT64_MAX, &stop);
	ckpt_trash_drain(*ckpt_trash_of(s));
	return ckpt_save_count(s, CKPT_STEP_DELETED);
}

START_TEST(the_old_name_leaves_nothing_that_expires)
{
	ck_ok(move("1000", "best"));
	ckpt_fixture_reopen();
	ck_assert(has("best"));
	ck_assert_uint_eq(expire_all(), 0);
	ck_assert(has("best"));
	ckpt_fixture_reopen();
	ck_assert(has("best"));
	check_one();
	ck_ok(move("best", "1000")); // and where it was before
	ck_ok(move("1000", "best"));
	ck_ok(move("best", "1000"));
	ck_assert_uint_eq(expire_all(), 0);
	ck_assert(has("1000"));
	ckpt_fixture_reopen();
	ck_assert(has("1000") && !has("best"));
	check_one();
}
END_TEST

START_TEST(a_step_that_came_back_to_its_name_is_deleted_and_had_back_as_any_other)
{
	struct ckpt_step *step;

	ck_ok(move("1000", "best"));
	ck_ok(move("best", "1000"));
	step = ckpt_step_find(s, "", "1000");
	ck_ok(ckpt_delete(step));
	ck_assert(!has("1000") && !has("best"));
	ck_ok(ckpt_undelete(step));
	ckpt_step_unref(step);
	ck_assert(has("1000"));
	ckpt_fixture_reopen();
	ck_assert(has("1000"));
	check_one();
}
END_TEST

// The deletion of the old name fails for good; then the step is deleted: what was put under the new name is void.
START_TEST(a_renaming_that_was_not_answered_brings_no_deleted_step_back)
{
	bool deleted = false;

	for (uint64_t at = 1; at < 40; at++) {
		struct ckpt_sysfault fault = {.at = at, .error = -EIO, .sticky = true, .changes_only = true};
		struct ckpt_step *step = ckpt_step_find(s, "", "1000");
		int rc;

		ckpt_sysfault_begin(&fault);
		rc = ckpt_move(step, "", "best");
		ckpt_sysfault_end(&fault);
		if (rc && ckpt_step_state(step) == CKPT_STEP_COMMITTED) {
			rc = ckpt_move(step, "", "other");
			ck_assert(rc == 0 || rc == -EBUSY);
			if (rc == 0)
				ck_ok(ckpt_move(step, "", "1000"));
			rc = ckpt_delete(step);
			deleted |= rc == 0;
		}
		ckpt_step_unref(step);
		ckpt_fixture_reopen();
		if (rc) { // it was renamed, as asking again said
			ck_error(rc, ESTALE);
			ck_assert(has("best"));
			check_one();
			break;
		}
		if (has("best"))
			break; // nothing failed any more
		ck_assert(!has("1000") && !has("other"));
		step = find_in_trash(s, "1000");
		if (step) {
			ck_ok(ckpt_undelete(step));
			ckpt_step_unref(step);
		}
		ck_assert(has("1000"));
	}
	ck_assert(deleted);
}
END_TEST

// --- Refusals -----------------------------------------------------------------------------------------------------------

START_TEST(what_is_not_committed_is_not_renamed)
{
	struct ckpt_step *staged = ckpt_staged_begin(s, "2000"), *step = ckpt_step_find(s, "", "1000");

	ck_error(ckpt_move(staged, "", "best"), ESTALE);
	ckpt_step_unref(staged);
	ck_ok(ckpt_delete(step));
	ck_error(ckpt_move(step, "", "best"), ESTALE);
	ck_assert(!has("best"));
	ck_ok(ckpt_undelete(step));
	ck_error(ckpt_move(step, "no folder's id", "best"), EINVAL);
	ck_ok(ckpt_move(step, "", "best"));
	ckpt_step_unref(step);
	ck_assert(has("best"));
}
END_TEST

START_TEST(each_refusal_has_its_hint)
{
	static const int refusals[] = {EEXIST, ENOENT, EBUSY, ESTALE};

	ck_assert_ptr_null(ckpt_move_hint(-ENOSPC)); // what goes for it anywhere
	ck_assert_str_eq(ckpt_move_hint(-ENOENT), ckpt_move_hint(-ENOTDIR));
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(ckpt_move_hint(-refusals[i]), ckpt_move_hint(-refusals[k]));
}
END_TEST

// --- A backend that fails -----------------------------------------------------------------------------------------------

static unsigned names_for_a_reader(const char *const names[2])
{
	struct ckpt_store *own = s;
	unsigned count;

	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	count = has(names[0]) + has(names[1]);
	ckpt_store_close(s);
	s = own;
	return count;
}

START_TEST(an_object_that_fails_or_an_answer_that_is_lost_leaves_one_name)
{
	const char *names[] = {"1000", "best"};
	bool again = _i % 2, fired = true;
	unsigned from = 0;

	for (uint64_t n = 1; fired; n++) {
		struct ckpt_fault fault = {0};
		int rc;

		ck_assert_uint_lt(n, 100);
		ckpt_save_fault(s, &fault);
		fault = ckpt_objectsfault_ways[_i / 2];
		fault.at = n;
		rc = move(names[from], names[!from]);
		fired = fault.count >= n;
		fault.at = 0;
		ck_assert(!rc || fired);
		ck_assert_uint_eq(names_for_a_reader(names), 1);
		if (rc && again)
			ck_ok(move(names[from], names[!from]));
		if (!rc || again)
			ck_assert(has(names[!from]) && !has(names[from]));
		ckpt_fixture_reopen();
		check_one();
		ck_assert_int_ne(has(names[0]), has(names[1]));
		if (!rc || again)
			ck_assert(has(names[!from]));
		from = has(names[1]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("move");
	TCase *tcase = tcase_create("move");

	tcase_add_checked_fixture(tcase, setup, ckpt_fixture_close);
	tcase_add_test(tcase, a_name_that_is_taken_or_is_none_is_refused);
	tcase_add_test(tcase, a_call_that_fails_leaves_one_name);
	tcase_add_test(tcase, the_old_name_leaves_nothing_that_expires);
	tcase_add_test(tcase, a_step_that_came_back_to_its_name_is_deleted_and_had_back_as_any_other);
	tcase_add_test(tcase, a_renaming_that_was_not_answered_brings_no_deleted_step_back);
	tcase_add_test(tcase, what_is_not_committed_is_not_renamed);
	tcase_add_test(tcase, each_refusal_has_its_hint);
	tcase_add_loop_test(tcase, an_object_that_fails_or_an_answer_that_is_lost_leaves_one_name, 0,
			    2 * CKPT_BACKENDFAULT_WAYS);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
