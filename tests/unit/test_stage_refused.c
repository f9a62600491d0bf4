// Staged and left steps where something is in the way: somebody who is at work, damage.
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/save/draft.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

// --- Somebody is at work ------------------------------------------------------------------------------------------------

START_TEST(what_somebody_uses_is_dropped_only_by_who_insists)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "file", "text");

	ck_assert(!ckpt_stage_use(step)); // it is not left
	ckpt_staged_writer(step, &w, fd);
	ck_error(ckpt_stage_abort(step, true), EBUSY);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = ckpt_save_set_aside(s);
	ck_assert(ckpt_stage_use(step));
	ck_error(ckpt_stage_abort(step, true), EBUSY);
	ck_ok(ckpt_stage_abort(step, false));
	ck_assert(!ckpt_stage_use(step));
	ckpt_stage_unuse(step);
	ckpt_step_unref(step);
}
END_TEST

static void *commit_aside(void *arg)
{
	static int result;

	result = ckpt_staged_commit(arg, 0, NULL);
	return &result;
}

static void await(struct ckpt_step *step, enum ckpt_step_state state)
{
	while (ckpt_step_state(step) != state)
		usleep(1000);
}

START_TEST(a_commit_waits_for_all_changes_that_had_begun)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	pthread_t thread;
	void *result;

	ck_ok(ckpt_stage_enter(step, false));
	ck_ok(ckpt_stage_enter(step, false));
	ck_assert_int_eq(pthread_create(&thread, NULL, commit_aside, step), 0);
	await(step, CKPT_STEP_COMMITTING);
	close(ckpt_staged_put(step, "first", "1"));
	ckpt_stage_leave(step);
	usleep(50000);
	close(ckpt_staged_put(step, "second", "2"));
	ckpt_stage_leave(step);
	pthread_join(thread, &result);
	ck_assert_int_eq(*(int *)result, 0);
	ckpt_staged_check(step, "first", "1");
	ckpt_staged_check(step, "second", "2");
	ckpt_step_unref(step);
}
END_TEST

static struct ckpt_sys below;
static struct ckpt_step *dropped;
static bool has_gate; // atomic

// While its session moves to the trash, somebody completes the step.
static int rename_beside_a_commit(int from, const char *name, int to, const char *as, unsigned flags)
{
	__atomic_store_n(&has_gate, true, __ATOMIC_RELEASE);
	await(dropped, CKPT_STEP_COMMITTING);
	return below.rename(from, name, to, as, flags);
}

static void *abort_aside(void *arg)
{
	static int result;

	result = ckpt_stage_abort(arg, false);
	return &result;
}

START_TEST(a_step_that_is_dropped_as_its_commit_begins_is_gone)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	pthread_t thread;
	void *result;

	below = ckpt_hooks;
	dropped = step;
	ckpt_hook_set(rename, rename_beside_a_commit);
	ck_assert_int_eq(pthread_create(&thread, NULL, abort_aside, step), 0);
	while (!__atomic_load_n(&has_gate, __ATOMIC_ACQUIRE))
		usleep(1000);
	ck_error(ckpt_staged_commit(step, 0, NULL), ESTALE);
	pthread_join(thread, &result);
	ckpt_hook_set(rename, below.rename);
	ck_assert_int_eq(*(int *)result, 0);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_GONE);
	ck_assert_uint_eq(ckpt_save_errors(s, "at the same moment"), 1);
	ck_error(ckpt_staged_commit(step, 0, NULL), ESTALE);
	ckpt_step_unref(step);
	step = ckpt_staged_begin(s, "1"); // the name is free
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_step_unref(step);
}
END_TEST

static struct ckpt_step *resumed;

// While we look whether its name is free in the tree, somebody else takes it up.
static int open_beside_a_resume(int dirfd, const char *path, int flags, mode_t mode)
{
	ckpt_hook_set(open, below.open);
	ck_ok(ckpt_stage_resume(resumed));
	return below.open(dirfd, path, flags, mode);
}

START_TEST(a_left_step_is_taken_up_by_one)
{
	struct ckpt_step *found;

	ckpt_step_unref(ckpt_staged_begin(s, "1"));
	ckpt_fixture_reopen();
	resumed = ckpt_save_set_aside(s);
	below = ckpt_hooks;
	ckpt_hook_set(open, open_beside_a_resume);
	ck_error(ckpt_stage_resume(resumed), ESTALE);
	ck_assert_int_eq(ckpt_step_state(resumed), CKPT_STEP_STAGED);
	found = ckpt_step_find(s, "", "1");
	ck_assert_ptr_eq(found, resumed);
	ck_ok(ckpt_staged_commit(resumed, 0, NULL));
	ckpt_step_unref(found);
	ckpt_step_unref(resumed);
}
END_TEST

