#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/step/reopened.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SECOND_NS INT64_C(1000000000)
#define TEMP "1000.orbax-checkpoint-tmp-7"

static const bool go_on = false, stopped = true;

static void teardown(void)
{
	ckpt_trash_drain(*ckpt_trash_of(s));
	ckpt_fixture_close();
}

static int64_t soon(void)
{
	return ckpt_sys.now_ns() + SECOND_NS;
}

static struct ckpt_step *staged_by(const char *name, pid_t pid)
{
	struct ckpt_step *step;

	ck_ok(ckpt_stage_begin(s, "", name, 0755, getuid(), getgid(), pid, &step));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	close(ckpt_staged_put(step, "sub/a", "some text"));
	return step;
}

// Of a maker of whom nothing is known.
static struct ckpt_step *staged(const char *name)
{
	return staged_by(name, 0);
}

static bool is_there(const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	ckpt_step_unref(step);
	return step;
}

START_TEST(usage_is_of_all_files_and_of_the_last_change)
{
	struct ckpt_step *step = staged("1000");
	struct ckpt_stage_usage u;
	int64_t changed;

	close(ckpt_staged_put(step, "b", "more"));
	ck_ok(ckpt_stage_usage(step, &u));
	ck_assert_uint_eq(u.files, 2);
	ck_assert_uint_eq(u.bytes, strlen("some text") + strlen("more"));
	ck_assert_uint_eq(u.open_writers, 0);
	changed = u.changed_ns;
	usleep(30000);
	ck_assert_int_eq(fchmodat(step->dirfd, "sub/a", 0600, 0), 0);
	ck_ok(ckpt_stage_usage(step, &u));
	ck_assert_int_gt(u.changed_ns, changed);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(only_what_has_a_temp_name_expires)
{
	static const char *const names[] = {TEMP,   "1001.partial_save", "tmp-checkpoint-5",
					    "1002", "checkpoint-3",      "best"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ckpt_step_unref(staged(names[i]));
	ck_assert_int_eq(ckpt_stage_expire_before(s, soon(), &go_on), INT64_MAX);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ck_assert_msg(is_there(names[i]) == (i >= 3), "%s", names[i]);
	ck_assert_uint_eq(ckpt_save_errors(s, "staging_ttl"), 3);
}
END_TEST

START_TEST(what_was_changed_since_stays_and_says_when_it_is_due)
{
	int64_t before = ckpt_sys.now_ns() - SECOND_NS, next;
	struct ckpt_step *step = staged(TEMP);

	next = ckpt_stage_expire_before(s, before, &go_on);
	ck_assert(is_there(TEMP));
	ck_assert_int_gt(next, before);
	ck_assert_int_le(next, soon());
	// A change deep in it counts as one of it.
	usleep(30000);
	ck_assert_int_eq(fchmodat(step->dirfd, "sub/a", 0600, 0), 0);
	ck_assert_int_gt(ckpt_stage_expire_before(s, next + 1, &go_on), next);
	ck_assert(is_there(TEMP));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_somebody_has_open_stays)
{
	struct ckpt_step *step = staged(TEMP);
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "open", "x");

	ckpt_staged_writer(step, &w, fd);
	ck_assert_int_ne(ckpt_stage_expire_before(s, soon(), &go_on), 0);
	ck_assert(is_there(TEMP));
	ckpt_stage_writer_remove(&w);
	close(fd);
	ck_assert_int_eq(ckpt_stage_expire_before(s, soon(), &go_on), INT64_MAX);
	ck_assert(!is_there(TEMP));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_its_maker_may_go_on_with_stays)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	ckpt_step_unref(staged_by(TEMP, getpid()));
	ckpt_step_unref(staged_by("1001.partial_save", pid)); // ended, and not waited for yet
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert(is_there(TEMP));
	ck_assert(is_there("1001.partial_save"));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert(is_there(TEMP));
	ck_assert(!is_there("1001.partial_save"));
}
END_TEST

