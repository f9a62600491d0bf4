// The arrival of a step in the remote's log, and waiting for it: of a node whose remote is a directory, and which pushes when a test says so.
#include "tests/support/staged.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/arrival.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "1000"
#define LONG_NS INT64_C(20000000000)
#define SHORT_NS INT64_C(200000000)

static struct ckpt_store *s;
static struct ckpt_arrival arrival;

static void setup(void)
{
	char remote[PATH_MAX], url[PATH_MAX + 8], dir[PATH_MAX], why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;
	struct ckpt_step *step;

	ckpt_temp_dir(remote);
	ckpt_temp_dir(dir);
	snprintf(url, sizeof(url), "file://%s", remote);
	setenv("CKPTFS_WORK_DIR", dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &s));
	step = ckpt_staged_begin(s, NAME);
	close(ckpt_staged_put(step, "model.bin", "of the save"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	memcpy(arrival.session, step->session, sizeof(arrival.session));
	ckpt_step_unref(step);
}

static void teardown(void)
{
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

static int wait_for(int64_t timeout_ns)
{
	return ckpt_arrival_wait(s, &arrival, &(struct ckpt_arrival_patience){.timeout_ns = timeout_ns});
}

static struct ckpt_step *find(const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	ck_assert_ptr_nonnull(step);
	return step;
}

START_TEST(is_there_once_it_was_pushed)
{
	ck_error(ckpt_arrival_look(s, &arrival), EAGAIN);
	ck_assert(!ckpt_remote_has(s, arrival.session));
	ck_assert_str_eq(arrival.name, NAME);
	ck_assert_int_eq(ckpt_remote_progressed_ns(*ckpt_remote_of(s)), 0);
	ck_ok(ckpt_store_work_behind(s));
	ck_ok(wait_for(LONG_NS));
	ck_ok(ckpt_arrival_look(s, &arrival));
	ck_assert(ckpt_remote_has(s, arrival.session));
	ck_assert_int_gt(ckpt_remote_progressed_ns(*ckpt_remote_of(s)), 0);
}
END_TEST

static bool after_five(void *arg)
{
	return ++*(unsigned *)arg == 5;
}

START_TEST(wait_ends_without_progress_or_when_it_is_abandoned)
{
	unsigned asked = 0;
	int64_t began_ns = ckpt_sys.mono_ns();

	ck_error(wait_for(SHORT_NS), ETIMEDOUT);
	ck_assert_int_ge(ckpt_sys.mono_ns() - began_ns, SHORT_NS);
	ck_error(ckpt_arrival_wait(s, &arrival,
				   &(struct ckpt_arrival_patience){
					   .timeout_ns = LONG_NS, .abandoned = after_five, .arg = &asked}),
		 EINTR);
	ck_assert_uint_eq(asked, 5);
	ck_error(ckpt_arrival_look(s, &arrival), EAGAIN);
}
END_TEST

START_TEST(step_that_cannot_be_pushed_is_an_error_at_once)
{
	char path[PATH_MAX];
	struct ckpt_step *step = find(NAME);
	int rc;

	snprintf(path, sizeof(path), "%s/model.bin", step->session);
	ck_ok(ckpt_sys.unlink(s->sessions_fd, path, 0));
	ckpt_step_unref(step);
	ck_ok(ckpt_store_work_behind(s));
	rc = wait_for(LONG_NS);
	ck_assert_msg(rc < 0 && rc != -ETIMEDOUT && rc != -EAGAIN, "%d", rc);
}
END_TEST

START_TEST(step_that_was_deleted_is_not_waited_for)
{
	struct ckpt_step *step = find(NAME);

	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	ck_ok(wait_for(SHORT_NS));
	ck_assert(!ckpt_remote_has(s, arrival.session));
}
END_TEST

// An edit is a step of its own: what was waited for is not there before that is.
START_TEST(edit_takes_the_place_of_what_is_waited_for)
{
	const struct ckpt_commit how = {
		.event = "quiet", .profile = "generic", .keeps_metadata = true, .keeps_place = true};
	char before[CKPT_UUID_LEN + 1];
	struct ckpt_step *step = find(NAME), *staged;

	memcpy(before, arrival.session, sizeof(before));
	ck_ok(ckpt_reopen(step, &staged));
	ck_ok(ckpt_stage_enter(staged, true));
	close(ckpt_staged_put(staged, "notes.txt", "of an edit"));
	ckpt_stage_leave(staged);
	ck_ok(ckpt_commit(staged, &how));
	ckpt_step_unref(staged);
	ckpt_step_unref(step);
	ck_error(wait_for(SHORT_NS), ETIMEDOUT);
	ck_assert_str_ne(arrival.session, before);
	ck_ok(ckpt_store_work_behind(s));
	ck_ok(wait_for(LONG_NS));
	ck_assert(ckpt_remote_has(s, arrival.session));
}
END_TEST

START_TEST(name_is_the_one_that_it_has_now)
{
	struct ckpt_step *step = find(NAME);

	ck_ok(ckpt_move(step, "", "2000"));
	ckpt_step_unref(step);
	ck_ok(ckpt_store_work_behind(s));
	ck_ok(wait_for(LONG_NS));
	ck_assert_str_eq(arrival.name, "2000");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arrival");
	TCase *tcase = tcase_create("arrival");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, is_there_once_it_was_pushed);
	tcase_add_test(tcase, wait_ends_without_progress_or_when_it_is_abandoned);
	tcase_add_test(tcase, step_that_cannot_be_pushed_is_an_error_at_once);
	tcase_add_test(tcase, step_that_was_deleted_is_not_waited_for);
	tcase_add_test(tcase, edit_takes_the_place_of_what_is_waited_for);
	tcase_add_test(tcase, name_is_the_one_that_it_has_now);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
