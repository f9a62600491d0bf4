// New content of plain files, as it lies in the store; tests/crash/test_draft.c cuts it off everywhere.
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/draft.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static int begin(struct ckpt_draft *d, const char *name, const char *text)
{
	struct ckpt_draft_origin origin = {
		.path = name, .name = name, .folder_id = "", .uid = 0, .pid = 4711, .folder_fd = -1};
	int fd;

	ck_ok(ckpt_draft_begin(s, &origin, d));
	fd = ckpt_sys.open(d->dirfd, d->name, O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
	return fd;
}

static void publish(const char *name, const char *text)
{
	struct ckpt_draft d;
	int fd = begin(&d, name, text);

	ck_ok(ckpt_draft_write_out(&d, fd));
	ck_ok(ckpt_draft_publish(&d, s->tree_fd, name));
	ck_ok(ckpt_draft_published(&d, s->tree_fd, true));
	close(fd);
}

static void check_tree(const char *name, const char *text)
{
	char have[100] = "";
	CLEANUP_FD int fd = ckpt_sys.open(s->tree_fd, name, O_RDONLY, 0);

	ck_ok(fd);
	ck_ok(ckpt_sys.pread(fd, have, sizeof(have) - 1, 0));
	ck_assert_str_eq(have, text);
}

static size_t sessions(void)
{
	struct stat st;

	ck_assert_int_eq(fstat(s->sessions_fd, &st), 0);
	return st.st_nlink - 2;
}

START_TEST(a_published_draft_has_the_name_and_leaves_nothing)
{
	publish("a.pt", "one");
	check_tree("a.pt", "one");
	publish("a.pt", "two");
	check_tree("a.pt", "two");
	ck_assert_uint_eq(sessions(), 0);
	ckpt_fixture_reopen();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	check_tree("a.pt", "two");
}
END_TEST

START_TEST(a_dropped_draft_leaves_nothing)
{
	struct ckpt_draft d;

	publish("a.pt", "one");
	close(begin(&d, "a.pt", "two"));
	ckpt_draft_drop(&d);
	ck_assert_int_eq(d.dirfd, -1);
	ck_assert_uint_eq(sessions(), 0);
	check_tree("a.pt", "one");
}
END_TEST

START_TEST(a_draft_that_is_left_is_a_session_that_says_whose_it_was)
{
	struct ckpt_step *left;
	struct ckpt_draft d;

	close(begin(&d, "a.pt", "half"));
	ck_ok(ckpt_draft_leave(&d));
	for (int i = 0; i < 2; i++) {
		left = ckpt_save_left(s);
		ck_assert_str_eq(left->name, "a.pt");
		ck_assert_int_eq(ckpt_staging_of(left)->pid, 4711);
		ck_assert_int_gt(ckpt_staging_of(left)->began_ns, 0);
		ckpt_step_unref(left);
		ckpt_fixture_reopen();
	}
	ck_assert_uint_eq(ckpt_save_errors(s, "not completed"), 0); // who left it has told of it
}
END_TEST

START_TEST(a_left_draft_is_no_step_to_go_on_with_whatever_its_name)
{
	char name[CKPT_NAME_MAX + 1];
	struct ckpt_step *left;
	struct ckpt_draft d;

	memset(name, '"', sizeof(name)); // takes two bytes each where it is written down
	memcpy(name + sizeof(name) - sizeof(".pt"), ".pt", sizeof(".pt"));
	close(begin(&d, name, "half"));
	ckpt_draft_close(&d);
	ckpt_fixture_reopen();
	left = ckpt_save_left(s);
	ck_assert_str_eq(left->name, name);
	ck_error(ckpt_stage_resume(left), ENOTDIR);
	ck_ok(ckpt_stage_abort(left, true));
	ckpt_step_unref(left);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
}
END_TEST

START_TEST(a_left_draft_is_found_by_its_folder_and_goes_on)
{
	struct ckpt_step *left;
	struct ckpt_draft d, again;
	int fd;

	close(begin(&d, "a.pt", "half"));
	ck_ok(ckpt_draft_move(&d, "run/b.pt", "b.pt", 77));
	ck_ok(ckpt_draft_leave(&d));
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_null(ckpt_draft_find(s, 77, 0, "a.pt"));
		ck_assert_ptr_null(ckpt_draft_find(s, 78, 0, "b.pt"));
		ck_assert_ptr_null(ckpt_draft_find(s, 77, INT64_MAX, "b.pt")); // the folder came later
		left = ckpt_draft_find(s, 77, 1, "b.pt");
		ck_assert_ptr_nonnull(left);
		if (i)
			break;
		ckpt_step_unref(left);
		ckpt_fixture_reopen();
	}
	ck_ok(ckpt_draft_view(left, &again));
	ck_ok(ckpt_draft_retake(left, &again));
	ck_error(ckpt_draft_retake(left, &again), ESTALE);
	ck_assert_ptr_null(ckpt_draft_find(s, 77, 0, "b.pt"));
	ckpt_step_unref(left);
	fd = ckpt_sys.open(again.dirfd, again.name, O_RDWR, 0);
	ck_ok(ckpt_sys.pwrite(fd, " more", 5, 4));
	ck_ok(ckpt_draft_write_out(&again, fd));
	ck_ok(ckpt_draft_publish(&again, s->tree_fd, "b.pt"));
	ck_ok(ckpt_draft_published(&again, s->tree_fd, true));
	close(fd);
	check_tree("b.pt", "half more");
	ck_assert_uint_eq(sessions(), 0);
}
END_TEST

