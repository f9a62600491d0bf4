// Changes of a committed step that were not completed: how they are left, and taken up again.
#include "core/save/amend.h"
#include "core/save/stage.h"
#include "core/save/version.h"
#include "core/step/amending.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/save/reopen.h"
#include "core/tier/seal.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define WAIT_MS 5000

static struct ckpt_step *base;

static struct ckpt_step *save(const char *name, const char *profile, const char *const *files)
{
	struct ckpt_commit how = ckpt_staged_plain;
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	how.profile = profile;
	for (; *files; files++)
		close(ckpt_staged_put(step, *files, "committed"));
	ck_ok(ckpt_commit(step, &how));
	return step;
}

static void setup(void)
{
	static const char *const files[] = {"model.bin", "config.json", NULL};

	ckpt_fixture_open();
	base = save("1000", "generic", files);
}

static void teardown(void)
{
	ckpt_save_settle(s);
	ckpt_step_unref(base);
	ckpt_fixture_close();
}

static struct ckpt_step *reopen(void)
{
	struct ckpt_step *step;

	ck_ok(ckpt_reopen(base, &step));
	return step;
}

// As a client does that takes a file away and writes another in its place.
static void change(struct ckpt_step *step, const char *path)
{
	ck_ok(ckpt_stage_enter(step, true));
	ck_ok(ckpt_sys.unlink(step->dirfd, path, 0));
	close(ckpt_staged_put(step, path, "changed"));
	ckpt_stage_leave(step);
}

static bool ends_as(struct ckpt_step *step, enum ckpt_step_state state)
{
	for (int i = 0; i < WAIT_MS && (ckpt_step_state(step) != state || ckpt_step_is_reopened(base)); i++)
		usleep(1000);
	return ckpt_step_state(step) == state;
}

// Its writer was killed, and nothing has changed for a long time.
static void lose_writer(struct ckpt_step *step)
{
	ckpt_lock_take(&step->lock);
	ckpt_staging_of(step)->lost.any = true;
	ckpt_lock_drop(&step->lock);
	ckpt_staged_quiet(step);
}

// The changes of a daemon that ended, in a store that is opened anew.
static struct ckpt_step *left_over(void)
{
	struct ckpt_step *step = reopen();

	change(step, "config.json");
	ck_ok(ckpt_stage_enter(step, true)); // and never leaves: the daemon dies
	ckpt_step_unref(step);
	ckpt_step_unref(TAKE_PTR(base));
	ckpt_fixture_reopen();
	base = ckpt_step_find(s, "", "1000");
	return ckpt_save_left(s);
}

// --- Taken up again -----------------------------------------------------------------------------------------------------

static struct {
	unsigned calls; // atomic
	struct ckpt_step *from, *to;
} renewed;

static void renew(void *arg, struct ckpt_step *from, struct ckpt_step *to)
{
	ck_assert_ptr_eq(arg, &renewed);
	renewed.from = from;
	renewed.to = to;
	__atomic_add_fetch(&renewed.calls, 1, __ATOMIC_RELEASE);
}

static void assert_renewed(unsigned calls, struct ckpt_step *from, struct ckpt_step *to)
{
	for (int i = 0; i < WAIT_MS && __atomic_load_n(&renewed.calls, __ATOMIC_ACQUIRE) < calls; i++)
		usleep(1000);
	ck_assert_uint_eq(renewed.calls, calls);
	ck_assert_ptr_eq(renewed.from, from);
	ck_assert_ptr_eq(renewed.to, to);
}

// The mount is told which of the two is shown, each time.
START_TEST(changes_that_were_left_are_taken_up_dropped_given_up_or_committed)
{
	struct ckpt_step *step = left_over();

	s->calls.renew_arg = &renewed;
	s->calls.renew = renew;
	ck_ok(ckpt_stage_resume(step));
	assert_renewed(1, base, step);
	ck_error(ckpt_stage_resume(step), ESTALE);
	ck_ok(ckpt_stage_abort(step, false));
	assert_renewed(2, step, base);
	ckpt_staged_check(base, "config.json", "committed");
	ckpt_step_unref(step);
	step = reopen();
	assert_renewed(3, base, step);
	lose_writer(step);
	ck_assert(ends_as(step, CKPT_STEP_LEFT));
	assert_renewed(4, step, base);
	ck_ok(ckpt_stage_resume(step));
	assert_renewed(5, base, step);
	ckpt_staged_quiet(step); // it stays that of a killed writer
	ck_assert(ends_as(step, CKPT_STEP_LEFT));
	assert_renewed(6, step, base);
	ck_ok(ckpt_stage_resume(step));
	assert_renewed(7, base, step);
	change(step, "config.json");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_assert_uint_eq(step->version->is.version, 2);
	ckpt_staged_check(step, "config.json", "changed");
	ckpt_step_unref(step);
}
END_TEST

