// What becomes of unfinished sessions when their store is opened again, and of those that are set aside.
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/draft.h"
#include "core/save/pin.h"
#include "core/step/folders.h"
#include "core/step/reopened.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define SECOND_NS INT64_C(1000000000)

static const bool go_on = false;

static int64_t soon(void)
{
	return ckpt_sys.now_ns() + SECOND_NS;
}

// Of a maker of whom nothing is known, with one file.
static struct ckpt_step *begin_in(const char *folder_id, const char *name)
{
	struct ckpt_step *step;

	ck_ok(ckpt_stage_begin(s, folder_id, name, 0755, getuid(), getgid(), 0, &step));
	close(ckpt_staged_put(step, "file", "text"));
	return step;
}

static struct ckpt_step *begin(const char *name)
{
	return begin_in("", name);
}

static struct ckpt_step *find_in(const char *folder_id, const char *name, enum ckpt_step_state state)
{
	struct ckpt_step *step = ckpt_step_find(s, folder_id, name);

	ck_assert_msg(step, "%s is not there", name);
	ck_assert_int_eq(ckpt_step_state(step), state);
	return step;
}

static struct ckpt_step *find(const char *name, enum ckpt_step_state state)
{
	return find_in("", name, state);
}

static bool has_file(struct ckpt_step *step, const char *path)
{
	return !faccessat(step->dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

static void folder_make(const char *name, char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	ck_ok(ckpt_sys.mkdir(s->tree_fd, name, 0755));
	ck_ok(ckpt_folders_place_folder(s, name, ret_id));
}

// --- Staged again -----------------------------------------------------------------------------------------------------

START_TEST(an_unfinished_session_is_staged_under_its_name_again_and_goes_on)
{
	static const char *const names[] = {"1000", "1000.orbax-checkpoint-tmp-7", "a name of one's own"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ckpt_step_unref(begin(names[i]));
	for (int times = 0; times < 2; times++) {
		ckpt_fixture_reopen();
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct ckpt_step *step = find(names[i], CKPT_STEP_STAGED), *other;

		ck_error(ckpt_stage_begin_by_client(s, "", names[i], 0755, 0, 0, getpid(), &other), EEXIST);
		ck_assert(has_file(step, "file"));
		close(ckpt_staged_put(step, "more", "of the second attempt"));
		ck_ok(ckpt_staged_commit(step, 0, NULL));
		ckpt_staged_check(step, "file", "text");
		ckpt_staged_check(step, "more", "of the second attempt");
		ckpt_step_unref(step);
	}
	ckpt_fixture_reopen();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), ARRAY_LEN(names));
	ck_assert_uint_eq(ckpt_save_unfinished_count(s), 0);
}
END_TEST

START_TEST(an_interrupted_save_of_the_program_gives_way_to_the_next_one_and_that_of_a_client_does_not)
{
	struct ckpt_step *step, *second;

	ckpt_step_unref(begin("1000"));
	ck_ok(ckpt_stage_begin_by_client(s, "", "2000", 0755, 0, 0, getpid(), &step));
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = find("1000", CKPT_STEP_STAGED);
	ck_ok(ckpt_stage_begin(s, "", "1000", 0755, 0, 0, getpid(), &second));
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_LEFT);
	ck_assert(has_file(step, "file"));
	ck_assert(!has_file(second, "file"));
	ckpt_step_unref(step);
	ck_error(ckpt_stage_begin(s, "", "1000", 0755, 0, 0, getpid(), &step), EEXIST);
	ck_error(ckpt_stage_begin(s, "", "2000", 0755, 0, 0, getpid(), &step), EEXIST);
	ckpt_step_unref(second);
}
END_TEST

