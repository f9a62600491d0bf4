// The table of steps: who may have a name, who is found by a session, and how much of their manifests is in memory.
#include "tests/support/save.h"
#include "tests/support/staged.h"

#include "core/delete.h"
#include "core/sys.h"
#include "core/util.h"

#include <stdio.h>

#define LINKS 4500 // of 4000 bytes each: two such manifests are more than what is kept in memory
#define TARGET_BYTES 4000

static char dir[PATH_MAX];
static struct ckpt_store *s;

static void setup(void)
{
	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
}

static void teardown(void)
{
	ckpt_store_close(s);
}

// --- Names ------------------------------------------------------------------------------------------------------------

static int reserve(struct ckpt_step *step, const char *folder_id, const char *name)
{
	LOCK_SCOPE(&s->lock);

	return ckpt_step_reserve_locked(step, folder_id, name);
}

static void release(struct ckpt_step *step)
{
	LOCK_SCOPE(&s->lock);

	ckpt_step_release_locked(step);
}

START_TEST(a_name_that_is_kept_for_one_is_nobody_elses)
{
	struct ckpt_step *a = ckpt_staged_begin(s, "a"), *b = ckpt_staged_begin(s, "b"), *other;

	ck_ok(reserve(a, "", "2"));
	ck_ok(reserve(a, "", "2"));
	ck_error(reserve(a, "", "3"), EBUSY);
	ck_error(reserve(a, "0123456789abcdef", "2"), EBUSY);
	ck_error(reserve(b, "", "2"), EEXIST);
	ck_error(reserve(b, "", "a"), EEXIST);
	ck_ok(reserve(b, "0123456789abcdef", "2")); // of another folder
	release(b);
	ck_error(ckpt_stage_begin(s, "", "2", 0755, 0, 0, 0, &other), EEXIST);
	ck_error(ckpt_stage_rename(b, "", "2"), EEXIST);
	ck_ok(reserve(b, "", "3"));
	release(a);
	release(a);
	ck_error(reserve(a, "", "3"), EEXIST);
	release(b);
	ck_ok(ckpt_stage_rename(b, "", "2"));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

static size_t left_count(void)
{
	struct ckpt_step **left;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &left, &count));
	ckpt_step_list_free(left, count);
	return count;
}

START_TEST(a_session_that_was_left_does_not_get_a_name_that_is_kept_for_another)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1"), **left;
	size_t count;

	ckpt_step_unref(step);
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
	ck_ok(ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &left, &count));
	ck_assert_uint_eq(count, 1);
	step = ckpt_staged_begin(s, "2");
	ck_ok(reserve(step, "", "1"));
	ck_error(ckpt_stage_resume(left[0]), EEXIST);
	ck_assert_uint_eq(left_count(), 1); // where it was
	release(step);
	ck_ok(ckpt_stage_resume(left[0]));
	ckpt_step_unref(step);
	ckpt_step_list_free(left, count);
}
END_TEST

START_TEST(what_is_deleted_does_not_come_back_to_a_name_that_is_kept_for_another)
{
	struct ckpt_step *deleted = ckpt_save_one(s, 0), *step = ckpt_staged_begin(s, "2");

	ck_ok(ckpt_delete(deleted));
	ck_ok(reserve(step, "", "1000"));
	ck_error(ckpt_undelete(deleted), EEXIST);
	ck_assert_int_eq(ckpt_step_state(deleted), CKPT_STEP_DELETED);
	release(step);
	ck_ok(ckpt_undelete(deleted));
	ck_assert_int_eq(ckpt_step_state(deleted), CKPT_STEP_COMMITTED);
	ckpt_step_unref(deleted);
	ckpt_step_unref(step);
}
END_TEST

static uint32_t versions_used(const char *folder_id)
{
	LOCK_SCOPE(&s->lock);

	return ckpt_step_versions_used_locked(s, folder_id, "1");
}

