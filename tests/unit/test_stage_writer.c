// Who has a file of a staged step open for writing: what a commit makes of each, and what becomes of one that is killed, or whose
// step becomes part of another meanwhile.
#include "core/save/stage.h"
#include "tests/support/fixture_step.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/torn.h"

#include <fcntl.h>
#include <pthread.h>

static int fds[4]; // of the files "0" to "3"

static void setup(void)
{
	char name[2] = "0";

	ckpt_fixture_step_open("1");
	for (size_t i = 0; i < ARRAY_LEN(fds); i++, name[0]++)
		fds[i] = ckpt_staged_put(step, name, "text");
}

static void teardown(void)
{
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	ckpt_fixture_step_close();
}

// As a commit would; nobody else looks.
static void set_state(enum ckpt_step_state state)
{
	LOCK_SCOPE(&step->lock);

	ckpt_step_set_state_locked(step, state);
}

START_TEST(only_who_was_left_out_waits_for_the_commit)
{
	struct ckpt_writer w;

	s->settings.commit_timeout_ns = 0; // it stands still
	ckpt_staged_writer(step, &w, fds[0]);
	set_state(CKPT_STEP_COMMITTING);
	ck_ok(ckpt_stage_writer_await(&w));
	w.left = true;
	ck_error(ckpt_stage_writer_await(&w), EBUSY);
	set_state(CKPT_STEP_STAGED);
	ck_ok(ckpt_stage_writer_await(&w));
	ckpt_staging_of(step)->outcome_unknown = true;
	ck_error(ckpt_stage_writer_await(&w), EIO);
	w.left = false; // the commit waited for its end: it is in the step, whatever became of that
	ck_ok(ckpt_stage_writer_await(&w));
	ckpt_staging_of(step)->outcome_unknown = false;
	w.left = true;
	set_state(CKPT_STEP_COMMITTED);
	ck_ok(ckpt_stage_writer_await(&w));
	set_state(CKPT_STEP_STAGED);
	ckpt_stage_writer_remove(&w);
}
END_TEST

static void *await_aside(void *w)
{
	static int result;

	result = ckpt_stage_writer_await(w);
	return &result;
}

static const struct {
	enum ckpt_step_state state;
	bool unknown;
	int answer;
} ends[] = {{CKPT_STEP_STAGED, false, 0}, {CKPT_STEP_STAGED, true, EIO}, {CKPT_STEP_COMMITTED, false, 0}};

START_TEST(who_waits_for_a_commit_is_told_how_it_ended)
{
	struct ckpt_writer w;
	pthread_t thread;
	void *result;

	ckpt_staged_writer(step, &w, fds[0]);
	w.left = true;
	ckpt_lock_take(&step->lock);
	step->state = CKPT_STEP_COMMITTING;
	ckpt_staging_of(step)->progress_ns = ckpt_sys.mono_ns();
	ckpt_lock_drop(&step->lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, await_aside, &w), 0);
	usleep(50000);
	ckpt_lock_take(&step->lock);
	step->state = ends[_i].state;
	ckpt_staging_of(step)->outcome_unknown = ends[_i].unknown;
	pthread_cond_broadcast(&step->changed);
	ckpt_lock_drop(&step->lock);
	pthread_join(thread, &result);
	ck_error(*(int *)result, ends[_i].answer);
	ckpt_staging_of(step)->outcome_unknown = false;
	set_state(CKPT_STEP_STAGED);
	ckpt_stage_writer_remove(&w);
}
END_TEST

static void *enter_aside(void *unused)
{
	static int result;

	(void)unused;
	result = ckpt_stage_enter(step, true);
	return &result;
}

START_TEST(a_change_waits_for_a_commit_that_gets_on_and_for_no_other)
{
	pthread_t thread;
	void *result;

	ckpt_lock_take(&step->lock);
	step->state = CKPT_STEP_COMMITTING;
	ckpt_staging_of(step)->progress_ns = ckpt_sys.mono_ns();
	ckpt_lock_drop(&step->lock);
	ck_error(ckpt_stage_enter(step, false), EAGAIN);
	ck_assert_int_eq(pthread_create(&thread, NULL, enter_aside, NULL), 0);
	usleep(50000);
	ckpt_lock_take(&step->lock);
	ck_assert_int_eq(ckpt_staging_of(step)->changers, 0);
	step->state = CKPT_STEP_STAGED;
	pthread_cond_broadcast(&step->changed);
	ckpt_lock_drop(&step->lock);
	pthread_join(thread, &result);
	ck_ok(*(int *)result);
	ckpt_stage_leave(step);
	set_state(CKPT_STEP_COMMITTING);
	s->settings.commit_timeout_ns = 0; // it stands still
	ck_error(ckpt_stage_enter(step, true), EBUSY);
	set_state(CKPT_STEP_STAGED);
}
END_TEST

START_TEST(a_commit_awaits_who_has_not_closed_and_was_not_left_out)
{
	struct ckpt_writer w;

	ckpt_staged_writer(step, &w, fds[0]);
	ck_assert(!ckpt_stage_writer_is_awaited(&w));
	set_state(CKPT_STEP_COMMITTING);
	ck_assert(ckpt_stage_writer_is_awaited(&w));
	w.left = true;
	ck_assert(!ckpt_stage_writer_is_awaited(&w));
	w.left = false;
	ckpt_stage_writer_flushed(&w, 4, 1);
	ck_assert(!ckpt_stage_writer_is_awaited(&w));
	set_state(CKPT_STEP_STAGED);
	ckpt_stage_writer_remove(&w);
	ck_assert(!ckpt_stage_writer_is_awaited(&w));
}
END_TEST

