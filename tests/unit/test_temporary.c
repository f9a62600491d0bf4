// Temporary steps: which are over, what keeps one, and that nothing but the store says so.
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/removal.h"
#include "core/step/store_folder.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/temporary.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/save/remove.h"
#include "core/save/version.h"
#include "core/step/reopened.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>

#define TEMPORARY "{\"temporary\":true}"
#define ROUNDS 20
#define HOUR_NS (INT64_C(3600) * 1000000000)

// "a/1000" is in a folder.
static void place(const char *path, char *ret_id, const char **ret_name)
{
	const char *slash = strchr(path, '/');

	*ret_id = '\0';
	*ret_name = slash ? slash + 1 : path;
	if (!slash)
		return;
	char folder[64];

	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
	(void)ckpt_sys.mkdir(s->tree_fd, folder, 0755);
	CLEANUP_FD int fd = ckpt_sys.open(s->tree_fd, folder, O_RDONLY | O_DIRECTORY, 0);
	ck_ok(ckpt_store_folder_id(s, fd, true, ret_id));
}

static void save(const char *path, const char *metadata)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step;
	const char *name;

	place(path, id, &name);
	ck_ok(ckpt_stage_begin(s, id, name, 0755, getuid(), getgid(), getpid(), &step));
	close(ckpt_staged_put(step, "model.bin", path));
	ck_ok(ckpt_staged_commit(step, 0, metadata));
	ckpt_step_unref(step);
}

static struct ckpt_step *find(const char *path)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	const char *name;

	place(path, id, &name);
	return ckpt_step_find(s, id, name);
}

static bool is_there(const char *path)
{
	struct ckpt_step *step = find(path);

	if (step)
		ckpt_staged_check(step, "model.bin", path);
	ckpt_step_unref(step);
	return step;
}

static int promote(const char *path)
{
	struct ckpt_step *step = find(path);
	int rc = step ? ckpt_promote(step) : -ESTALE;

	ckpt_step_unref(step);
	return rc;
}

static void expire(void)
{
	ck_assert_int_eq(ckpt_temporary_expire(s, 0, NULL), INT64_MAX);
}

static void needs_another_look(void)
{
	int64_t again_ns = ckpt_temporary_expire(s, 0, NULL);

	ck_assert(again_ns > 0 && again_ns <= HOUR_NS);
}

START_TEST(a_temporary_step_is_over_when_another_is_committed_after_it)
{
	save("1000", TEMPORARY);
	expire();
	ck_assert(is_there("1000"));
	save("2000", TEMPORARY);
	expire();
	ck_assert(!is_there("1000") && is_there("2000"));
	save("500", NULL); // the order is that of the commits
	save("3000", NULL);
	expire();
	ck_assert(!is_there("2000") && is_there("500") && is_there("3000"));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 2);
}
END_TEST

START_TEST(each_folder_is_for_itself)
{
	save("a/1000", TEMPORARY);
	save("b/1000", TEMPORARY);
	save("1000", TEMPORARY);
	save("b/2000", NULL);
	expire();
	ck_assert(is_there("a/1000") && is_there("1000") && is_there("b/2000") && !is_there("b/1000"));
}
END_TEST

START_TEST(what_is_pinned_or_permanent_stays)
{
	struct ckpt_step *step;

	save("1000", TEMPORARY);
	save("2000", TEMPORARY);
	save("3000", TEMPORARY);
	save("4000", NULL);
	step = find("1000");
	ck_ok(ckpt_pin(step, true));
	ck_ok(promote("2000"));
	expire();
	ck_assert(is_there("1000") && is_there("2000") && !is_there("3000"));
	ck_ok(ckpt_pin(step, false));
	ckpt_step_unref(step);
	expire();
	ck_assert(!is_there("1000") && is_there("2000"));
}
END_TEST

