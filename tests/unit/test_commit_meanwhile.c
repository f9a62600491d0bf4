// What becomes of a step between the beginning of its commit and the moment when nobody changes it any more: who held the gate
// by then may still rename it, or take it away. And the names that a commit can give it.
#include "core/save/stage.h"
#include "tests/support/fixture_step.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <pthread.h>

#define MS INT64_C(1000000)

static const char elsewhere[] = "0123456789abcdef"; // another folder

static void setup(void)
{
	ckpt_fixture_step_open("1");
	close(ckpt_staged_put(step, "file", "text"));
}

// A commit that waits for who has entered the gate.
struct waiting {
	pthread_t thread;
	struct ckpt_commit how;
	int result;
};

static void *commit(void *arg)
{
	struct waiting *w = arg;

	w->result = ckpt_commit(step, &w->how);
	return NULL;
}

static void begin(struct waiting *w)
{
	w->how = ckpt_staged_plain;
	w->how.writers_ns = 60000 * MS;
	ck_ok(ckpt_stage_enter(step, false));
	ck_assert_int_eq(pthread_create(&w->thread, NULL, commit, w), 0);
	while (ckpt_step_state(step) == CKPT_STEP_STAGED)
		usleep(1000);
}

static int end(struct waiting *w)
{
	ckpt_stage_leave(step);
	pthread_join(w->thread, NULL);
	return w->result;
}

static void assert_found(const char *folder_id, const char *name, bool found)
{
	struct ckpt_step *there = ckpt_step_find(s, folder_id, name);

	ck_assert_ptr_eq(there, found ? step : NULL);
	ckpt_step_unref(there);
}

START_TEST(a_rename_that_holds_the_gate_names_the_step)
{
	static const struct {
		const char *folder_id, *name;
	} to[] = {{"", "2"}, {elsewhere, "1"}, {elsewhere, "2"}};
	struct waiting w;

	begin(&w);
	ckpt_lock_take(&s->lock);
	ckpt_step_erase_locked(step);
	ck_ok(ckpt_step_insert_locked(step, to[_i].folder_id, to[_i].name));
	ckpt_lock_drop(&s->lock);
	ck_ok(end(&w));
	assert_found(to[_i].folder_id, to[_i].name, true);
	assert_found("", "1", false);
	ck_assert_str_eq(step->version->is.name, to[_i].name);
	ck_assert_str_eq(step->version->is.folder_id, to[_i].folder_id);
}
END_TEST

START_TEST(nobody_waits_for_the_writers_of_a_step_that_was_taken_away)
{
	struct ckpt_writer writer;
	struct waiting w;
	int64_t began_ns = ckpt_sys.mono_ns();
	int fd = ckpt_staged_put(step, "open", "text");

	ckpt_staged_writer(step, &writer, fd);
	begin(&w);
	ckpt_stage_vanish(step);
	ck_error(end(&w), ESTALE);
	ck_assert_int_lt(ckpt_sys.mono_ns() - began_ns, 30000 * MS);
	ck_assert_uint_eq(ckpt_save_errors(s, "it was removed, or moved into another step"), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "is still being written"), 0);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_GONE);
	assert_found("", "1", false);
	ckpt_stage_writer_remove(&writer);
	close(fd);
}
END_TEST

START_TEST(a_commit_takes_the_step_to_another_folder)
{
	struct ckpt_commit how = ckpt_staged_plain;

	how.folder_id = elsewhere;
	how.name = _i ? "2" : "1";
	ck_ok(ckpt_commit(step, &how));
	assert_found(elsewhere, how.name, true);
	assert_found("", "1", false);
	ck_assert_str_eq(step->version->is.folder_id, elsewhere);
	ckpt_staged_check(step, "file", "text");
}
END_TEST

START_TEST(a_name_that_no_step_can_have_is_refused_before_anybody_waits)
{
	static const struct {
		const char *folder_id, *name;
	} bad[] = {{"", "a/b"}, {"", ".."}, {"no folder", "1"}};
	struct ckpt_commit how = ckpt_staged_plain;

	how.folder_id = bad[_i].folder_id;
	how.name = bad[_i].name;
	ck_error(ckpt_commit(step, &how), EINVAL);
	ck_assert_uint_eq(ckpt_save_errors(s, "its name could not be kept for it"), 1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_assert_uint_eq(ckpt_attempts_of(step)->attempts, 0);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	assert_found("", "1", true);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("commit meanwhile");
	TCase *t = tcase_create("meanwhile");

	tcase_add_checked_fixture(t, setup, ckpt_fixture_step_close);
	tcase_add_loop_test(t, a_rename_that_holds_the_gate_names_the_step, 0, 3);
	tcase_add_test(t, nobody_waits_for_the_writers_of_a_step_that_was_taken_away);
	tcase_add_loop_test(t, a_commit_takes_the_step_to_another_folder, 0, 2);
	tcase_add_loop_test(t, a_name_that_no_step_can_have_is_refused_before_anybody_waits, 0, 3);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