// What was written through one and closed is how the file is for all that have it open, and for no other file.
START_TEST(a_close_says_how_its_file_is_now)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer a, fork, unflushed, other;
	int fd = ckpt_staged_put(step, "a", "text"), fd_other = ckpt_staged_put(step, "b", "text");

	ckpt_staged_writer(step, &fork, fd);
	ckpt_stage_writer_flushed(&fork, 1, 1);
	ckpt_staged_writer(step, &unflushed, fd);
	ckpt_staged_writer(step, &other, fd_other);
	ckpt_stage_writer_flushed(&other, 2, 2);
	ckpt_staged_writer(step, &a, fd);
	ckpt_stage_writer_flushed(&a, 4, 44);
	ck_assert_uint_eq(fork.flush_bytes, 4);
	ck_assert_int_eq(fork.flush_mtime_ns, 44);
	ck_assert(!unflushed.flushed);
	ck_assert_uint_eq(unflushed.flush_bytes, 0);
	ck_assert_uint_eq(other.flush_bytes, 2);
	ckpt_stage_writer_remove(&a);
	ckpt_stage_writer_remove(&fork);
	ckpt_stage_writer_remove(&unflushed);
	ckpt_stage_writer_remove(&other);
	close(fd);
	close(fd_other);
	ckpt_step_unref(step);
}
END_TEST

// --- Damage -------------------------------------------------------------------------------------------------------------

START_TEST(of_a_damaged_manifest_nothing_is_derived)
{
	struct ckpt_step *from = ckpt_save_one(s, CKPT_SAVE_LARGE), *step;
	char command[2 * PATH_MAX + 128];

	ckpt_step_unref(from);
	ckpt_store_close(s);
	snprintf(command, sizeof(command), "rm -r '%s/index' && for f in '%s'/m/*; do printf X >\"$f\"; done", dir,
		 dir);
	ck_assert_int_eq(system(command), 0);
	s = ckpt_save_open(dir);
	from = ckpt_save_find(s, CKPT_SAVE_LARGE);
	ck_error(ckpt_stage_begin_from(s, "", "derived", from, false, &step), EIO);
	ck_assert_ptr_null(ckpt_step_find(s, "", "derived"));
	step = ckpt_staged_begin(s, "derived"); // nothing of it is in the way
	ckpt_step_unref(step);
	ckpt_step_unref(from);
}
END_TEST

// The error is said as it is where it may go away.
START_TEST(of_a_step_whose_record_is_away_nothing_is_derived)
{
	struct ckpt_step *from = ckpt_save_one(s, 0), *step;

	ckpt_step_unref(from);
	ckpt_fixture_reopen();
	from = ckpt_save_find(s, 0);
	ck_ok(ckpt_sys.rename(s->dirfd, "log", s->dirfd, "away", 0));
	ck_error(ckpt_stage_begin_from(s, "", "derived", from, false, &step), ENOENT);
	ck_ok(ckpt_sys.rename(s->dirfd, "away", s->dirfd, "log", 0));
	ck_assert_ptr_null(ckpt_step_find(s, "", "derived"));
	ck_ok(ckpt_stage_begin_from(s, "", "derived", from, false, &step));
	ckpt_step_unref(step);
	ckpt_step_unref(from);
}
END_TEST

START_TEST(who_only_reads_tells_and_removes_nothing_of_drafts)
{
	struct ckpt_draft_origin origin = {
		.path = "best.pt", .name = "best.pt", .folder_id = "", .pid = 1, .folder_fd = -1};
	struct ckpt_draft full, empty;
	struct ckpt_store *reader;
	int fd;

	ck_ok(ckpt_draft_begin(s, &origin, &full));
	fd = ckpt_sys.open(full.dirfd, full.name, O_WRONLY | O_CREAT | O_EXCL, 0644);
	ck_ok(fd);
	close(fd);
	ck_ok(ckpt_draft_begin(s, &origin, &empty));
	ckpt_draft_close(&full);
	ckpt_draft_close(&empty);
	ckpt_store_close(s);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ck_ok(faccessat(reader->sessions_fd, empty.session, F_OK, 0));
	ck_assert_uint_eq(ckpt_save_errors(reader, "not completed"), 0);
	ckpt_store_close(reader);
	s = ckpt_save_open(dir);
	ck_assert_uint_eq(ckpt_save_errors(s, "not completed"), 1);
	ck_assert_int_eq(faccessat(s->sessions_fd, empty.session, F_OK, 0), -1);
	ckpt_step_unref(ckpt_save_left(s));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stage refused");
	TCase *tcase = tcase_create("refused");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, a_left_step_is_taken_up_by_one);
	tcase_add_test(tcase, what_somebody_uses_is_dropped_only_by_who_insists);
	tcase_add_test(tcase, a_commit_waits_for_all_changes_that_had_begun);
	tcase_add_test(tcase, a_step_that_is_dropped_as_its_commit_begins_is_gone);
	tcase_add_test(tcase, a_close_says_how_its_file_is_now);
	tcase_add_test(tcase, of_a_damaged_manifest_nothing_is_derived);
	tcase_add_test(tcase, of_a_step_whose_record_is_away_nothing_is_derived);
	tcase_add_test(tcase, who_only_reads_tells_and_removes_nothing_of_drafts);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