START_TEST(a_left_one_expires_when_nobody_reads_it)
{
	struct ckpt_step **left;
	size_t count;

	ckpt_step_unref(staged(TEMP));
	ckpt_step_unref(staged("1001"));
	ckpt_fixture_reopen();
	ck_ok(ckpt_step_list(s, NULL, 1u << CKPT_STEP_STAGED, &left, &count));
	ck_assert_uint_eq(count, 2);
	for (size_t i = 0; i < count; i++) {
		ck_ok(ckpt_stage_set_aside(left[i]));
		ck_assert(ckpt_stage_use(left[i]));
	}
	ckpt_stage_expire_before(s, soon(), &go_on);
	for (size_t i = 0; i < count; i++) {
		ck_assert_int_eq(ckpt_step_state(left[i]), CKPT_STEP_LEFT);
		ckpt_stage_unuse(left[i]);
	}
	ckpt_stage_expire_before(s, soon(), &stopped);
	for (size_t i = 0; i < count; i++)
		ck_assert_int_eq(ckpt_step_state(left[i]), CKPT_STEP_LEFT);
	ckpt_stage_expire_before(s, soon(), &go_on);
	for (size_t i = 0; i < count; i++)
		ck_assert_int_eq(ckpt_step_state(left[i]),
				 strcmp(left[i]->name, TEMP) ? CKPT_STEP_LEFT : CKPT_STEP_GONE);
	ckpt_step_list_free(left, count);
}
END_TEST

START_TEST(a_session_that_cannot_be_looked_at_stays)
{
	ckpt_step_unref(staged(TEMP));
	struct ckpt_step *step = ckpt_step_find(s, "", TEMP);

	ck_ok(ckpt_sys.rename(s->sessions_fd, step->session, s->sessions_fd, "elsewhere", 0));
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert(is_there(TEMP));
	ck_ok(ckpt_sys.rename(s->sessions_fd, "elsewhere", s->sessions_fd, step->session, 0));
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert(!is_there(TEMP));
	ckpt_step_unref(step);
}
END_TEST

// A committed step may have such a name; what changes of it stand still has an end of its own (reopen.h).
START_TEST(changes_of_a_committed_step_do_not_expire)
{
	struct ckpt_step *base = staged(TEMP), *step;

	ck_ok(ckpt_commit(base, &ckpt_staged_plain));
	ck_ok(ckpt_reopen(base, &step));
	ck_assert_int_eq(ckpt_stage_expire_before(s, soon(), &go_on), INT64_MAX);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_step_unref(step);
	ckpt_step_unref(base);
}
END_TEST

