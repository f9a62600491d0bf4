// Renaming a step: whatever call fails, and wherever it is cut off, the step has one name, and all its bytes.
#include "tests/support/save.h"
#include "tests/support/staged.h"
#include "tests/support/sysfault.h"

#include "core/delete.h"
#include "core/move.h"
#include "core/trash.h"
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
	struct ckpt_step **steps;
	bool stop = false;
	size_t count;

	ckpt_expire_before(s, INT64_MAX, &stop);
	ckpt_trash_drain(s->trash);
	ck_ok(ckpt_step_list(s, NULL, 1u << CKPT_STEP_DELETED, &steps, &count));
	ckpt_step_list_free(steps, count);
	return count;
}

// What says that it was moved expires, however much of it is left, and never takes the files of the step along.
START_TEST(what_the_old_name_says_expires_without_the_step)
{
	char object[PATH_MAX + 32];

	ck_ok(move("1000", "best"));
	snprintf(object, sizeof(object), "%s/steps/1000/1", dir); // an expiry that was cut
	ck_assert_int_eq(unlink(object), 0);
	reopen();
	ck_assert(has("best"));
	ck_assert_uint_eq(expire_all(), 0);
	ck_assert(has("best"));
	reopen();
	ck_assert(has("best"));
	check_one();
	ck_ok(move("best", "1000")); // and where it was before
	ck_ok(move("1000", "best"));
	ck_ok(move("best", "1000"));
	ck_assert_uint_eq(expire_all(), 0);
	ck_assert(has("1000"));
	reopen();
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
	reopen();
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
		reopen();
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

int main(void)
{
	Suite *suite = suite_create("move");
	TCase *tcase = tcase_create("move");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_name_that_is_taken_or_is_none_is_refused);
	tcase_add_test(tcase, a_call_that_fails_leaves_one_name);
	tcase_add_test(tcase, what_the_old_name_says_expires_without_the_step);
	tcase_add_test(tcase, a_step_that_came_back_to_its_name_is_deleted_and_had_back_as_any_other);
	tcase_add_test(tcase, a_renaming_that_was_not_answered_brings_no_deleted_step_back);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