START_TEST(a_writer_saves_as_long_as_its_step_is_staged)
{
	struct ckpt_writer w;

	ck_assert_int_eq(ckpt_jobs_saving(s->jobs), 0);
	ckpt_staged_writer(step, &w, fds[0]);
	ck_assert_int_eq(ckpt_jobs_saving(s->jobs), 1);
	set_state(CKPT_STEP_COMMITTING);
	ck_assert_int_eq(ckpt_jobs_saving(s->jobs), 2);
	set_state(CKPT_STEP_STAGED);
	ckpt_lock_take(&step->lock);
	ckpt_stage_writers_save_no_more_locked(step);
	ckpt_lock_drop(&step->lock);
	ck_assert_int_eq(ckpt_jobs_saving(s->jobs), 0);
	ckpt_stage_writer_remove(&w);
	ck_assert_int_eq(ckpt_jobs_saving(s->jobs), 0);
}
END_TEST

static void assert_killed(pid_t pid, const char *path, bool late)
{
	ck_assert(ckpt_staging_of(step)->killed.any);
	ck_assert_int_eq(ckpt_staging_of(step)->killed.pid, pid);
	ck_assert_str_eq(ckpt_staging_of(step)->killed.path, path);
	ck_assert(ckpt_staging_of(step)->killed.late == late);
}

// A commit may go on without late files, so another one weighs more.
START_TEST(of_the_killed_the_first_is_told_unless_it_was_only_a_late_one)
{
	struct ckpt_writer w[ARRAY_LEN(fds)];

	for (size_t i = 0; i < ARRAY_LEN(w); i++) {
		ckpt_staged_writer(step, &w[i], fds[i]);
		w[i].pid = 100 + (pid_t)i;
		w[i].late = i < 2;
	}
	set_state(CKPT_STEP_COMMITTING); // somebody awaits them
	ckpt_stage_writer_killed(&w[0]);
	assert_killed(100, "0", true);
	ckpt_stage_writer_killed(&w[1]);
	assert_killed(100, "0", true);
	ckpt_stage_writer_killed(&w[2]);
	assert_killed(102, "2", false);
	ckpt_stage_writer_killed(&w[3]);
	ckpt_stage_writer_killed(&w[1]);
	assert_killed(102, "2", false);
	set_state(CKPT_STEP_STAGED);
	for (size_t i = 0; i < ARRAY_LEN(w); i++)
		ckpt_stage_writer_remove(&w[i]);
	ckpt_stage_writer_killed(&w[3]); // of no step any more
}
END_TEST

static bool is_torn(int fd)
{
	struct statx stx;

	ck_assert_int_eq(statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx), 0);
	return ckpt_torn_is(fd, &stx);
}

START_TEST(the_file_of_a_killed_writer_is_torn_until_it_is_written_again)
{
	struct ckpt_writer w[2];
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(w); i++)
		ckpt_staged_writer(step, &w[i], fds[i]);
	ck_assert(!fstat(fds[1], &st));
	ckpt_stage_writer_flushed(&w[1], (uint64_t)st.st_size,
				  st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec);
	for (size_t i = 0; i < ARRAY_LEN(w); i++)
		ckpt_stage_writer_killed(&w[i]);
	ck_assert(!ckpt_staging_of(step)->killed.any); // nobody awaits them
	ck_assert(is_torn(fds[0]));
	ck_assert(!is_torn(fds[1])); // it was closed before, and has not changed since
	ck_assert_int_eq(pwrite(fds[0], "x", 1, 0), 1);
	ck_assert(!is_torn(fds[0]));
	for (size_t i = 0; i < ARRAY_LEN(w); i++)
		ckpt_stage_writer_remove(&w[i]);
}
END_TEST

static void *remove_aside(void *w)
{
	ckpt_stage_writer_remove(w);
	return NULL;
}

// Whichever comes first: usually the writer is on its way out of the one step, and waits for its lock, when it comes to the other.
START_TEST(a_writer_that_ends_while_its_step_becomes_part_of_another_is_in_neither)
{
	for (int i = 0; i < 20; i++) {
		struct ckpt_step *other = ckpt_staged_begin(s, "2");
		struct ckpt_writer w;
		pthread_t thread;

		ckpt_staged_writer(step, &w, fds[0]);
		ckpt_lock_take(&step->lock);
		ck_assert_int_eq(pthread_create(&thread, NULL, remove_aside, &w), 0);
		usleep(2000);
		ckpt_lock_drop(&step->lock);
		ckpt_stage_take_over(step, other);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		ck_assert_ptr_null(w.step);
		ck_assert_ptr_null(ckpt_staging_of(step)->writers);
		ck_assert_ptr_null(ckpt_staging_of(other)->writers);
		ck_ok(ckpt_stage_remove(other));
		ckpt_step_unref(other);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stage writer");
	TCase *tcase = tcase_create("writers");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, only_who_was_left_out_waits_for_the_commit);
	tcase_add_loop_test(tcase, who_waits_for_a_commit_is_told_how_it_ended, 0, (int)ARRAY_LEN(ends));
	tcase_add_test(tcase, a_change_waits_for_a_commit_that_gets_on_and_for_no_other);
	tcase_add_test(tcase, a_commit_awaits_who_has_not_closed_and_was_not_left_out);
	tcase_add_test(tcase, a_writer_saves_as_long_as_its_step_is_staged);
	tcase_add_test(tcase, of_the_killed_the_first_is_told_unless_it_was_only_a_late_one);
	tcase_add_test(tcase, the_file_of_a_killed_writer_is_torn_until_it_is_written_again);
	tcase_add_test(tcase, a_writer_that_ends_while_its_step_becomes_part_of_another_is_in_neither);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