static void say(const char *name, const char *metadata)
{
	struct ckpt_step *step = find(name);

	ck_ok(ckpt_commit_metadata(step, metadata));
	ckpt_step_unref(step);
}

// A later marker that says nothing of it changes nothing of it, and none takes back what somebody has decided since.
START_TEST(a_later_marker_makes_a_step_neither_permanent_nor_what_was_promoted_temporary)
{
	save("1000", TEMPORARY);
	save("2000", TEMPORARY);
	save("3000", TEMPORARY);
	save("4000", NULL);
	save("5000", NULL);
	say("1000", "{\"metrics\":{\"loss\":1}}");
	ck_ok(promote("2000"));
	say("2000", TEMPORARY);
	say("2000", "{\"temporary\":true,\"metrics\":{\"loss\":1}}");
	say("3000", "{\"temporary\":false}");
	say("4000", TEMPORARY);
	expire();
	ck_assert(!is_there("1000") && is_there("2000") && is_there("3000") && !is_there("4000"));
}
END_TEST

// Or else the newest that there is would go.
START_TEST(a_step_whose_successor_is_gone_stays)
{
	struct ckpt_step *newer;

	save("1000", TEMPORARY);
	save("2000", NULL);
	newer = find("2000");
	ck_ok(ckpt_delete(newer));
	expire();
	ck_assert(is_there("1000"));
	ck_ok(ckpt_undelete(newer));
	ckpt_step_unref(newer);
	expire();
	ck_assert(!is_there("1000"));
}
END_TEST

START_TEST(what_is_had_back_from_the_trash_is_permanent)
{
	struct ckpt_step *step;

	save("1000", TEMPORARY);
	save("2000", NULL);
	step = find("1000");
	expire();
	ck_ok(ckpt_undelete(step));
	ckpt_step_unref(step);
	save("3000", NULL);
	expire();
	ck_assert(is_there("1000"));
	ckpt_fixture_reopen();
	expire();
	ck_assert(is_there("1000"));
}
END_TEST

static void change(const char *path)
{
	struct ckpt_step *step = find(path), *changed;

	ck_ok(ckpt_reopen(step, &changed));
	ck_ok(ckpt_staged_commit(changed, 0, NULL));
	ckpt_step_unref(changed);
	ckpt_step_unref(step);
}

START_TEST(a_late_change_of_an_older_step_ends_no_newer_one)
{
	save("1000", NULL);
	save("2000", TEMPORARY);
	change("1000");
	expire();
	ck_assert(is_there("2000"));
	ckpt_fixture_reopen();
	expire();
	ck_assert(is_there("2000"));
	save("3000", NULL);
	change("1000");
	expire();
	ck_assert(!is_there("2000") && is_there("1000"));
}
END_TEST

START_TEST(a_successor_that_is_being_changed_or_removed_does_not_count)
{
	struct ckpt_step *newer, *changed;

	save("1000", TEMPORARY);
	save("2000", NULL);
	newer = find("2000");
	ck_ok(ckpt_reopen(newer, &changed));
	expire();
	ck_assert(is_there("1000"));
	ck_ok(ckpt_stage_abort(changed, false));
	ckpt_step_unref(changed);
	ck_ok(ckpt_staged_remove(newer, "model.bin"));
	expire();
	ck_assert(is_there("1000"));
	ckpt_removal_forget(newer);
	expire();
	ck_assert(!is_there("1000"));
	ckpt_step_unref(newer);
}
END_TEST

START_TEST(what_somebody_works_with_stays_for_now)
{
	struct ckpt_step *step, *changed;

	save("1000", TEMPORARY);
	save("2000", NULL);
	step = find("1000");
	ck_ok(ckpt_amending_begin(step, "late", NULL));
	needs_another_look();
	ck_assert(is_there("1000"));
	ckpt_amending_forget(step, "late");
	ck_ok(ckpt_reopen(step, &changed));
	expire(); // it is in no list
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ck_ok(ckpt_stage_abort(changed, false));
	ckpt_step_unref(changed);
	expire();
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED);
	ckpt_staged_check(step, "model.bin", "1000"); // who has it goes on reading
	ckpt_step_unref(step);
}
END_TEST