// So many that some are neighbours in the table.
START_TEST(a_name_in_many_folders_is_as_many_steps)
{
	enum { FOLDERS = 200 };
	struct ckpt_step *steps[FOLDERS], *found;
	char ids[FOLDERS][CKPT_FOLDER_ID_LEN + 1];

	for (int i = 0; i < FOLDERS; i++) {
		snprintf(ids[i], sizeof(ids[i]), "%016x", i + 1);
		ck_ok(ckpt_stage_begin(s, ids[i], "1", 0755, 0, 0, 0, &steps[i]));
		ck_ok(ckpt_staged_commit(steps[i], 0, NULL));
	}
	for (int i = 0; i < FOLDERS; i += 2)
		ck_ok(ckpt_delete(steps[i]));
	for (int i = 0; i < FOLDERS; i++) {
		found = ckpt_step_find(s, ids[i], "1");
		ck_assert_ptr_eq(found, i % 2 ? steps[i] : NULL);
		ckpt_step_unref(found);
		ck_assert_uint_eq(versions_used(ids[i]), i % 2 ? 0 : 2);
	}
	for (int i = 0; i < FOLDERS; i++)
		ckpt_step_unref(steps[i]);
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
	for (int i = 0; i < FOLDERS; i++) {
		found = ckpt_step_find(s, ids[i], "1");
		ck_assert(!found == !(i % 2));
		ckpt_step_unref(found);
		ck_assert_uint_eq(versions_used(ids[i]), i % 2 ? 0 : 2);
	}
}
END_TEST

START_TEST(a_step_is_found_by_its_session)
{
	struct ckpt_step *a = ckpt_save_one(s, 0), *b = ckpt_save_one(s, 3), *staged = ckpt_staged_begin(s, "9"),
			 *found;

	ck_ok(ckpt_delete(b));
	found = ckpt_step_of_session(s, a->session);
	ck_assert_ptr_eq(found, a);
	ckpt_step_unref(found);
	found = ckpt_step_of_session(s, b->session);
	ck_assert_ptr_eq(found, b);
	ckpt_step_unref(found);
	ck_assert_ptr_null(ckpt_step_of_session(s, staged->session));
	found = ckpt_step_live_session(s, a->session);
	ck_assert_ptr_eq(found, a);
	ckpt_step_unref(found);
	ck_assert_ptr_null(ckpt_step_live_session(s, b->session));
	ck_assert_ptr_null(ckpt_step_live_session(s, staged->session));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_step_unref(staged);
}
END_TEST

// --- Manifests in memory ----------------------------------------------------------------------------------------------

static struct ckpt_step *large(const char *name)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);
	char target[TARGET_BYTES + 1], link[16];

	memset(target, 'x', TARGET_BYTES);
	target[TARGET_BYTES] = '\0';
	for (int i = 0; i < LINKS; i++) {
		snprintf(link, sizeof(link), "%d", i);
		memcpy(target, link, strlen(link));
		ck_ok(ckpt_sys.symlink(target, step->dirfd, link));
	}
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	return step;
}

static bool in_memory(struct ckpt_step *step)
{
	LOCK_SCOPE(&s->lock);

	return step->manifest;
}

START_TEST(of_large_manifests_the_one_of_the_oldest_use_goes)
{
	struct ckpt_step *a = large("1"), *b = large("2"), *small = ckpt_save_one(s, 0);
	struct ckpt_manifest *m, *again;

	ck_assert(!in_memory(a));
	ck_assert(in_memory(b));
	ck_ok(ckpt_step_manifest(b, &m)); // used later than the small one
	ck_ok(ckpt_step_manifest(a, &again));
	ck_assert_uint_eq(ckpt_manifest_count(again), LINKS + 1);
	ck_assert(in_memory(a));
	ck_assert(!in_memory(b));
	ck_assert(!in_memory(small));
	ck_assert_uint_eq(ckpt_manifest_count(m), LINKS + 1); // who has it keeps it
	ckpt_manifest_unref(m);
	ckpt_manifest_unref(again);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_step_unref(small);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("step");
	TCase *tcase = tcase_create("step");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_name_that_is_kept_for_one_is_nobody_elses);
	tcase_add_test(tcase, a_session_that_was_left_does_not_get_a_name_that_is_kept_for_another);
	tcase_add_test(tcase, what_is_deleted_does_not_come_back_to_a_name_that_is_kept_for_another);
	tcase_add_test(tcase, a_name_in_many_folders_is_as_many_steps);
	tcase_add_test(tcase, a_step_is_found_by_its_session);
	tcase_add_test(tcase, of_large_manifests_the_one_of_the_oldest_use_goes);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