START_TEST(changes_of_a_version_that_is_not_the_last_are_not_taken_up)
{
	struct ckpt_step *step = left_over();

	ck_ok(ckpt_commit_metadata(base, "{\"temporary\":true}"));
	ck_error(ckpt_stage_resume(step), EEXIST);
	ck_assert_uint_eq(ckpt_save_errors(s, "these changes would undo it"), 1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_LEFT);
	ckpt_step_unref(step);
}
END_TEST

// Nobody has changed a file of it.
START_TEST(changes_of_a_version_that_was_sealed_and_pinned_since_are_taken_up)
{
	struct ckpt_step *step = left_over();

	ck_ok(ckpt_seal(base, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_pin(base, true));
	ck_ok(ckpt_pin(base, false));
	ck_assert_uint_eq(base->version->is.version, 4);
	ck_ok(ckpt_stage_resume(step));
	change(step, "config.json");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_staged_check(step, "config.json", "changed");
	ck_assert(!step->version->is.sealed);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(changes_are_not_taken_up_beside_others_or_while_they_are_dropped)
{
	struct ckpt_step *step = left_over(), *other = reopen();

	ck_error(ckpt_stage_resume(step), EEXIST);
	ck_ok(ckpt_stage_abort(other, false));
	ckpt_step_unref(other);
	ckpt_staging_of(step)->changers++; // somebody drops it just now
	ck_error(ckpt_stage_resume(step), EBUSY);
	ckpt_staging_of(step)->changers--;
	ck_ok(ckpt_stage_resume(step));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(changes_of_a_step_that_is_gone_become_a_step_of_its_name)
{
	struct ckpt_step *step = left_over();

	ck_ok(ckpt_delete(base));
	ck_ok(ckpt_stage_resume(step));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_staged_check(step, "config.json", "changed");
	ckpt_staged_check(step, "model.bin", "committed");
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_name_that_is_saved_anew_is_not_that_of_changes_any_more)
{
	struct ckpt_step *step = left_over(), *rival;

	ck_ok(ckpt_delete(base));
	rival = ckpt_staged_begin(s, "1000");
	ck_error(ckpt_stage_resume(step), EEXIST);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_LEFT);
	ckpt_step_unref(rival);
	ckpt_step_unref(step);
}
END_TEST

static void *resume_aside(void *step)
{
	static int result;

	result = ckpt_stage_resume(step);
	return &result;
}

START_TEST(changes_that_are_dropped_before_they_are_taken_up_are_gone)
{
	struct ckpt_step *step = left_over();
	pthread_t thread;
	void *result;

	ckpt_lock_take(&s->acts_lock); // somebody else's act is under way
	ck_assert_int_eq(pthread_create(&thread, NULL, resume_aside, step), 0);
	usleep(50000);
	ck_ok(ckpt_stage_abort(step, false));
	ckpt_lock_drop(&s->acts_lock);
	pthread_join(thread, &result);
	ck_error(*(int *)result, ESTALE);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_GONE);
	ck_assert(!ckpt_step_is_reopened(base));
	ckpt_staged_check(base, "config.json", "committed");
	ckpt_step_unref(step);
}
END_TEST

static void open_again(void)
{
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
}

// One line, not one for each time that the store is opened.
START_TEST(changes_that_were_given_up_are_told_of_once)
{
	struct ckpt_step *step = left_over();
	unsigned told = ckpt_save_errors(s, "the previous version is restored");

	ck_assert_uint_eq(told, 1);
	ckpt_step_unref(step);
	ckpt_step_unref(TAKE_PTR(base));
	open_again();
	open_again();
	ck_assert_uint_eq(ckpt_save_errors(s, "the previous version is restored"), told);
}
END_TEST

// As a daemon leaves them that dies while they are made; and then by one that only reads.
START_TEST(who_only_reads_does_not_tell_of_changes)
{
	struct ckpt_step *step = left_over();
	struct ckpt_store *reader;
	unsigned told = ckpt_save_errors(s, "the previous version is restored");

	ck_assert_uint_gt(told, 0);
	ck_assert_int_eq(fremovexattr(step->dirfd, "user.ckptfs.told"), 0);
	ckpt_step_unref(step);
	ckpt_step_unref(TAKE_PTR(base));
	ckpt_store_close(s);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	step = ckpt_step_find(reader, "", "1000");
	ckpt_staged_check(step, "config.json", "committed");
	ckpt_step_unref(step);
	ck_assert_uint_eq(ckpt_save_errors(reader, "the previous version is restored"), told);
	ckpt_store_close(reader);
	s = ckpt_save_open(dir);
	ck_assert_uint_eq(ckpt_save_errors(s, "the previous version is restored"), told + 1);
	open_again();
	ck_assert_uint_eq(ckpt_save_errors(s, "the previous version is restored"), told + 1);
}
END_TEST

// --- Given up or not ----------------------------------------------------------------------------------------------------

START_TEST(what_is_changed_at_the_last_moment_is_not_given_up)
{
	struct ckpt_step *step = reopen();

	ckpt_lock_take(&s->acts_lock); // who gives it up waits for somebody else's act
	lose_writer(step);
	usleep(100000);
	ck_ok(ckpt_stage_enter(step, true));
	ckpt_lock_drop(&s->acts_lock);
	usleep(100000);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_assert(ckpt_step_is_reopened(base));
	ckpt_stage_leave(step);
	lose_writer(step);
	ck_assert(ends_as(step, CKPT_STEP_LEFT));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_may_have_been_committed_is_not_given_up)
{
	struct ckpt_step *step = reopen();

	ckpt_lock_take(&step->lock);
	ckpt_staging_of(step)->outcome_unknown = true;
	ckpt_lock_drop(&step->lock);
	lose_writer(step);
	usleep(100000);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_lock_take(&step->lock);
	ckpt_staging_of(step)->outcome_unknown = false;
	ckpt_lock_drop(&step->lock);
	lose_writer(step);
	ck_assert(ends_as(step, CKPT_STEP_LEFT));
	ckpt_step_unref(step);
}
END_TEST

static void *ask_aside(void *of)
{
	return ckpt_step_now(ckpt_step_ref(of));
}

START_TEST(who_asks_what_has_its_place_while_that_ends_gets_the_committed_step)
{
	struct ckpt_step *step = reopen();
	pthread_t thread;
	void *now;

	ckpt_lock_take(&s->lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, ask_aside, base), 0);
	usleep(50000);
	ck_assert(ckpt_step_end_reopen_locked(step));
	ckpt_lock_drop(&s->lock);
	ckpt_lock_take(&step->lock);
	pthread_cond_broadcast(
		&step->changed); // as who ends it does; else its watcher sleeps for a minute, and the store's end with it
	ckpt_lock_drop(&step->lock);
	pthread_join(thread, &now);
	ck_assert_ptr_eq(now, base);
	ckpt_step_unref(now);
	ckpt_step_unref(step);
}
END_TEST

