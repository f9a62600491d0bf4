// The table of steps: who may have a name, who is found by a session, and how much of their manifests is in memory.
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/follow.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/step/reopened.h"
#include "core/store/load.h"

#include <stdio.h>

#define LINKS                                                                                                          \
	4500 // of 4000 bytes each: two such manifests are more than what is kept in memory, as is one of twice as many
#define TARGET_BYTES 4000

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

START_TEST(a_session_that_was_left_does_not_get_a_name_that_is_kept_for_another)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1"), *left;

	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	left = ckpt_save_set_aside(s);
	step = ckpt_staged_begin(s, "2");
	ck_ok(reserve(step, "", "1"));
	ck_error(ckpt_stage_resume(left), EEXIST);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 1); // where it was
	release(step);
	ck_ok(ckpt_stage_resume(left));
	ckpt_step_unref(step);
	ckpt_step_unref(left);
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

START_TEST(a_reopened_step_can_have_its_own_name_and_no_other_steps)
{
	struct ckpt_step *base = ckpt_save_one(s, 0), *other = ckpt_staged_begin(s, "b"), *step;

	ck_ok(ckpt_reopen(base, &step));
	ck_error(reserve(step, "", "b"), EEXIST);
	ck_ok(reserve(step, "", base->name));
	release(step);
	ckpt_step_unref(step);
	ckpt_step_unref(other);
	ckpt_step_unref(base);
}
END_TEST

static uint32_t versions_used(const char *folder_id, const char *name)
{
	LOCK_SCOPE(&s->lock);

	return ckpt_step_versions_used_locked(s, folder_id, name);
}

enum { MANY = 200 }; // so many that some are neighbours in the table

// One name in many folders, or many names in one.
static void many(bool in_folders, char (*ret_ids)[CKPT_FOLDER_ID_LEN + 1], char (*ret_names)[8])
{
	for (int i = 0; i < MANY; i++) {
		snprintf(ret_ids[i], CKPT_FOLDER_ID_LEN + 1, "%.*x", in_folders ? CKPT_FOLDER_ID_LEN : 0,
			 in_folders ? i + 1 : 0);
		snprintf(ret_names[i], sizeof(ret_names[i]), "%d", in_folders ? 1 : i + 1);
	}
}

START_TEST(many_names_or_one_in_many_folders_are_as_many_steps)
{
	char ids[MANY][CKPT_FOLDER_ID_LEN + 1], names[MANY][8];
	struct ckpt_step *steps[MANY], *found;

	many(_i, ids, names);
	for (int i = 0; i < MANY; i++) {
		ck_ok(ckpt_stage_begin(s, ids[i], names[i], 0755, 0, 0, 0, &steps[i]));
		ck_ok(ckpt_staged_commit(steps[i], 0, NULL));
	}
	for (int i = 0; i < MANY; i += 2)
		ck_ok(ckpt_delete(steps[i]));
	for (int i = 0; i < MANY; i++) {
		found = ckpt_step_find(s, ids[i], names[i]);
		ck_assert_ptr_eq(found, i % 2 ? steps[i] : NULL);
		ckpt_step_unref(found);
		ck_assert_uint_eq(versions_used(ids[i], names[i]), i % 2 ? 0 : 2);
	}
	for (int i = 0; i < MANY; i++)
		ckpt_step_unref(steps[i]);
	ckpt_fixture_reopen();
	for (int i = 0; i < MANY; i++) {
		found = ckpt_step_find(s, ids[i], names[i]);
		ck_assert(!found == !(i % 2));
		ckpt_step_unref(found);
		ck_assert_uint_eq(versions_used(ids[i], names[i]), i % 2 ? 0 : 2);
	}
}
END_TEST

static size_t count_of(const char *folder_id)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_step_list(s, folder_id, ~0u, &steps, &count));
	ckpt_step_list_free(steps, count);
	return count;
}

START_TEST(a_list_of_a_folder_is_of_its_steps)
{
	struct ckpt_step *a, *b, *root = ckpt_staged_begin(s, "1");

	ck_ok(ckpt_stage_begin(s, "0123456789abcdef", "1", 0755, 0, 0, 0, &a));
	ck_ok(ckpt_stage_begin(s, "0123456789abcdef", "2", 0755, 0, 0, 0, &b));
	ck_assert_uint_eq(count_of("0123456789abcdef"), 2);
	ck_assert_uint_eq(count_of(""), 1);
	ck_assert_uint_eq(count_of("0123456789abcde0"), 0);
	ck_assert_uint_eq(count_of(NULL), 3);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_step_unref(root);
}
END_TEST

static int stop_at_first(void *arg, struct ckpt_step *step)
{
	(void)step;
	++*(int *)arg;
	return -ENOENT;
}

START_TEST(a_walk_over_steps_ends_with_the_first_answer)
{
	struct ckpt_step *a = ckpt_save_one(s, 0), *b = ckpt_save_one(s, 3), *c = ckpt_staged_begin(s, "1");
	int calls = 0, rc;

	ck_ok(ckpt_delete(b));
	{
		LOCK_SCOPE(&s->lock);
		rc = ckpt_step_each_locked(s, NULL, ~0u, stop_at_first, &calls);
	}
	ck_error(rc, ENOENT);
	ck_assert_int_eq(calls, 1);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_step_unref(c);
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

START_TEST(a_step_that_had_many_names_is_found_under_the_last)
{
	char ids[MANY][CKPT_FOLDER_ID_LEN + 1], names[MANY][8];
	struct ckpt_step *step = ckpt_save_one(s, 0), *found;
	char session[37];

	memcpy(session, step->session, sizeof(session));
	many(_i, ids, names);
	for (int i = 0; i < MANY; i++) {
		ck_ok(ckpt_move(step, ids[i], names[i]));
		found = ckpt_step_of_session(s, session);
		ck_assert_ptr_eq(found, step);
		ckpt_step_unref(found);
	}
	for (int i = 0; i < MANY - 1; i++)
		ck_assert_uint_eq(versions_used(ids[i], names[i]), 0);
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 1);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
	found = ckpt_step_find(s, ids[MANY - 1], names[MANY - 1]);
	ck_assert_ptr_nonnull(found);
	ck_assert_str_eq(found->session, session);
	ckpt_step_unref(found);
}
END_TEST