START_TEST(a_view_of_a_left_draft_changes_nothing)
{
	struct ckpt_step *left;
	struct ckpt_draft d, view;

	close(begin(&d, "a.pt", "half"));
	ck_ok(ckpt_draft_leave(&d));
	left = ckpt_save_left(s);
	ck_ok(ckpt_draft_view(left, &view));
	ckpt_draft_close(&view);
	ck_ok(ckpt_stage_abort(left, true));
	ck_error(ckpt_draft_view(left, &view), ESTALE);
	ckpt_step_unref(left);
}
END_TEST

START_TEST(a_draft_whose_daemon_died_is_told_of_once)
{
	struct ckpt_draft d;

	close(begin(&d, "a.pt", "half"));
	ckpt_draft_close(&d);
	for (int i = 0; i < 3; i++) {
		ckpt_fixture_reopen();
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 1);
		ck_assert_uint_eq(ckpt_save_errors(s, "not completed"), 1);
	}
}
END_TEST

// Between its begin and the making of its file, or between its publication and its end.
START_TEST(a_draft_without_a_file_goes_at_the_next_open)
{
	struct ckpt_store *reader;
	struct ckpt_draft d;
	int fd = begin(&d, "a.pt", "whole");

	ck_ok(ckpt_draft_publish(&d, s->tree_fd, "a.pt"));
	ckpt_draft_close(&d);
	close(fd);
	ck_assert_uint_eq(sessions(), 1);
	ckpt_store_close(s);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	s = reader;
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	ck_assert_uint_eq(sessions(), 1); // who only reads removes nothing
	ckpt_fixture_reopen();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	ck_assert_uint_eq(sessions(), 0);
	check_tree("a.pt", "whole");
}
END_TEST

static int (*real_readdir)(DIR *open, struct dirent **ret_entry);
static unsigned readdirs, fails_at;

static int failing_readdir(DIR *open, struct dirent **ret_entry)
{
	return ++readdirs == fails_at ? -EIO : real_readdir(open, ret_entry);
}

START_TEST(a_draft_is_not_lost_when_a_directory_cannot_be_listed)
{
	unsigned failed = 0, opened = 0;
	struct ckpt_draft d;

	close(begin(&d, "a.pt", "half"));
	ckpt_draft_close(&d);
	real_readdir = ckpt_hooks.readdir;
	for (fails_at = 1; fails_at == 1 || readdirs >= fails_at - 1; fails_at++) { // until none has failed
		int rc;

		ckpt_store_close(TAKE_PTR(s));
		readdirs = 0;
		ckpt_hook_set(readdir, failing_readdir);
		rc = ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s);
		ckpt_hook_set(readdir, real_readdir);
		if (rc) {
			ck_error(rc, EIO);
			failed++;
			s = ckpt_save_open(dir);
		} else {
			opened++;
		}
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 1);
		ck_assert_uint_eq(sessions(), 1);
	}
	ck_assert(failed && opened);
}
END_TEST

