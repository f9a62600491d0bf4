// A save over a committed step: the one that is there is listed until the commit, which takes its place in one act, or not at all.
#include "tests/support/fixture.h"

#include "core/base/util.h"
#include "core/find/find.h"
#include "core/save/delete.h"
#include "core/save/reopen.h"
#include "core/save/replace.h"
#include "core/save/stage.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static struct ckpt_step *begin(const char *name)
{
	struct ckpt_step *step;

	ck_ok(ckpt_replace_begin(s, "", name, 0755, getuid(), getgid(), getpid(), &step));
	close(ckpt_staged_put(step, "new.bin", "the new ones"));
	return step;
}

static int commit_as(struct ckpt_step *step, const char *name, bool *ret_replaced)
{
	const struct ckpt_commit how = {.folder_id = "", .name = name, .event = "verb", .profile = "generic"};
	struct ckpt_step *replaced;
	int rc = ckpt_replace_commit(step, &how, &replaced);

	if (!rc) {
		*ret_replaced = replaced != NULL;
		ckpt_step_unref(replaced);
	}
	return rc;
}

// The file that the committed step of this name has; NULL: there is no such step.
static const char *has(const char *name)
{
	struct ckpt_step *step = ckpt_find_committed(s, "", name);
	struct ckpt_manifest *m;
	const char *file;
	uint32_t index;

	if (!step || ckpt_step_is_reopened(step)) {
		ckpt_step_unref(step);
		return NULL;
	}
	ck_ok(ckpt_step_manifest(step, &m));
	file = !ckpt_manifest_lookup(m, "new.bin", &index) ? "new.bin" : "old.bin";
	ck_ok(ckpt_manifest_lookup(m, file, &index));
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	return file;
}

static size_t count_of(unsigned states)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, states, &steps, &count));
	ckpt_step_list_free(steps, count);
	return count;
}

static struct ckpt_step *old(const char *name)
{
	return ckpt_staged_one(s, name, "old.bin", "the old ones");
}

START_TEST(the_old_one_is_there_until_the_new_one_has_its_place)
{
	struct ckpt_step *base = old("1000"), *step = begin("1000"), *now;
	int64_t first_ns = base->born.first_committed_ns;
	bool replaced = false;

	ck_assert_str_eq(has("1000"), "old.bin");
	ck_assert_str_ne(step->name, "1000");
	ck_ok(commit_as(step, "1000", &replaced));
	ck_assert(replaced);
	for (int i = 0; i < 2; i++) {
		ck_assert_str_eq(has("1000"), "new.bin");
		ck_assert_uint_eq(count_of(1u << CKPT_STEP_COMMITTED), 1);
		ck_assert_uint_eq(count_of(1u << CKPT_STEP_DELETED), 1);
		ck_assert_uint_eq(count_of(1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_LEFT), 0);
		now = ckpt_find_committed(s, "", "1000");
		ck_assert_int_eq(now->born.first_committed_ns, first_ns);
		ckpt_step_unref(now);
		if (i)
			break;
		ckpt_step_unref(base);
		ckpt_step_unref(step);
		ckpt_fixture_reopen();
	}
}
END_TEST

START_TEST(a_name_that_is_free_is_taken_as_by_any)
{
	struct ckpt_step *step = begin("1000");
	bool replaced = true;

	ck_assert_str_eq(step->name, "1000");
	ck_ok(commit_as(step, "1000", &replaced));
	ck_assert(!replaced);
	ck_assert_str_eq(has("1000"), "new.bin");
	ckpt_step_unref(step);
	step = ckpt_staged_begin(s, "2000");
	ck_error(ckpt_replace_begin(s, "", "2000", 0755, 0, 0, 0, &(struct ckpt_step *){NULL}), EEXIST);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_was_deleted_meanwhile_leaves_the_name_free)
{
	struct ckpt_step *base = old("1000"), *step = begin("1000");
	bool replaced = true;

	ck_ok(ckpt_delete(base));
	ck_ok(commit_as(step, "1000", &replaced));
	ck_assert(!replaced);
	ck_assert_str_eq(has("1000"), "new.bin");
	ckpt_step_unref(base);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_commit_that_fails_leaves_both_as_they_were)
{
	struct ckpt_step *base = old("1000"), *step = begin("1000");
	struct ckpt_writer w = {.fd = -1, .ino = 7};
	char own[CKPT_NAME_MAX + 1];
	bool replaced = false;

	snprintf(own, sizeof(own), "%s", step->name);
	ckpt_stage_writer_add(step, &w);
	for (int i = 0; i < 2; i++) {
		ck_error(commit_as(step, "1000", &replaced), EBUSY);
		ck_assert_str_eq(has("1000"), "old.bin");
		ck_assert_str_eq(step->name, own);
		ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
		ck_assert(!step->reopens && !ckpt_reopen_shares(step) &&
			  step->base == base); // who looks at it may be reading there
	}
	ckpt_stage_writer_remove(&w);
	ck_ok(commit_as(step, "1000", &replaced));
	ck_assert(replaced);
	ck_assert_str_eq(has("1000"), "new.bin");
	ckpt_step_unref(base);
	ckpt_step_unref(step);
}
END_TEST