// --- Not begun ----------------------------------------------------------------------------------------------------------

START_TEST(a_step_whose_manifest_is_damaged_is_not_reopened)
{
	char command[2 * PATH_MAX + 128];
	struct ckpt_step *step;

	ckpt_step_unref(base);
	base = ckpt_save_one(s, CKPT_SAVE_LARGE);
	ckpt_step_unref(base);
	ckpt_store_close(s);
	snprintf(command, sizeof(command), "rm -r '%s/index' && for f in '%s'/m/*; do printf X >\"$f\"; done", dir,
		 dir);
	ck_assert_int_eq(system(command), 0);
	s = ckpt_save_open(dir);
	base = ckpt_save_find(s, CKPT_SAVE_LARGE);
	ck_error(ckpt_reopen(base, &step), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "it could not be opened for changes"), 1);
	ck_assert(!ckpt_step_is_reopened(base));
	ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_COMMITTED);
}
END_TEST

// As long as nobody knows which files it has.
START_TEST(a_step_whose_last_amend_has_an_unknown_outcome_is_not_reopened)
{
	static struct ckpt_fault fault = {.at = 2, .error = -EIO, .half = true, .sticky = true};
	struct ckpt_step *step;

	ckpt_save_settle(s);
	ckpt_save_fault(s, &fault);
	ck_error(ckpt_commit_metadata(base, "{\"extras\":{\"a\":1}}"), EIO);
	__atomic_store_n(&ckpt_amending_of(base)->amend_unknown, true, __ATOMIC_RELAXED);
	ck_error(ckpt_reopen(base, &step), EIO);
	fault.at = 0;
	ck_assert(ckpt_amending_of(base)->amend_unknown);
	ck_assert_uint_eq(ckpt_save_errors(s, "it could not be opened for changes"), 1);
	ck_assert(!ckpt_step_is_reopened(base));
	step = reopen();
	ck_assert(!ckpt_amending_of(base)->amend_unknown);
	ckpt_step_unref(step);
}
END_TEST