START_TEST(a_folder_that_gives_its_group_on_gives_it_to_a_draft)
{
	struct ckpt_draft_origin origin = {.path = "f/a.pt", .name = "a.pt", .folder_id = ""};
	struct ckpt_draft d;
	struct stat st;
	int fd;

	ck_ok(ckpt_sys.mkdir(s->tree_fd, "f", 0755));
	origin.folder_fd = ckpt_sys.open(s->tree_fd, "f", O_RDONLY | O_DIRECTORY, 0);
	ck_ok(origin.folder_fd);
	if (geteuid() == 0)
		ck_assert_int_eq(fchown(origin.folder_fd, 0, 2345), 0);
	ck_assert_int_eq(fchmod(origin.folder_fd, 02755), 0);
	ck_ok(ckpt_draft_begin(s, &origin, &d));
	fd = ckpt_sys.open(d.dirfd, "a.pt", O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_ok(fd);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(st.st_gid, geteuid() == 0 ? 2345 : getegid());
	ckpt_draft_drop(&d);
}
END_TEST

START_TEST(a_folder_that_keeps_its_group_gives_none_to_a_draft)
{
	struct ckpt_draft_origin origin = {.path = "f/a.pt", .name = "a.pt", .folder_id = ""};
	struct ckpt_draft d;
	struct stat st;

	ck_ok(ckpt_sys.mkdir(s->tree_fd, "f", 0755));
	origin.folder_fd = ckpt_sys.open(s->tree_fd, "f", O_RDONLY | O_DIRECTORY, 0);
	ck_ok(origin.folder_fd);
	if (geteuid() == 0)
		ck_assert_int_eq(fchown(origin.folder_fd, 0, 2345), 0);
	ck_ok(ckpt_draft_begin(s, &origin, &d));
	ck_assert_int_eq(fstat(d.dirfd, &st), 0);
	ck_assert_uint_eq(st.st_gid, getegid());
	ck_assert(!(st.st_mode & S_ISGID));
	ckpt_draft_drop(&d);
	close(origin.folder_fd);
}
END_TEST

// A daemon of a user of his own, who cannot give files away.
START_TEST(who_is_not_root_begins_drafts_that_are_his)
{
	uid_t user = geteuid() ? geteuid() : 4711;
	struct ckpt_draft_origin origin = {
		.path = "a.pt", .name = "a.pt", .folder_id = "", .uid = 4712, .folder_fd = -1};
	struct ckpt_draft d;
	struct stat st;

	if (!geteuid()) {
		ck_assert_int_eq(fchown(s->sessions_fd, user, (gid_t)-1), 0);
		ck_assert_int_eq(seteuid(user), 0);
	}
	ck_ok(ckpt_draft_begin(s, &origin, &d));
	ck_assert_int_eq(fstat(d.dirfd, &st), 0);
	ck_assert_uint_eq(st.st_uid, user);
	if (!getuid())
		ck_assert_int_eq(seteuid(0), 0);
	ckpt_draft_drop(&d);
}
END_TEST

static const char *const tellings[] = {"true", "false", "1"};

START_TEST(a_left_draft_is_told_of_unless_it_says_that_it_was)
{
	char text[128];
	struct ckpt_draft d;

	close(begin(&d, "a.pt", "half"));
	snprintf(text, sizeof(text), "{\"name\": \"a.pt\", \"folder\": \"\", \"file\": \"a.pt\", \"told\": %s}",
		 tellings[_i]);
	ck_ok(ckpt_sys.fsetxattr(d.dirfd, CKPT_ORIGIN_XATTR, text, strlen(text), 0));
	ckpt_draft_close(&d);
	ckpt_fixture_reopen();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "not completed"), _i > 0);
}
END_TEST

START_TEST(a_draft_is_its_writers_whatever_the_length_of_its_path)
{
	char path[700];
	struct ckpt_draft_origin origin = {.path = path,
					   .name = "file",
					   .folder_id = "",
					   .uid = getuid() ? getuid() : 4711,
					   .gid = getgid(),
					   .pid = 4711,
					   .folder_fd = -1};
	struct ckpt_draft d;
	struct stat st;

	memset(path, 'p', sizeof(path)); // an attribute has little room: its end is kept
	path[sizeof(path) - 1] = '\0';
	ck_ok(ckpt_draft_begin(s, &origin, &d));
	ck_assert_int_eq(fstat(d.dirfd, &st), 0);
	ck_assert_uint_eq(st.st_uid, origin.uid);
	ckpt_draft_drop(&d);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
}
END_TEST

START_TEST(a_name_need_not_be_durable_when_nobody_waits_for_it)
{
	struct ckpt_draft d;
	int fd = begin(&d, "file", "new");

	ck_ok(ckpt_draft_write_out(&d, fd));
	ck_ok(ckpt_draft_publish(&d, s->tree_fd, "file"));
	ck_ok(ckpt_draft_published(&d, -1, false)); // nothing is synced
	check_tree("file", "new");
	close(fd);
}
END_TEST

static Suite *suite(void)
{
	Suite *suite = suite_create("draft");
	TCase *t = tcase_create("draft");

	tcase_add_checked_fixture(t, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(t, a_published_draft_has_the_name_and_leaves_nothing);
	tcase_add_test(t, a_draft_is_its_writers_whatever_the_length_of_its_path);
	tcase_add_test(t, a_name_need_not_be_durable_when_nobody_waits_for_it);
	tcase_add_test(t, a_dropped_draft_leaves_nothing);
	tcase_add_test(t, a_draft_that_is_left_is_a_session_that_says_whose_it_was);
	tcase_add_test(t, a_left_draft_is_no_step_to_go_on_with_whatever_its_name);
	tcase_add_test(t, a_left_draft_is_found_by_its_folder_and_goes_on);
	tcase_add_test(t, a_view_of_a_left_draft_changes_nothing);
	tcase_add_test(t, a_draft_whose_daemon_died_is_told_of_once);
	tcase_add_test(t, a_draft_without_a_file_goes_at_the_next_open);
	tcase_add_test(t, a_draft_is_not_lost_when_a_directory_cannot_be_listed);
	tcase_add_test(t, a_folder_that_gives_its_group_on_gives_it_to_a_draft);
	tcase_add_test(t, a_folder_that_keeps_its_group_gives_none_to_a_draft);
	tcase_add_test(t, who_is_not_root_begins_drafts_that_are_his);
	tcase_add_loop_test(t, a_left_draft_is_told_of_unless_it_says_that_it_was, 0, (int)ARRAY_LEN(tellings));
	suite_add_tcase(suite, t);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