START_TEST(a_session_is_staged_in_its_folder_as_long_as_that_is_there)
{
	char here[CKPT_FOLDER_ID_LEN + 1], there[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step;

	folder_make("here", here);
	folder_make("there", there);
	ckpt_step_unref(begin_in(here, "1"));
	ckpt_step_unref(begin_in(there, "1"));
	ck_ok(ckpt_sys.rename(s->tree_fd, "here", s->tree_fd, "moved", 0));
	ck_ok(ckpt_sys.unlink(s->tree_fd, "there", AT_REMOVEDIR));
	ckpt_fixture_reopen();
	ckpt_step_unref(find_in(here, "1", CKPT_STEP_STAGED));
	step = ckpt_save_left(s);
	ck_assert_str_eq(step->folder_id, there);
	ckpt_step_unref(step);
}
END_TEST

static void take_by_step(void)
{
	ckpt_step_unref(ckpt_staged_one(s, "1", "new", "saved since"));
}

static void take_by_folder(void)
{
	ck_ok(ckpt_sys.mkdir(s->tree_fd, "1", 0755));
}

static void take_by_file(void)
{
	int fd = ckpt_sys.open(s->tree_fd, "1", O_WRONLY | O_CREAT | O_EXCL, 0644);

	ck_ok(fd);
	close(fd);
}

static void take_by_link(void)
{
	ck_assert_int_eq(symlinkat("nowhere", s->tree_fd, "1"), 0);
}

static void (*const takers[])(void) = {take_by_step, take_by_folder, take_by_file, take_by_link};

START_TEST(a_session_whose_name_is_taken_stays_left)
{
	struct ckpt_step *step = begin("1"), *left;

	ck_ok(ckpt_stage_set_aside(step));
	ckpt_step_unref(step);
	takers[_i]();
	ckpt_fixture_reopen();
	left = ckpt_save_left(s);
	ck_assert_str_eq(left->name, "1");
	ck_assert(!ckpt_stage_is_interrupted(left));
	ck_assert_str_eq(ckpt_stage_state_name(left), "left");
	ckpt_step_unref(left);
}
END_TEST

START_TEST(of_two_sessions_of_one_name_the_newest_is_staged)
{
	struct ckpt_step *older = begin("1"), *newer;
	char session[37];

	ck_ok(ckpt_stage_set_aside(older));
	ckpt_step_unref(older);
	newer = begin("1");
	memcpy(session, newer->session, sizeof(session));
	ckpt_step_unref(newer);
	for (int times = 0; times < 2; times++) {
		ckpt_fixture_reopen();
		newer = find("1", CKPT_STEP_STAGED);
		ck_assert_str_eq(newer->session, session);
		ckpt_step_unref(newer);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 1);
	}
}
END_TEST

START_TEST(a_change_that_was_given_up_and_a_file_stay_left)
{
	const struct ckpt_draft_origin origin = {.path = "f.pt", .name = "f.pt", .folder_id = "", .folder_fd = -1};
	struct ckpt_step *base = ckpt_staged_one(s, "1", "file", "text"), *changed;
	struct ckpt_draft draft;
	int fd;

	ck_ok(ckpt_reopen(base, &changed));
	close(ckpt_staged_put(changed, "added", "text"));
	ck_ok(ckpt_stage_enter(changed, true)); // and never leaves: the daemon dies
	ckpt_step_unref(changed);
	ckpt_step_unref(base);
	ck_ok(ckpt_draft_begin(s, &origin, &draft));
	fd = ckpt_sys.open(draft.dirfd, draft.name, O_WRONLY | O_CREAT, 0644);
	ck_ok(fd);
	close(fd);
	ckpt_draft_close(&draft);
	ckpt_fixture_reopen();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 2);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_STAGED), 0);
	ckpt_step_unref(find("1", CKPT_STEP_COMMITTED));
}
END_TEST

START_TEST(a_session_that_does_not_say_its_name_stays_left)
{
	ck_ok(ckpt_sys.mkdir(s->sessions_fd, "01234567-89ab-4def-8123-456789abcdef", 0700));
	ck_ok(ckpt_sys.mkdir(s->sessions_fd, "01234567-89ab-4def-8123-456789abcdef/d", 0700));
	ckpt_fixture_reopen();
	ckpt_step_unref(ckpt_save_left(s));
}
END_TEST

START_TEST(a_reader_says_which_would_be_staged_and_stages_none)
{
	struct ckpt_step *step = begin("1"), **left;
	size_t count;

	ck_ok(ckpt_stage_set_aside(step));
	ckpt_step_unref(step);
	ckpt_step_unref(begin("1"));
	ckpt_store_close(s);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	ck_ok(ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &left, &count));
	ck_assert_uint_eq(count, 2);
	ck_assert_int_ne(ckpt_stage_is_interrupted(left[0]), ckpt_stage_is_interrupted(left[1]));
	for (size_t i = 0; i < count; i++)
		ck_assert_str_eq(ckpt_stage_state_name(left[i]),
				 ckpt_stage_is_interrupted(left[i]) ? "interrupted" : "left");
	ckpt_step_list_free(left, count);
	ck_assert_ptr_null(ckpt_step_find(s, "", "1"));
}
END_TEST