// What was chosen is looked at again when nobody can change it any more. Here it is changed after it was chosen, when the one before it
// has gone.
enum meanwhile { PROMOTED, PINNED, REOPENED, REMOVED, ADDED_TO, IS_THE_NEWEST, MEANWHILE };

static struct ckpt_step *chosen;
static int changed_so;

static void change_chosen(void *arg __attribute__((unused)), struct ckpt_step *step)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(chosen);
	struct ckpt_step *other;

	switch (step == chosen ? MEANWHILE : (enum meanwhile)changed_so) {
	case PROMOTED:
		ck_ok(ckpt_promote(chosen));
		break;
	case PINNED:
		ck_ok(ckpt_pin(chosen, true));
		break;
	case REOPENED:
		ck_ok(ckpt_reopen(chosen, &other));
		ckpt_step_unref(other);
		break;
	case REMOVED:
		ck_ok(ckpt_remove_entry(chosen, m, 0, "model.bin", false, 0));
		break;
	case ADDED_TO:
		ck_ok(ckpt_amending_begin(chosen, "late", NULL));
		break;
	case IS_THE_NEWEST:
		other = find("3000");
		ck_ok(ckpt_delete(other));
		ckpt_step_unref(other);
		break;
	case MEANWHILE:
		break;
	}
	ckpt_manifest_unref(m);
}

START_TEST(what_is_changed_after_it_was_chosen_stays)
{
	changed_so = _i;
	save("1000", TEMPORARY);
	save("2000", TEMPORARY);
	save("3000", NULL);
	chosen = find("1000");
	s->calls.gone = change_chosen;
	(void)ckpt_temporary_expire(s, 0, NULL);
	ck_assert(!is_there("2000"));
	ck_assert_int_eq(ckpt_step_state(chosen), _i == MEANWHILE ? CKPT_STEP_DELETED : CKPT_STEP_COMMITTED);
	ckpt_amending_forget(chosen, "late");
	ckpt_step_unref(chosen);
}
END_TEST

// Only the log on the disk knows that it is permanent.
START_TEST(a_promotion_whose_answer_was_lost_counts)
{
	struct ckpt_fault fault = {.at = 1, .error = -EIO, .half = true, .sticky = true};
	struct ckpt_step *step;

	save("1000", TEMPORARY);
	save("2000", NULL);
	step = find("1000");
	ckpt_save_fault(s, &fault);
	ck_error(ckpt_promote(step), EIO);
	fault.at = 0;
	ck_assert(step->version->is.temporary);
	ckpt_step_unref(step);
	expire();
	ck_assert(is_there("1000"));
	ckpt_fixture_reopen();
	expire();
	ck_assert(is_there("1000"));
}
END_TEST

struct race {
	struct ckpt_step *step;
	pthread_barrier_t start;
	int rc;
};

static void *promote_at_once(void *arg)
{
	struct race *race = arg;

	pthread_barrier_wait(&race->start);
	race->rc = ckpt_promote(race->step);
	return NULL;
}

START_TEST(a_promotion_beside_a_deletion_is_done_or_refused)
{
	unsigned kept = 0, gone = 0;

	for (int i = 0; i < ROUNDS; i++) {
		struct race race = {0};
		pthread_t thread;
		char name[16];

		snprintf(name, sizeof(name), "%d", 1000 + i);
		save(name, TEMPORARY);
		race.step = find(name);
		save("last", NULL);
		pthread_barrier_init(&race.start, NULL, 2);
		ck_assert_int_eq(pthread_create(&thread, NULL, promote_at_once, &race), 0);
		pthread_barrier_wait(&race.start);
		if (i % 2)
			ckpt_sys.sleep_ns(i * 10000);
		expire();
		pthread_join(thread, NULL);
		pthread_barrier_destroy(&race.start);
		ck_assert_int_eq(is_there(name), race.rc == 0);
		ck_assert(race.rc == 0 || race.rc == -ESTALE);
		kept += race.rc == 0;
		gone += race.rc != 0;
		ckpt_step_unref(race.step);
		race.step = find("last");
		ck_ok(ckpt_delete(race.step));
		ckpt_step_unref(race.step);
	}
	ck_assert_msg(kept + gone == ROUNDS, "%u kept, %u gone", kept, gone);
}
END_TEST

