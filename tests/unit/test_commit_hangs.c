// A commit that takes long: who waits for it, who gives up, who comes meanwhile; and what becomes of the step.
#include "core/save/stage.h"
#include "tests/support/fixture_step.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <pthread.h>

#define MS INT64_C(1000000)
#define LONG_NS (INT64_C(600000) * MS)

static struct ckpt_sys below;
static bool hangs; // atomic: the disk answers no sync

static void wait_for_disk(void)
{
	while (__atomic_load_n(&hangs, __ATOMIC_ACQUIRE))
		usleep(1000);
}

static int hanging_fsync(int fd)
{
	wait_for_disk();
	return below.fsync(fd);
}

static int hanging_fdatasync(int fd)
{
	wait_for_disk();
	return below.fdatasync(fd);
}

static void hang(bool hanging)
{
	__atomic_store_n(&hangs, hanging, __ATOMIC_RELEASE);
}

static void setup(void)
{
	ckpt_fixture_step_open("1");
	close(ckpt_staged_put(step, "file", "text"));
	below = ckpt_hooks;
	ckpt_hook_set(fsync, hanging_fsync);
	ckpt_hook_set(fdatasync, hanging_fdatasync);
	s->settings.commit_timeout_ns = 50 * MS;
}

static void teardown(void)
{
	hang(false);
	ckpt_save_settle(s);
	ckpt_fixture_step_close();
	ckpt_hooks_restore(&below);
}

static void *commit_aside(void *result)
{
	*(int *)result = ckpt_staged_commit(step, 0, NULL);
	return NULL;
}

static void await(enum ckpt_step_state state)
{
	while (ckpt_step_state(step) != state)
		usleep(1000);
}

START_TEST(a_disk_that_hangs_ends_the_wait_and_not_the_commit)
{
	hang(true);
	ck_error(ckpt_staged_commit(step, 0, NULL), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "\t1\t"), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "made no progress within commit_timeout"), 1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTING);
	ck_error(ckpt_staged_commit(step, 0, NULL), EIO); // who joins it does not wait for ever, either
	s->settings.commit_timeout_ns = LONG_NS;
	hang(false);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ck_assert_uint_eq(step->version->is.version, 1);
	ckpt_staged_check(step, "file", "text");
}
END_TEST

START_TEST(a_change_waits_for_a_commit_that_hangs_for_so_long)
{
	pthread_t thread;
	int result;

	hang(true);
	ck_assert_int_eq(pthread_create(&thread, NULL, commit_aside, &result), 0);
	await(CKPT_STEP_COMMITTING);
	ck_error(ckpt_stage_enter(step, false), EAGAIN);
	ck_error(ckpt_stage_enter(step, true), EBUSY);
	ck_error(ckpt_stage_rename(step, "", "2"), EBUSY);
	ck_error(ckpt_stage_abort(step, false), EBUSY);
	pthread_join(thread, NULL);
	ck_assert_int_eq(result, -EIO);
	hang(false);
	await(CKPT_STEP_COMMITTED);
	ck_error(ckpt_stage_enter(step, true), EROFS);
}
END_TEST

START_TEST(a_writer_that_is_late_waits_for_a_commit_that_hangs_for_so_long)
{
	struct ckpt_commit how = ckpt_staged_plain;
	struct ckpt_writer late;
	int fd = ckpt_staged_put(step, "late", "ha");

	ckpt_staged_writer(step, &late, fd);
	late.late = true;
	how.leaves_late = true;
	hang(true);
	ck_error(ckpt_commit(step, &how), EIO);
	ck_error(ckpt_stage_writer_await(&late), EBUSY);
	s->settings.commit_timeout_ns = LONG_NS;
	hang(false);
	ck_ok(ckpt_stage_writer_await(&late));
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ck_ok(ckpt_stage_writer_await(&late)); // it is pending now
	ckpt_stage_writer_remove(&late);
	ck_ok(ckpt_stage_writer_await(&late)); // of no step
	close(fd);
}
END_TEST

// Asked whether the client has gone, it lets the disk go on, and answers when the commit is over.
static bool goes_on_and_stays(void *arg)
{
	(void)arg;
	hang(false);
	ckpt_save_settle(s);
	return false;
}

START_TEST(a_commit_that_ends_while_its_client_is_asked_for_is_answered)
{
	struct ckpt_commit how = ckpt_staged_plain;

	how.abandoned = goes_on_and_stays;
	hang(true);
	ck_ok(ckpt_commit(step, &how));
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
}
END_TEST

static bool never(void *arg)
{
	int *asked = arg;

	if (++*asked == 2)
		hang(false);
	return false;
}

START_TEST(a_client_that_stays_is_asked_for_until_the_end)
{
	struct ckpt_commit how = ckpt_staged_plain;
	int asked = 0;

	s->settings.commit_timeout_ns = LONG_NS;
	how.abandoned = never;
	how.abandoned_arg = &asked;
	hang(true);
	ck_ok(ckpt_commit(step, &how));
	ck_assert_int_ge(asked, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("commit hangs");
	TCase *tcase = tcase_create("hangs");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_disk_that_hangs_ends_the_wait_and_not_the_commit);
	tcase_add_test(tcase, a_change_waits_for_a_commit_that_hangs_for_so_long);
	tcase_add_test(tcase, a_writer_that_is_late_waits_for_a_commit_that_hangs_for_so_long);
	tcase_add_test(tcase, a_commit_that_ends_while_its_client_is_asked_for_is_answered);
	tcase_add_test(tcase, a_client_that_stays_is_asked_for_until_the_end);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