// --- What the log says -------------------------------------------------------------------------------------------------

START_TEST(a_name_that_was_given_again_is_the_new_steps_for_a_reader_too)
{
	struct ckpt_step *old = ckpt_save_one(s, 0), *step, *seen, *now;
	struct ckpt_store *reader;

	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	seen = ckpt_save_find(reader, 0);
	ck_assert_str_eq(seen->session, old->session);
	ck_ok(ckpt_delete(old));
	ck_ok(ckpt_expire(old));
	step = ckpt_save_one(s, 0);
	ck_assert_uint_eq(step->version->is.version, 1); // as nothing is left of the old one
	ck_ok(ckpt_follow_refresh(reader));
	now = ckpt_save_find(reader, 0);
	ck_assert_str_eq(now->session, step->session);
	ck_assert_int_eq(ckpt_step_state(seen), CKPT_STEP_GONE);
	ckpt_step_unref(now);
	ckpt_step_unref(seen);
	ckpt_step_unref(step);
	ckpt_step_unref(old);
	ckpt_store_close(reader);
}
END_TEST

START_TEST(a_name_that_no_step_can_have_is_not_loaded)
{
	struct ckpt_step *step = ckpt_save_one(s, 0);
	struct ckpt_said said = {.is = step->version->is};

	snprintf(said.is.name, sizeof(said.is.name), "a/b");
	said.is.session[0] ^= 1;
	ck_error(ckpt_step_enter(s, &said), EINVAL);
	ck_assert_ptr_null(ckpt_step_find(s, "", "a/b"));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 1);
	ckpt_step_unref(step);
}
END_TEST

// --- Manifests in memory ----------------------------------------------------------------------------------------------

static struct ckpt_step *large(const char *name, int links)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);
	char target[TARGET_BYTES + 1], link[16];

	memset(target, 'x', TARGET_BYTES);
	target[TARGET_BYTES] = '\0';
	for (int i = 0; i < links; i++) {
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
	struct ckpt_step *a = large("1", LINKS), *b = large("2", 2 * LINKS), *small = ckpt_save_one(s, 0);
	struct ckpt_manifest *m, *again;

	ck_assert(!in_memory(a));
	ck_ok(ckpt_step_manifest(b, &m)); // used later than the small one
	ck_assert(in_memory(b));          // alone, as it is more than all may be
	ck_assert(!in_memory(small));
	ck_ok(ckpt_step_manifest(a, &again));
	ck_assert_uint_eq(ckpt_manifest_count(again), LINKS + 1);
	ck_assert(in_memory(a));
	ck_assert(!in_memory(b));
	ck_assert(!in_memory(small));
	ck_assert_uint_eq(ckpt_manifest_count(m), 2 * LINKS + 1); // who has it keeps it
	ckpt_manifest_unref(m);
	ckpt_manifest_unref(again);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_step_unref(small);
}
END_TEST

static bool manifest_has(struct ckpt_manifest *m, const char *path)
{
	uint32_t index;

	return !ckpt_manifest_lookup(m, path, &index);
}

// Who reads a manifest may be slow, and then keep one that is not current any more.
START_TEST(the_manifest_of_an_earlier_version_is_not_taken_for_the_current_one)
{
	struct ckpt_step *step = ckpt_save_one(s, 0);
	struct ckpt_manifest *old, *now;

	ck_ok(ckpt_step_manifest(step, &old));
	ck_assert(manifest_has(old, "shards"));
	ck_ok(ckpt_amend_remove(step, "shards"));
	ckpt_step_keep_manifest(step, old);
	ck_ok(ckpt_step_manifest(step, &now));
	ck_assert(!manifest_has(now, "shards"));
	ckpt_manifest_unref(old);
	ckpt_manifest_unref(now);
	ckpt_step_unref(step);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("step");
	TCase *tcase = tcase_create("step");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, a_name_that_is_kept_for_one_is_nobody_elses);
	tcase_add_test(tcase, a_session_that_was_left_does_not_get_a_name_that_is_kept_for_another);
	tcase_add_test(tcase, what_is_deleted_does_not_come_back_to_a_name_that_is_kept_for_another);
	tcase_add_test(tcase, a_reopened_step_can_have_its_own_name_and_no_other_steps);
	tcase_add_loop_test(tcase, many_names_or_one_in_many_folders_are_as_many_steps, 0, 2);
	tcase_add_test(tcase, a_list_of_a_folder_is_of_its_steps);
	tcase_add_test(tcase, a_walk_over_steps_ends_with_the_first_answer);
	tcase_add_test(tcase, a_step_is_found_by_its_session);
	tcase_add_loop_test(tcase, a_step_that_had_many_names_is_found_under_the_last, 0, 2);
	tcase_add_test(tcase, a_name_that_was_given_again_is_the_new_steps_for_a_reader_too);
	tcase_add_test(tcase, a_name_that_no_step_can_have_is_not_loaded);
	tcase_add_test(tcase, of_large_manifests_the_one_of_the_oldest_use_goes);
	tcase_add_test(tcase, the_manifest_of_an_earlier_version_is_not_taken_for_the_current_one);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