START_TEST(a_promoted_step_is_a_version_with_the_same_files_and_place)
{
	struct ckpt_summary before;
	struct ckpt_step *step;

	save("1000", TEMPORARY);
	step = find("1000");
	before = step->version->is;
	ck_ok(ckpt_promote(step));
	ck_ok(ckpt_promote(step));
	ck_ok(ckpt_commit_metadata(step, TEMPORARY)); // the same marker once more: nothing new
	for (int again = 0; again < 2; again++) {
		ck_assert(before.temporary && !step->version->is.temporary);
		ck_assert_uint_eq(step->version->is.version, before.version + 1);
		ck_assert_uint_eq(step->born.sequence, before.sequence);
		ck_assert_mem_eq(step->version->is.manifest_sha256, before.manifest_sha256, 32);
		ckpt_step_unref(step);
		ckpt_fixture_reopen();
		step = find("1000");
	}
	ck_ok(ckpt_delete(step));
	ck_error(ckpt_promote(step), ESTALE);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_is_being_changed_or_removed_is_not_made_permanent)
{
	struct ckpt_step *step, *changed;

	save("1000", TEMPORARY);
	step = find("1000");
	ck_ok(ckpt_reopen(step, &changed));
	ck_error(ckpt_promote(step), EBUSY);
	ck_ok(ckpt_stage_abort(changed, false));
	ckpt_step_unref(changed);
	ck_ok(ckpt_staged_remove(step, "model.bin"));
	ck_error(ckpt_promote(step), EBUSY);
	ckpt_removal_forget(step);
	ck_ok(ckpt_promote(step));
	ck_assert(!step->version->is.temporary && step->version->is.version == 2);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(it_stays_for_as_long_as_it_is_said)
{
	int64_t again_ns;

	save("1000", TEMPORARY);
	save("2000", NULL);
	again_ns = ckpt_temporary_expire(s, HOUR_NS, NULL);
	ck_assert(again_ns > HOUR_NS / 2 && again_ns <= HOUR_NS);
	ck_assert(is_there("1000"));
	expire();
	ck_assert(!is_there("1000"));
}
END_TEST

START_TEST(a_deletion_that_fails_is_told_and_done_the_next_time)
{
	struct ckpt_sysfault fault = {.at = 1, .error = -ENOSPC, .sticky = true, .changes_only = true};

	save("1000", TEMPORARY);
	save("2000", NULL);
	ckpt_sysfault_begin(&fault);
	needs_another_look();
	ckpt_sysfault_end(&fault);
	ck_assert(is_there("1000"));
	ck_assert_uint_eq(ckpt_save_errors(s, "it could not be deleted"), 1);
	expire();
	ck_assert(!is_there("1000"));
}
END_TEST

// As a verb has it, which does not wait for anybody.
static void reopen_for_a_verb(void)
{
	struct ckpt_settings settings;

	ckpt_store_close(s);
	ckpt_settings_init(&settings);
	settings.keep_trash = true;
	ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, &settings, &s));
	ckpt_settings_done(&settings);
}