// --- Removed ------------------------------------------------------------------------------------------------------------

static int unlink_as_some_disks(int dirfd, const char *path, int flags)
{
	(void)dirfd;
	(void)path;
	(void)flags;
	return -EEXIST; // POSIX allows it for a directory that has something in it
}

START_TEST(a_step_with_files_is_not_removed_whatever_the_disk_calls_it)
{
	struct ckpt_step *step = reopen(), *staged = ckpt_staged_begin(s, "1");
	struct ckpt_sys below = ckpt_hooks;

	ckpt_hook_set(unlink, unlink_as_some_disks);
	ck_error(ckpt_reopen_remove(step), ENOTEMPTY);
	ck_error(ckpt_stage_remove(staged), ENOTEMPTY);
	ckpt_hook_set(unlink, below.unlink);
	ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_COMMITTED);
	ck_assert_int_eq(ckpt_step_state(staged), CKPT_STEP_STAGED);
	ckpt_step_unref(step);
	ckpt_step_unref(staged);
}
END_TEST

static void set_state(struct ckpt_step *step, enum ckpt_step_state state)
{
	LOCK_SCOPE(&step->lock);

	step->state = state;
}

START_TEST(what_is_being_committed_or_was_is_not_removed)
{
	struct ckpt_step *step = reopen();

	set_state(step, CKPT_STEP_COMMITTING);
	ck_error(ckpt_reopen_remove(step), EBUSY);
	set_state(step, CKPT_STEP_STAGED);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_error(ckpt_reopen_remove(step), EROFS);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ckpt_step_unref(step);
}
END_TEST

// --- Committed ----------------------------------------------------------------------------------------------------------

START_TEST(a_quiet_commit_that_fails_is_tried_again)
{
	struct ckpt_step *step;

	step = reopen();
	change(step, "config.json");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "dir", 0755));
	ck_assert_int_eq(mkfifoat(step->dirfd, "dir/fifo", 0600), 0); // which no step can have
	ckpt_staged_quiet(step);
	while (!ckpt_save_errors(s, "commit failed"))
		usleep(1000);
	ck_assert(ckpt_step_is_reopened(base));
	ck_ok(ckpt_sys.unlink(step->dirfd, "dir/fifo", 0));
	ckpt_staged_quiet(step);
	ck_assert(ends_as(step, CKPT_STEP_COMMITTED));
	ckpt_staged_check(step, "config.json", "changed");
	ckpt_step_unref(step);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reopen left");
	TCase *tcase = tcase_create("left");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, changes_that_were_left_are_taken_up_dropped_given_up_or_committed);
	tcase_add_test(tcase, changes_of_a_version_that_is_not_the_last_are_not_taken_up);
	tcase_add_test(tcase, changes_of_a_version_that_was_sealed_and_pinned_since_are_taken_up);
	tcase_add_test(tcase, changes_are_not_taken_up_beside_others_or_while_they_are_dropped);
	tcase_add_test(tcase, changes_of_a_step_that_is_gone_become_a_step_of_its_name);
	tcase_add_test(tcase, a_name_that_is_saved_anew_is_not_that_of_changes_any_more);
	tcase_add_test(tcase, changes_that_are_dropped_before_they_are_taken_up_are_gone);
	tcase_add_test(tcase, changes_that_were_given_up_are_told_of_once);
	tcase_add_test(tcase, who_only_reads_does_not_tell_of_changes);
	tcase_add_test(tcase, what_is_changed_at_the_last_moment_is_not_given_up);
	tcase_add_test(tcase, what_may_have_been_committed_is_not_given_up);
	tcase_add_test(tcase, who_asks_what_has_its_place_while_that_ends_gets_the_committed_step);
	tcase_add_test(tcase, a_step_whose_manifest_is_damaged_is_not_reopened);
	tcase_add_test(tcase, a_step_whose_last_amend_has_an_unknown_outcome_is_not_reopened);
	tcase_add_test(tcase, a_step_with_files_is_not_removed_whatever_the_disk_calls_it);
	tcase_add_test(tcase, what_is_being_committed_or_was_is_not_removed);
	tcase_add_test(tcase, a_quiet_commit_that_fails_is_tried_again);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