static void *commit_beside(void *arg)
{
	const struct ckpt_commit how = {
		.folder_id = "", .name = "1000", .event = "verb", .profile = "generic", .writers_ns = 100000000};
	struct ckpt_step *replaced;

	return (void *)(intptr_t)ckpt_replace_commit(arg, &how, &replaced);
}

// Each of them hears of the one attempt, and the place is given back once.
START_TEST(two_who_wait_for_one_that_fails_leave_both_as_they_were)
{
	struct ckpt_step *base = old("1000"), *step = begin("1000");
	struct ckpt_writer w = {.fd = -1, .ino = 7};
	bool replaced = false;

	ckpt_stage_writer_add(step, &w);
	for (int i = 0; i < 5; i++) {
		pthread_t threads[2];
		void *result;

		for (size_t n = 0; n < ARRAY_LEN(threads); n++)
			ck_assert(!pthread_create(&threads[n], NULL, commit_beside, step));
		for (size_t n = 0; n < ARRAY_LEN(threads); n++) {
			pthread_join(threads[n], &result);
			ck_error((int)(intptr_t)result, EBUSY);
		}
		ck_assert_str_eq(has("1000"), "old.bin");
		ck_assert(!step->reopens);
		ck_assert_uint_eq(count_of(1u << CKPT_STEP_STAGED), 1); // and stands in the table once
	}
	ckpt_stage_writer_remove(&w);
	ck_ok(commit_as(step, "1000", &replaced));
	ck_assert_str_eq(has("1000"), "new.bin");
	ckpt_step_unref(base);
	ckpt_step_unref(step);
}
END_TEST

static void never(void *arg __attribute__((unused)), struct ckpt_step *from __attribute__((unused)),
		  struct ckpt_step *to __attribute__((unused)))
{
	ck_abort_msg("nothing of the one is shown as the other's");
}

// As one whose outcome is unknown, that is dropped.
START_TEST(one_that_vanishes_in_its_place_leaves_the_old_one_there)
{
	struct ckpt_step *base = old("1000"), *step = begin("1000");

	ckpt_lock_take(&s->lock);
	ckpt_lock_take(&step->lock);
	ckpt_reopen_of(step)->fresh = true;
	ck_assert_ptr_null(ckpt_reopen_take_locked(step, base));
	ckpt_lock_drop(&step->lock);
	ckpt_lock_drop(&s->lock);
	ck_assert_ptr_null(has("1000"));
	s->calls.renew = never;
	ckpt_stage_vanish(step);
	s->calls.renew = NULL;
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_GONE);
	ck_assert_str_eq(has("1000"), "old.bin");
	ckpt_step_unref(base);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_step_that_somebody_changes_is_not_replaced)
{
	struct ckpt_step *base = old("1000"), *step = begin("1000"), *reopened;
	bool replaced = false;

	ck_ok(ckpt_reopen(base, &reopened));
	ck_error(commit_as(step, "1000", &replaced), EBUSY);
	ck_ok(ckpt_stage_abort(reopened, false));
	ck_assert_str_eq(has("1000"), "old.bin");
	ck_ok(commit_as(step, "1000", &replaced));
	ck_assert_str_eq(has("1000"), "new.bin");
	ckpt_step_unref(reopened);
	ckpt_step_unref(base);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_nobody_completes_is_left_over_beside_it)
{
	struct ckpt_step *base = old("1000"), *step = begin("1000");

	ckpt_step_unref(base);
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	ck_assert_str_eq(has("1000"), "old.bin");
	ck_assert_uint_eq(count_of(1u << CKPT_STEP_STAGED), 1);
}
END_TEST

START_TEST(of_two_the_last_one_has_the_name)
{
	struct ckpt_step *base = old("1000"), *a = begin("1000"), *b = begin("1000");
	bool replaced = false;

	ck_ok(commit_as(a, "1000", &replaced));
	ck_ok(commit_as(b, "1000", &replaced));
	ck_assert(replaced);
	ck_assert_uint_eq(count_of(1u << CKPT_STEP_DELETED), 2);
	ck_ok(commit_as(b, "1000", &replaced)); // who asks again had no answer
	ck_assert(!replaced);
	ckpt_step_unref(base);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("replace");
	TCase *tcase = tcase_create("replace");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, the_old_one_is_there_until_the_new_one_has_its_place);
	tcase_add_test(tcase, a_name_that_is_free_is_taken_as_by_any);
	tcase_add_test(tcase, what_was_deleted_meanwhile_leaves_the_name_free);
	tcase_add_test(tcase, a_commit_that_fails_leaves_both_as_they_were);
	tcase_add_test(tcase, one_that_vanishes_in_its_place_leaves_the_old_one_there);
	tcase_add_test(tcase, two_who_wait_for_one_that_fails_leave_both_as_they_were);
	tcase_add_test(tcase, a_step_that_somebody_changes_is_not_replaced);
	tcase_add_test(tcase, what_nobody_completes_is_left_over_beside_it);
	tcase_add_test(tcase, of_two_the_last_one_has_the_name);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