START_TEST(a_start_deletes_nothing_and_the_first_commit_does)
{
	save("1000", TEMPORARY);
	save("2000", NULL);
	save("a/1000", TEMPORARY);
	reopen_for_a_verb();
	ckpt_trash_drain(*ckpt_trash_of(s));
	ck_assert(is_there("1000"));
	save("a/2000", TEMPORARY);
	ckpt_trash_drain(*ckpt_trash_of(s));
	ck_assert(!is_there("1000") && is_there("2000") && !is_there("a/1000") && is_there("a/2000"));
	ckpt_fixture_reopen();
	ck_assert(!is_there("1000") && is_there("2000") && !is_there("a/1000") && is_there("a/2000"));
}
END_TEST

START_TEST(who_has_the_answer_of_a_commit_can_wait_for_it)
{
	char name[16], before[16] = "";

	reopen_for_a_verb();
	for (int i = 0; i < ROUNDS; i++) {
		snprintf(name, sizeof(name), "%d", 1000 + i);
		save(name, TEMPORARY);
		ckpt_trash_drain(*ckpt_trash_of(s));
		ck_assert(!*before || !is_there(before));
		memcpy(before, name, sizeof(before));
	}
}
END_TEST

static unsigned gone_calls;

static void count_gone(void *arg, struct ckpt_step *step)
{
	ck_assert_ptr_eq(arg, &gone_calls);
	ck_assert_str_eq(step->name, "1000");
	ck_ok(ckpt_lock_try_ns(&step->store->acts_lock, 0) ? 0 : -EBUSY); // the kernel is told by it
	ckpt_lock_drop(&step->store->acts_lock);
	gone_calls++;
}

START_TEST(a_mount_hears_of_it_without_a_lock_and_not_after_its_end)
{
	save("1000", TEMPORARY);
	save("2000", NULL);
	s->calls.gone = count_gone;
	s->calls.gone_arg = &gone_calls;
	expire();
	ck_assert_uint_eq(gone_calls, 1);
	save("1000", TEMPORARY);
	save("3000", NULL);
	ckpt_store_rest(s);
	ckpt_trash_committed(*ckpt_trash_of(s));
	ckpt_sys.sleep_ns(20000000);
	ck_assert_uint_eq(gone_calls, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("temporary");
	TCase *tcase = tcase_create("temporary");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, a_temporary_step_is_over_when_another_is_committed_after_it);
	tcase_add_test(tcase, each_folder_is_for_itself);
	tcase_add_test(tcase, what_is_pinned_or_permanent_stays);
	tcase_add_test(tcase, a_later_marker_makes_a_step_neither_permanent_nor_what_was_promoted_temporary);
	tcase_add_test(tcase, a_step_whose_successor_is_gone_stays);
	tcase_add_test(tcase, what_is_had_back_from_the_trash_is_permanent);
	tcase_add_test(tcase, a_late_change_of_an_older_step_ends_no_newer_one);
	tcase_add_test(tcase, a_successor_that_is_being_changed_or_removed_does_not_count);
	tcase_add_test(tcase, what_somebody_works_with_stays_for_now);
	tcase_add_loop_test(tcase, what_is_changed_after_it_was_chosen_stays, 0, MEANWHILE + 1);
	tcase_add_test(tcase, a_promotion_whose_answer_was_lost_counts);
	tcase_add_test(tcase, a_promotion_beside_a_deletion_is_done_or_refused);
	tcase_add_test(tcase, a_promoted_step_is_a_version_with_the_same_files_and_place);
	tcase_add_test(tcase, what_is_being_changed_or_removed_is_not_made_permanent);
	tcase_add_test(tcase, it_stays_for_as_long_as_it_is_said);
	tcase_add_test(tcase, a_deletion_that_fails_is_told_and_done_the_next_time);
	tcase_add_test(tcase, a_start_deletes_nothing_and_the_first_commit_does);
	tcase_add_test(tcase, who_has_the_answer_of_a_commit_can_wait_for_it);
	tcase_add_test(tcase, a_mount_hears_of_it_without_a_lock_and_not_after_its_end);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