// --- Interrupted ------------------------------------------------------------------------------------------------------

static int64_t ctime_of(struct ckpt_step *step, const char *path)
{
	struct stat st;

	ck_assert_int_eq(fstatat(step->dirfd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_ctim.tv_sec * SECOND_NS + st.st_ctim.tv_nsec;
}

START_TEST(an_attempt_begins_after_all_that_the_one_before_wrote)
{
	struct ckpt_step *step = begin("1");

	ck_assert(!ckpt_stage_is_interrupted(step));
	ck_assert_int_eq(ckpt_stage_attempt_ns(step), 0);
	ck_assert_str_eq(ckpt_stage_state_name(step), "live");
	ckpt_step_unref(step);
	for (int times = 0; times < 3; times++) {
		char name[16];

		ckpt_fixture_reopen();
		step = find("1", CKPT_STEP_STAGED);
		ck_assert(ckpt_stage_is_interrupted(step));
		ck_assert_str_eq(ckpt_stage_state_name(step), "interrupted");
		ck_assert_int_gt(ckpt_stage_attempt_ns(step), ctime_of(step, "file"));
		snprintf(name, sizeof(name), "of %d", times);
		if (times)
			ck_assert_int_gt(ckpt_stage_attempt_ns(step), ctime_of(step, "of 0"));
		ckpt_sys.sleep_ns(INT64_C(20000000)); // a tick of the clock that file times are taken from
		close(ckpt_staged_put(step, name, "text"));
		ck_assert_int_lt(ckpt_stage_attempt_ns(step), ctime_of(step, name));
		ckpt_step_unref(step);
	}
}
END_TEST

static int64_t (*right_now_ns)(void);

static int64_t a_year_ago_ns(void)
{
	return right_now_ns() - 365 * 86400 * SECOND_NS;
}

START_TEST(a_clock_that_was_set_back_makes_no_file_one_of_the_next_attempt)
{
	struct ckpt_step *step = begin("1");

	ckpt_step_unref(step);
	ckpt_store_close(s);
	right_now_ns = ckpt_hooks.now_ns;
	ckpt_hook_set(now_ns, a_year_ago_ns);
	s = ckpt_save_open(dir);
	step = find("1", CKPT_STEP_STAGED);
	ck_assert_int_gt(ckpt_stage_attempt_ns(step), ctime_of(step, "file"));
	ckpt_step_unref(step);
	ckpt_store_close(s);
	ckpt_hook_set(now_ns, right_now_ns);
	s = ckpt_save_open(dir);
}
END_TEST

START_TEST(a_killed_writer_interrupts_its_step_which_says_so_of_itself)
{
	struct ckpt_step *step = begin("1");
	char text[2048] = "";
	int64_t attempt_ns;

	ckpt_stage_interrupt(step);
	ck_assert(ckpt_stage_is_interrupted(step));
	attempt_ns = ckpt_stage_attempt_ns(step);
	ck_assert_int_ge(attempt_ns, ctime_of(step, "file"));
	ck_assert_int_gt(fgetxattr(step->dirfd, CKPT_ORIGIN_XATTR, text, sizeof(text) - 1), 0);
	ck_assert_ptr_nonnull(strstr(text, s->boot_id));
	ck_assert_uint_eq(strlen(s->boot_id), 36);
	ck_ok(ckpt_stage_rename(step, "", "2")); // keeps it
	ckpt_stage_interrupt(step);
	ck_assert_int_gt(ckpt_stage_attempt_ns(step), attempt_ns);
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = find("2", CKPT_STEP_STAGED);
	ck_assert_int_ge(ckpt_stage_attempt_ns(step), attempt_ns);
	ckpt_step_unref(step);
}
END_TEST

// Each mount would make it younger else, and what has a temporary name would never be old enough to go.
START_TEST(a_second_open_does_not_change_the_session)
{
	struct ckpt_stage_usage before, after;
	struct ckpt_step *step;

	ckpt_step_unref(begin("1"));
	ckpt_fixture_reopen();
	step = find("1", CKPT_STEP_STAGED);
	ck_ok(ckpt_stage_usage(step, &before));
	ckpt_step_unref(step);
	ckpt_sys.sleep_ns(INT64_C(20000000));
	ckpt_fixture_reopen();
	step = find("1", CKPT_STEP_STAGED);
	ck_ok(ckpt_stage_usage(step, &after));
	ck_assert_int_eq(before.changed_ns, after.changed_ns);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_mark_on_a_committed_step_changes_nothing)
{
	struct ckpt_step *step = ckpt_staged_one(s, "1", "file", "text");
	char text[2048] = "";

	ckpt_stage_interrupt(step);
	ck_assert_int_gt(fgetxattr(ckpt_sys.open(s->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0),
				   CKPT_ORIGIN_XATTR, text, sizeof(text) - 1),
			 0);
	ck_assert_ptr_null(strstr(text, "attempt_ns"));
	ckpt_step_unref(step);
}
END_TEST

// --- Set aside --------------------------------------------------------------------------------------------------------

START_TEST(a_step_that_nobody_writes_is_set_aside_and_taken_up_again)
{
	struct ckpt_step *step = begin("1"), *other;

	ck_assert(ckpt_stage_is_idle(step));
	ck_ok(ckpt_stage_set_aside(step));
	ck_error(ckpt_stage_set_aside(step), ESTALE);
	ck_assert_ptr_null(ckpt_step_find(s, "", "1"));
	other = begin("1");
	ck_error(ckpt_stage_resume(step), EEXIST);
	ck_ok(ckpt_stage_abort(other, false));
	ck_ok(ckpt_stage_resume(step));
	ck_assert(ckpt_stage_is_interrupted(step));
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_staged_check(step, "file", "text");
	ck_error(ckpt_stage_set_aside(step), ESTALE);
	ckpt_step_unref(other);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_step_that_somebody_writes_is_not_set_aside)
{
	struct ckpt_step *step = begin("1"), *mine = ckpt_staged_begin(s, "2");
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "open", "text");

	ckpt_staged_writer(step, &w, fd);
	ck_error(ckpt_stage_set_aside(step), EBUSY);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ck_ok(ckpt_stage_enter(step, false));
	ck_error(ckpt_stage_set_aside(step), EBUSY);
	ckpt_stage_leave(step);
	ck_error(ckpt_stage_set_aside(mine), EBUSY); // its maker is this process
	ck_ok(ckpt_stage_set_aside(step));
	ckpt_step_unref(step);
	ckpt_step_unref(mine);
}
END_TEST

// --- What another session completed -------------------------------------------------------------------------------------

static struct ckpt_step *leave(const char *name)
{
	struct ckpt_step *step = begin(name);

	ck_ok(ckpt_stage_set_aside(step));
	ckpt_sys.sleep_ns(INT64_C(20000000)); // what comes is later by the clock of file times
	return step;
}

START_TEST(what_another_session_completed_since_goes_after_its_time_and_nothing_else)
{
	struct ckpt_step *completed = leave("1"), *elsewhere, *not_yet = leave("2"), *again = begin("2"), *step;
	int64_t before_ns = ckpt_sys.now_ns();

	elsewhere = begin_in("0123456789abcdef", "1");
	ck_ok(ckpt_stage_set_aside(elsewhere));
	step = ckpt_staged_one(s, "1", "file", "of the next attempt");
	ckpt_stage_expire_before(s, before_ns, &go_on); // it is not over for long enough
	ck_assert_int_eq(ckpt_step_state(completed), CKPT_STEP_LEFT);
	ck_assert(ckpt_stage_use(completed));
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert_int_eq(ckpt_step_state(completed), CKPT_STEP_LEFT);
	ckpt_stage_unuse(completed);
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert_int_eq(ckpt_step_state(completed), CKPT_STEP_GONE);
	ck_assert_int_eq(ckpt_step_state(elsewhere), CKPT_STEP_LEFT);
	ck_assert_int_eq(ckpt_step_state(not_yet), CKPT_STEP_LEFT);
	ck_assert_uint_eq(ckpt_save_errors(s, "another session completed"), 1);
	ckpt_staged_check(step, "file", "of the next attempt");
	ckpt_step_unref(step);
	ckpt_step_unref(again);
	ckpt_step_unref(not_yet);
	ckpt_step_unref(elsewhere);
	ckpt_step_unref(completed);
}
END_TEST

START_TEST(what_was_written_after_its_name_was_completed_stays)
{
	struct ckpt_step *left = begin("1"), *step;
	int fd;

	ck_ok(ckpt_stage_set_aside(left));
	step = ckpt_staged_one(s, "1", "file", "of the next attempt");
	ckpt_sys.sleep_ns(INT64_C(20000000));
	fd = ckpt_sys.open(s->sessions_fd, left->session, O_RDONLY | O_DIRECTORY, 0);
	ck_ok(ckpt_sys.mkdir(fd, "later", 0700)); // through a descriptor that was kept
	close(fd);
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert_int_eq(ckpt_step_state(left), CKPT_STEP_LEFT);
	ckpt_step_unref(step);
	ckpt_step_unref(left);
}
END_TEST

START_TEST(a_change_that_was_given_up_is_not_superseded_by_the_version_that_it_began_as)
{
	struct ckpt_step *base = ckpt_staged_one(s, "1", "file", "text"), *changed, *left;

	ck_ok(ckpt_reopen(base, &changed));
	close(ckpt_staged_put(changed, "added", "text"));
	ck_ok(ckpt_stage_enter(changed, true)); // and never leaves: the daemon dies
	ckpt_step_unref(changed);
	ckpt_step_unref(base);
	ckpt_fixture_reopen();
	left = ckpt_save_left(s);
	ckpt_sys.sleep_ns(INT64_C(20000000));
	base = find("1", CKPT_STEP_COMMITTED);
	ck_ok(ckpt_pin(base, true)); // a newer version of it
	ckpt_step_unref(base);
	ckpt_stage_expire_before(s, soon(), &go_on);
	ck_assert_int_eq(ckpt_step_state(left), CKPT_STEP_LEFT);
	ckpt_step_unref(left);
}
END_TEST

static void teardown(void)
{
	ckpt_trash_drain(*ckpt_trash_of(s));
	ckpt_fixture_close();
}

int main(void)
{
	Suite *suite = suite_create("stage restart");
	TCase *tcase = tcase_create("restart");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, teardown);
	tcase_add_test(tcase, an_unfinished_session_is_staged_under_its_name_again_and_goes_on);
	tcase_add_test(tcase,
		       an_interrupted_save_of_the_program_gives_way_to_the_next_one_and_that_of_a_client_does_not);
	tcase_add_test(tcase, a_session_is_staged_in_its_folder_as_long_as_that_is_there);
	tcase_add_loop_test(tcase, a_session_whose_name_is_taken_stays_left, 0, (int)ARRAY_LEN(takers));
	tcase_add_test(tcase, of_two_sessions_of_one_name_the_newest_is_staged);
	tcase_add_test(tcase, a_change_that_was_given_up_and_a_file_stay_left);
	tcase_add_test(tcase, a_session_that_does_not_say_its_name_stays_left);
	tcase_add_test(tcase, an_attempt_begins_after_all_that_the_one_before_wrote);
	tcase_add_test(tcase, a_clock_that_was_set_back_makes_no_file_one_of_the_next_attempt);
	tcase_add_test(tcase, a_killed_writer_interrupts_its_step_which_says_so_of_itself);
	tcase_add_test(tcase, a_second_open_does_not_change_the_session);
	tcase_add_test(tcase, a_mark_on_a_committed_step_changes_nothing);
	tcase_add_test(tcase, a_step_that_nobody_writes_is_set_aside_and_taken_up_again);
	tcase_add_test(tcase, a_step_that_somebody_writes_is_not_set_aside);
	tcase_add_test(tcase, what_another_session_completed_since_goes_after_its_time_and_nothing_else);
	tcase_add_test(tcase, what_was_written_after_its_name_was_completed_stays);
	tcase_add_test(tcase, a_change_that_was_given_up_is_not_superseded_by_the_version_that_it_began_as);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("reader");
	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, a_reader_says_which_would_be_staged_and_stages_none);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