// Of whom we are not root: a daemon may not even ask.
START_TEST(what_a_process_of_another_user_goes_on_with_stays)
{
	if (!geteuid())
		ck_assert_int_eq(setresuid(4711, 4711, 0), 0);
	ck_assert_int_eq(kill(1, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	if (getuid() == 4711)
		ck_assert_int_eq(setresuid(0, 0, 0), 0);
	ckpt_step_unref(staged_by(TEMP, 1));
	if (!geteuid())
		ck_assert_int_eq(setresuid(4711, 4711, 0), 0);
	ckpt_stage_expire_before(s, soon(), &go_on);
	if (getuid() == 4711)
		ck_assert_int_eq(setresuid(0, 0, 0), 0);
	ck_assert(is_there(TEMP));
}
END_TEST

START_TEST(deeper_than_a_step_may_be_nobody_looks)
{
	char path[2 * (CKPT_DEPTH_MAX + 3)] = "";
	struct ckpt_step *step = staged("1000");
	struct ckpt_stage_usage u;

	for (int depth = 1; depth <= CKPT_DEPTH_MAX + 1; depth++) {
		strcat(path, depth > 1 ? "/d" : "d");
		ck_ok(ckpt_sys.mkdir(step->dirfd, path, 0755));
		if (depth >= CKPT_DEPTH_MAX) { // the last that is looked into, and one more
			strcat(path, "/f");
			close(ckpt_staged_put(step, path, "text"));
			path[strlen(path) - 2] = '\0';
		}
	}
	ck_ok(ckpt_stage_usage(step, &u));
	ck_assert_uint_eq(u.files, 2); // with that of staged()
	ckpt_step_unref(step);
}
END_TEST

static struct ckpt_sys below;
static struct ckpt_step *looked_at;

// What was just listed is gone when it is looked at.
static int readdir_beside_a_removal(DIR *listed, struct dirent **ret_entry)
{
	int rc = below.readdir(listed, ret_entry);

	if (!rc && *ret_entry && !strcmp((*ret_entry)->d_name, "b"))
		ck_ok(ckpt_sys.unlink(looked_at->dirfd, "b", 0));
	return rc;
}

START_TEST(what_is_removed_while_we_look_does_not_count)
{
	struct ckpt_step *step = staged("1000");
	struct ckpt_stage_usage u;

	close(ckpt_staged_put(step, "b", "more"));
	below = ckpt_hooks;
	looked_at = step;
	ckpt_hook_set(readdir, readdir_beside_a_removal);
	ck_ok(ckpt_stage_usage(step, &u));
	ckpt_hook_set(readdir, below.readdir);
	ck_assert_uint_eq(u.files, 1);
	ckpt_step_unref(step);
}
END_TEST

// At the end of its listing the session is somewhere else.
static int readdir_beside_a_rename(DIR *listed, struct dirent **ret_entry)
{
	int rc = below.readdir(listed, ret_entry);

	if (!rc && !*ret_entry)
		(void)ckpt_sys.rename(s->sessions_fd, looked_at->session, s->sessions_fd, "elsewhere", 0);
	return rc;
}

START_TEST(a_session_that_goes_while_we_look_is_not_dropped)
{
	struct ckpt_step *step = staged(TEMP);

	below = ckpt_hooks;
	looked_at = step;
	ckpt_hook_set(readdir, readdir_beside_a_rename);
	ck_assert_int_eq(ckpt_stage_expire_before(s, soon(), &go_on), INT64_MAX);
	ckpt_hook_set(readdir, below.readdir);
	ck_assert(is_there(TEMP));
	ck_ok(ckpt_sys.rename(s->sessions_fd, "elsewhere", s->sessions_fd, step->session, 0));
	ckpt_step_unref(step);
}
END_TEST

static int refused; // -errno of an open of the folder in it

static int open_but_for_sub(int dirfd, const char *path, int flags, mode_t mode)
{
	return strcmp(path, "sub") ? below.open(dirfd, path, flags, mode) : refused;
}

// What cannot be looked into for the moment may be what is being written: nothing is known of its age.
START_TEST(a_folder_that_cannot_be_opened_just_now_keeps_the_step)
{
	static const int not_now[] = {-EMFILE, -ENFILE, -EIO, -ENOMEM};
	struct ckpt_step *step = staged(TEMP);
	struct ckpt_stage_usage u;

	below = ckpt_hooks;
	ckpt_hook_set(open, open_but_for_sub);
	for (size_t i = 0; i < ARRAY_LEN(not_now); i++) {
		refused = not_now[i];
		ck_error(ckpt_stage_usage(step, &u), -not_now[i]);
		ckpt_stage_expire_before(s, soon(), &go_on);
		ck_assert(is_there(TEMP));
	}
	ckpt_hook_set(open, below.open);
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert(!is_there(TEMP));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_goes_away_or_may_not_be_read_is_left_out)
{
	static const int gone[] = {-ENOENT, -ENOTDIR, -ELOOP, -EACCES};
	struct ckpt_step *step = staged(TEMP);
	struct ckpt_stage_usage u;

	close(ckpt_staged_put(step, "b", "more"));
	below = ckpt_hooks;
	ckpt_hook_set(open, open_but_for_sub);
	for (size_t i = 0; i < ARRAY_LEN(gone); i++) {
		refused = gone[i];
		ck_ok(ckpt_stage_usage(step, &u));
		ck_assert_uint_eq(u.files, 1);
	}
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert(!is_there(TEMP));
	ckpt_hook_set(open, below.open);
	ckpt_step_unref(step);
}
END_TEST

// --- Who is saving ------------------------------------------------------------------------------------------------------

// All that was done is longer ago than anybody waits for more.
static void let_it_stand_still(void)
{
	usleep(5000);
	s->settings.commit_quiet_ns = 100000;
}

START_TEST(nobody_saves_where_nothing_is_staged)
{
	ck_assert(!ckpt_stage_is_saving(s, NULL));
	ckpt_step_unref(ckpt_staged_one(s, "1000", "model.bin", "weights"));
	ck_assert(!ckpt_stage_is_saving(s, NULL) && !ckpt_stage_is_saving(s, ""));
}
END_TEST

START_TEST(who_changed_a_step_just_now_is_saving_it)
{
	struct ckpt_step *step = staged("1000");

	ck_ok(ckpt_stage_enter(step, true));
	ckpt_stage_leave(step);
	ck_assert(ckpt_stage_is_saving(s, "") && ckpt_stage_is_saving(s, NULL));
	ck_assert(!ckpt_stage_is_saving(s, "0123456789abcdef")); // a step of another folder
	let_it_stand_still();
	ck_assert(!ckpt_stage_is_saving(s, ""));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(who_has_a_file_open_is_saving_however_long_it_takes)
{
	struct ckpt_step *step = staged("1000");
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "open", "x");

	ckpt_staged_writer(step, &w, fd);
	let_it_stand_still();
	ck_assert(ckpt_stage_is_saving(s, ""));
	ckpt_stage_writer_remove(&w);
	close(fd);
	let_it_stand_still();
	ck_assert(!ckpt_stage_is_saving(s, ""));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(who_is_in_a_change_of_a_step_is_saving_it)
{
	struct ckpt_step *step = staged("1000");

	ck_ok(ckpt_stage_enter(step, true));
	let_it_stand_still();
	ck_assert(ckpt_stage_is_saving(s, ""));
	ckpt_stage_leave(step);
	let_it_stand_still();
	ck_assert(!ckpt_stage_is_saving(s, ""));
	ckpt_step_unref(step);
}
END_TEST

static bool saves, asked;

// At the end of the scan of what is committed.
static int readdir_within_a_commit(DIR *listed, struct dirent **ret_entry)
{
	int rc = below.readdir(listed, ret_entry);

	if (!rc && !*ret_entry && !asked) {
		asked = true;
		saves = ckpt_stage_is_saving(s, "");
	}
	return rc;
}

START_TEST(a_commit_that_runs_is_a_save)
{
	struct ckpt_step *step = staged("1000");

	let_it_stand_still();
	ck_assert(!ckpt_stage_is_saving(s, ""));
	below = ckpt_hooks;
	ckpt_hook_set(readdir, readdir_within_a_commit);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_hook_set(readdir, below.readdir);
	ck_assert(asked && saves);
	ck_assert(!ckpt_stage_is_saving(s, ""));
	ckpt_step_unref(step);
}
END_TEST

// One that stands still beside one that does not, in either order.
START_TEST(one_save_among_many_steps_is_enough)
{
	static const char *const names[] = {"1000", "1001", "1002"};

	for (size_t at = 0; at < ARRAY_LEN(names); at++) {
		struct ckpt_step *steps[ARRAY_LEN(names)];

		for (size_t i = 0; i < ARRAY_LEN(names); i++)
			steps[i] = staged(names[i]);
		let_it_stand_still();
		ck_assert(!ckpt_stage_is_saving(s, ""));
		ck_ok(ckpt_stage_enter(steps[at], true));
		ck_assert_msg(ckpt_stage_is_saving(s, ""), "%s", names[at]);
		ckpt_stage_leave(steps[at]);
		for (size_t i = 0; i < ARRAY_LEN(names); i++) {
			ck_ok(ckpt_stage_abort(steps[i], false));
			ckpt_step_unref(steps[i]);
		}
	}
}
END_TEST

// As by the library, which is given the directory: nothing of it comes by us.
START_TEST(a_step_that_is_written_outside_is_saved_while_its_files_change)
{
	struct ckpt_step *step = staged("1000");

	ckpt_staging_of(step)->touched_ns = 0;
	ck_assert(ckpt_stage_is_saving(s, ""));
	let_it_stand_still();
	ck_assert(!ckpt_stage_is_saving(s, ""));
	s->settings.commit_quiet_ns = 10 * SECOND_NS;
	ck_assert_int_eq(fchmodat(step->dirfd, "sub/a", 0600, 0), 0);
	ck_assert(ckpt_stage_is_saving(s, ""));
	ck_ok(ckpt_sys.rename(s->sessions_fd, step->session, s->sessions_fd, "elsewhere", 0));
	ck_assert(!ckpt_stage_is_saving(s, "")); // of what nobody can look at nobody waits for the end
	ck_ok(ckpt_sys.rename(s->sessions_fd, "elsewhere", s->sessions_fd, step->session, 0));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_an_interrupted_save_has_left_is_none)
{
	struct ckpt_step *step = staged("1000");

	ckpt_staging_of(step)->touched_ns = 0;
	ck_assert(ckpt_stage_is_saving(s, ""));
	ckpt_stage_interrupt(step);
	ck_assert(!ckpt_stage_is_saving(s, ""));
	ck_ok(ckpt_stage_enter(step, true)); // the next attempt
	ckpt_stage_leave(step);
	ck_assert(ckpt_stage_is_saving(s, ""));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(changes_of_a_committed_step_are_no_save)
{
	struct ckpt_step *base = staged("1000"), *step;

	ck_ok(ckpt_commit(base, &ckpt_staged_plain));
	ck_ok(ckpt_reopen(base, &step));
	ck_ok(ckpt_stage_enter(step, true));
	ck_assert(!ckpt_stage_is_saving(s, ""));
	ckpt_stage_leave(step);
	ckpt_step_unref(step);
	ckpt_step_unref(base);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stage usage");
	TCase *tcase = tcase_create("usage");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, teardown);
	tcase_add_test(tcase, usage_is_of_all_files_and_of_the_last_change);
	tcase_add_test(tcase, only_what_has_a_temp_name_expires);
	tcase_add_test(tcase, what_was_changed_since_stays_and_says_when_it_is_due);
	tcase_add_test(tcase, what_somebody_has_open_stays);
	tcase_add_test(tcase, what_its_maker_may_go_on_with_stays);
	tcase_add_test(tcase, a_left_one_expires_when_nobody_reads_it);
	tcase_add_test(tcase, a_session_that_cannot_be_looked_at_stays);
	tcase_add_test(tcase, changes_of_a_committed_step_do_not_expire);
	tcase_add_test(tcase, what_a_process_of_another_user_goes_on_with_stays);
	tcase_add_test(tcase, deeper_than_a_step_may_be_nobody_looks);
	tcase_add_test(tcase, what_is_removed_while_we_look_does_not_count);
	tcase_add_test(tcase, a_session_that_goes_while_we_look_is_not_dropped);
	tcase_add_test(tcase, a_folder_that_cannot_be_opened_just_now_keeps_the_step);
	tcase_add_test(tcase, what_goes_away_or_may_not_be_read_is_left_out);
	tcase_add_test(tcase, nobody_saves_where_nothing_is_staged);
	tcase_add_test(tcase, who_changed_a_step_just_now_is_saving_it);
	tcase_add_test(tcase, who_has_a_file_open_is_saving_however_long_it_takes);
	tcase_add_test(tcase, who_is_in_a_change_of_a_step_is_saving_it);
	tcase_add_test(tcase, a_commit_that_runs_is_a_save);
	tcase_add_test(tcase, one_save_among_many_steps_is_enough);
	tcase_add_test(tcase, a_step_that_is_written_outside_is_saved_while_its_files_change);
	tcase_add_test(tcase, what_an_interrupted_save_has_left_is_none);
	tcase_add_test(tcase, changes_of_a_committed_step_are_no_save);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
