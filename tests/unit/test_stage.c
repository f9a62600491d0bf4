// Staged steps: begin, rename, graft, abort, the gate, writers, what clients have fsynced. The commit is another's.
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/sysfault.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/trash.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

static struct ckpt_step *begin(const char *name)
{
	struct ckpt_step *step;

	ck_ok(ckpt_stage_begin(s, "", name, 0755, getuid(), getgid(), getpid(), &step));
	return step;
}

static void touch(int dirfd, const char *path)
{
	int fd = ckpt_sys.open(dirfd, path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	ck_ok(fd);
	ck_ok(ckpt_sys.close(fd));
}

static bool there(const char *folder, const char *name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s/%s", dir, folder, name);
	return access(path, F_OK) == 0;
}

// --- Begin ------------------------------------------------------------------------------------------------------------

START_TEST(a_name_is_taken_once)
{
	struct ckpt_step *step = begin("1"), *other;

	ck_error(ckpt_stage_begin(s, "", "1", 0755, 0, 0, 0, &other), EEXIST);
	ck_ok(ckpt_stage_begin(s, "0123456789abcdef", "1", 0755, 0, 0, 0, &other)); // another folder
	ck_assert(ckpt_step_any(s, "0123456789abcdef"));
	ck_assert(!ckpt_step_any(s, "0123456789abcde0"));
	ckpt_step_unref(other);
	other = ckpt_step_find(s, "", "1");
	ck_assert_ptr_eq(other, step);
	ckpt_step_unref(other);
	ckpt_step_unref(step);
}
END_TEST

static int names_in(const char *folder)
{
	char path[2 * PATH_MAX];
	struct dirent **names;
	int count;

	snprintf(path, sizeof(path), "%s/%s", dir, folder);
	count = scandir(path, &names, NULL, NULL);
	ck_assert_int_ge(count, 2);
	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
	return count - 2; // "." and ".."
}

START_TEST(a_begin_that_fails_leaves_no_session)
{
	struct ckpt_step *step;
	bool fired = true;
	uint64_t n;

	for (n = 1; fired; n++) {
		struct ckpt_sysfault fault = {.at = n, .error = -EIO};
		int rc;

		ckpt_sysfault_begin(&fault);
		rc = ckpt_stage_begin(s, "", "1", 0755, getuid(), getgid(), getpid(), &step);
		ckpt_trash_drain(*ckpt_trash_of(s)); // until no thread makes a call
		ckpt_sysfault_end(&fault);
		fired = fault.count >= n;
		ck_assert(fired == !!rc);
		ck_assert_int_eq(names_in("sessions"), !rc);
		ck_assert_int_eq(names_in("trash"), 0);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_STAGED), !rc);
	}
	ck_assert_uint_gt(n, 5);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_name_that_no_step_can_have_is_refused)
{
	char longest[CKPT_NAME_MAX + 2];
	struct ckpt_step *step;

	memset(longest, 'x', sizeof(longest));
	longest[CKPT_NAME_MAX + 1] = '\0';
	ck_error(ckpt_stage_begin(s, "", longest, 0755, 0, 0, 0, &step), ENAMETOOLONG);
	longest[CKPT_NAME_MAX] = '\0';
	ck_error(ckpt_stage_begin(s, "", "a\nb", 0755, 0, 0, 0, &step), EINVAL);
	ck_error(ckpt_stage_begin(s, "", "a/b", 0755, 0, 0, 0, &step), EINVAL);
	ck_error(ckpt_stage_begin(s, "", "..", 0755, 0, 0, 0, &step), EINVAL);
	ck_error(ckpt_stage_begin(s, "", "\xff", 0755, 0, 0, 0, &step), EILSEQ);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_STAGED), 0);
	step = begin(longest); // its key is a digest
	ck_error(ckpt_stage_rename(step, "", "a\tb"), EINVAL);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_cannot_be_begun_from_another_step_leaves_nothing)
{
	struct ckpt_step *from = ckpt_save_one(s, 0), *taken = begin("1"), *step;

	ck_error(ckpt_stage_begin_from(s, "", "1", from, false, &step), EEXIST);
	ck_error(ckpt_stage_begin_from(s, "no folder id", "2", from, false, &step), EINVAL);
	ck_error(ckpt_stage_rename(taken, "no folder id", "2"), EINVAL);
	ck_assert_int_eq(names_in("sessions"), 2);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_STAGED), 1);
	ckpt_step_unref(taken);
	ckpt_step_unref(from);
}
END_TEST

// A daemon of a user of his own, who cannot give files away.
START_TEST(who_is_not_root_begins_steps_that_are_his)
{
	uid_t user = geteuid() ? geteuid() : 4711;
	struct ckpt_step *step;
	struct stat st;

	if (!geteuid()) {
		ck_assert_int_eq(fchown(s->sessions_fd, user, (gid_t)-1), 0);
		ck_assert_int_eq(seteuid(user), 0);
	}
	ck_ok(ckpt_stage_begin(s, "", "1", 0750, 0, 0, 0, &step)); // for root, it says
	ck_assert_int_eq(fstat(step->dirfd, &st), 0);
	ck_assert_uint_eq(st.st_uid, user);
	ck_assert_uint_eq(st.st_mode & 07777, 0750);
	if (!getuid())
		ck_assert_int_eq(seteuid(0), 0);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_session_has_the_mode_and_says_who_began_it)
{
	struct ckpt_step *step = begin("1"), *left;
	struct stat st;

	ck_assert_int_eq(fstat(step->dirfd, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0755);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	left = ckpt_save_left(s);
	ck_assert_str_eq(left->name, "1");
	ck_assert_int_eq(ckpt_staging_of(left)->pid, getpid());
	ck_assert_int_gt(ckpt_staging_of(left)->began_ns, 0);
	ckpt_step_unref(left);
	ckpt_fixture_reopen();
	left = ckpt_save_set_aside(s);
	ck_assert_ptr_null(ckpt_step_find(s, "", "1"));
	ck_error(ckpt_stage_enter(left, true), EROFS);
	ck_ok(ckpt_stage_abort(left, false));
	ck_assert(!there("sessions", left->session));
	ckpt_step_unref(left);
}
END_TEST

START_TEST(what_a_session_says_of_itself_is_not_trusted)
{
	static const char *const lies[] = {
		"",
		"not json",
		"[]",
		"{\"name\": \"../../etc\", \"folder\": \"\"}",
		"{\"name\": \"a\\u0001b\", \"folder\": \"\"}",
		"{\"name\": \"1\", \"folder\": \"a folder id that is far too long to be one\"}",
		"{\"name\": \"1\", \"folder\": \"../..\"}",
		"{\"name\": 1, \"folder\": \"\"}",
		"{\"name\": \"1\"}",
	};
	struct ckpt_step *step = begin("1"), *left;
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/sessions/%s", dir, step->session);
	ckpt_step_unref(step);
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_ok(ckpt_sys.fsetxattr(fd, "user.ckptfs.session", lies[i], strlen(lies[i]), 0));
		ckpt_fixture_reopen();
		left = ckpt_save_left(s);
		ck_assert_msg(!*left->name && !*left->folder_id, "believed: %s", lies[i]);
		ckpt_step_unref(left);
	}
}
END_TEST

static const struct {
	const char *text;
	bool add_only, is_file, from_plain;
} kinds[] = {
	{"{\"name\": \"1\", \"folder\": \"\"}", false, false, false},
	{"{\"name\": \"1\", \"folder\": \"\", \"add_only\": 1, \"file\": 1, \"plain\": 1}", false, false, false},
	{"{\"name\": \"1\", \"folder\": \"\", \"add_only\": true, \"plain\": false}", true, false, false},
	{"{\"name\": \"1\", \"folder\": \"\", \"file\": \"1\"}", false, true, false},
	{"{\"name\": \"1\", \"folder\": \"\", \"add_only\": false, \"plain\": true}", false, false, true},
};

START_TEST(a_session_says_which_kind_it_is)
{
	static const char session[] = "01234567-89ab-4def-8123-456789abcdef";
	struct ckpt_step *left;
	int fd;

	ck_ok(ckpt_sys.mkdir(s->sessions_fd, session, 0700));
	fd = ckpt_sys.open(s->sessions_fd, session, O_RDONLY | O_DIRECTORY, 0);
	ck_ok(ckpt_sys.fsetxattr(fd, "user.ckptfs.session", kinds[_i].text, strlen(kinds[_i].text), 0));
	close(fd);
	ck_ok(ckpt_stage_load_left(s, session));
	left = ckpt_save_left(s);
	ck_assert_str_eq(left->name, "1");
	ck_assert(ckpt_staging_of(left)->add_only == kinds[_i].add_only);
	ck_assert(ckpt_staging_of(left)->is_file == kinds[_i].is_file);
	ck_assert(ckpt_staging_of(left)->from_plain == kinds[_i].from_plain);
	ckpt_step_unref(left);
}
END_TEST

// --- Rename and graft -------------------------------------------------------------------------------------------------

START_TEST(a_staged_step_takes_another_name)
{
	struct ckpt_step *a = begin("1"), *b = begin("2"), *found;

	ck_error(ckpt_stage_rename(a, "", "2"), EEXIST);
	found = ckpt_step_find(s, "", "1");
	ck_assert_ptr_eq(found, a);
	ckpt_step_unref(found);
	ck_ok(ckpt_stage_rename(a, "0123456789abcdef", "3"));
	ck_assert_ptr_null(ckpt_step_find(s, "", "1"));
	found = ckpt_step_find(s, "0123456789abcdef", "3");
	ck_assert_ptr_eq(found, a);
	ckpt_step_unref(found);
	ckpt_step_unref(begin("1")); // free again
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(a_graft_makes_a_step_a_directory_of_another_with_its_writers)
{
	struct ckpt_step *a = begin("1"), *b = begin("2");
	struct ckpt_writer first = {.fd = -1}, second = {.fd = -1};
	struct ckpt_stage_usage usage;

	touch(a->dirfd, "file");
	ckpt_stage_writer_add(a, &first);
	ckpt_stage_writer_add(b, &second);
	ck_ok(ckpt_stage_graft(a, b, b->dirfd, "item"));
	ck_assert_int_eq(ckpt_step_state(a), CKPT_STEP_GONE);
	ck_assert_ptr_null(ckpt_step_find(s, "", "1"));
	ck_error(ckpt_stage_enter(a, true), ESTALE);
	ck_error(ckpt_stage_graft(a, b, b->dirfd, "again"), ESTALE);
	ck_assert_ptr_eq(first.step, b);
	ck_ok(ckpt_stage_usage(b, &usage));
	ck_assert_uint_eq(usage.open_writers, 2);
	ck_assert_uint_eq(usage.files, 1);
	ck_assert_int_eq(faccessat(b->dirfd, "item/file", F_OK, 0), 0);
	ckpt_stage_writer_remove(&first);
	ckpt_stage_writer_remove(&second);
	ckpt_stage_writer_remove(&second); // twice is harmless
	ck_assert_ptr_null(ckpt_staging_of(b)->writers);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(a_graft_onto_a_file_or_a_full_directory_changes_nothing)
{
	struct ckpt_step *a = begin("1"), *b = begin("2");

	touch(b->dirfd, "file");
	ck_ok(ckpt_sys.mkdir(b->dirfd, "full", 0755));
	touch(b->dirfd, "full/file");
	ck_error(ckpt_stage_graft(a, b, b->dirfd, "file"), ENOTDIR);
	ck_error(ckpt_stage_graft(a, b, b->dirfd, "full"), ENOTEMPTY);
	ck_ok(ckpt_stage_enter(a, false));
	ckpt_stage_leave(a);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

// --- Abort ------------------------------------------------------------------------------------------------------------

START_TEST(an_abort_of_an_empty_step_refuses_one_with_files)
{
	struct ckpt_step *a = begin("1"), *b = begin("2");

	touch(a->dirfd, "file");
	ck_error(ckpt_stage_remove(a), ENOTEMPTY);
	ck_assert_int_eq(ckpt_step_state(a), CKPT_STEP_STAGED);
	ck_assert(there("sessions", a->session));
	ck_ok(ckpt_stage_remove(b));
	ck_assert_int_eq(ckpt_step_state(b), CKPT_STEP_GONE);
	ck_assert(!there("sessions", b->session));
	ck_error(ckpt_stage_remove(b), ESTALE);
	ckpt_step_unref(begin("2"));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(an_abort_removes_everything_and_follows_no_symlink)
{
	struct ckpt_step *step = begin("1");
	char outside[PATH_MAX];
	CLEANUP_FD int out_fd = -1, kept_fd = -1;

	ckpt_temp_dir(outside);
	out_fd = open(outside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	touch(out_fd, "precious");
	ck_ok(ckpt_sys.symlink(outside, step->dirfd, "link"));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "a", 0755));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "a/b", 0500));
	touch(step->dirfd, "a/b/c");
	ck_assert_int_eq(mkfifoat(step->dirfd, "a/fifo", 0600), 0);
	kept_fd = ckpt_sys.open(step->dirfd, "a/b/c", O_RDONLY, 0);
	ck_ok(ckpt_stage_abort(step, false));
	ck_assert(!there("sessions", step->session));
	ck_assert(!there("trash", step->session));
	ck_assert_int_eq(faccessat(out_fd, "precious", F_OK, 0), 0);
	ck_assert_int_eq(lseek(kept_fd, 0, SEEK_END), 0); // still to be read
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_committed_step_is_not_aborted)
{
	struct ckpt_step *step = ckpt_save_one(s, 0);

	ck_error(ckpt_stage_abort(step, false), EROFS);
	ck_error(ckpt_stage_remove(step), EROFS);
	ck_error(ckpt_stage_rename(step, "", "7"), EROFS);
	ck_error(ckpt_stage_enter(step, true), EROFS);
	ckpt_save_check_step(step, 0);
	ckpt_step_unref(step);
}
END_TEST

static bool renames_are_over;

static void *rename_to_and_fro(void *arg)
{
	char name[2][201];

	memset(name, 'a', sizeof(name[0]));
	memset(name[1], 'b', sizeof(name[1]));
	name[0][200] = name[1][200] = '\0';
	for (int i = 0; i < 20000; i++)
		ck_ok(ckpt_stage_rename(arg, "", name[i % 2]));
	__atomic_store_n(&renames_are_over, true, __ATOMIC_RELEASE);
	return NULL;
}

// Who reads it without the lock shows in the sanitizer build only.
START_TEST(a_name_is_read_whole_while_it_changes)
{
	struct ckpt_step *step = begin("a"), *other = begin("ab");
	pthread_t thread;

	renames_are_over = false;
	ck_assert_int_eq(pthread_create(&thread, NULL, rename_to_and_fro, step), 0);
	while (!__atomic_load_n(&renames_are_over, __ATOMIC_ACQUIRE)) {
		struct ckpt_step_name now;

		ckpt_step_name(step, &now);
		ck_assert_uint_eq(strspn(now.name, (char[]){now.name[0], '\0'}), strlen(now.name));
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_STAGED), 2);
	}
	pthread_join(thread, NULL);
	ckpt_step_unref(other);
	ckpt_step_unref(step);
}
END_TEST

// --- Clients' fsyncs --------------------------------------------------------------------------------------------------

START_TEST(a_synced_file_is_clean_until_it_changes)
{
	struct ckpt_step *step = begin("1");
	int64_t long_ago =
		(ckpt_sys.now_ns() / 1000000000 - 3600) * 1000000000; // with nanoseconds in each of those below

	ck_assert(!ckpt_stage_is_clean(step, 7, long_ago));
	for (uint64_t ino = 1; ino <= 5000; ino++) // the table grows
		ckpt_stage_synced(step, ino, long_ago + (int64_t)ino, ckpt_sys.now_ns(), 0);
	for (uint64_t ino = 1; ino <= 5000; ino++) {
		ck_assert(ckpt_stage_is_clean(step, ino, long_ago + (int64_t)ino));
		ck_assert(!ckpt_stage_is_clean(step, ino, long_ago + (int64_t)ino + 1));
	}
	ck_assert(!ckpt_stage_is_clean(step, 5001, 0));
	ck_assert(!ckpt_stage_is_clean(step, 5001, long_ago));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_failed_fsync_stays_failed_until_the_file_is_written_anew)
{
	struct ckpt_step *step = begin("1");
	int64_t long_ago = ckpt_sys.now_ns() - INT64_C(3600000000000);

	ckpt_stage_synced(step, 7, 0, 0, -EIO);
	ck_assert(ckpt_stage_has_failed(step, 7));
	ck_assert(!ckpt_stage_has_failed(step, 8));
	ckpt_stage_synced(step, 7, long_ago, ckpt_sys.now_ns(), 0); // a second fsync says all is well
	ck_assert(ckpt_stage_has_failed(step, 7));
	ck_assert(!ckpt_stage_is_clean(step, 7, long_ago));
	ckpt_stage_rewritten(step, 7);
	ckpt_stage_rewritten(step, 8);
	ck_assert(!ckpt_stage_has_failed(step, 7));
	ck_assert(!ckpt_stage_is_clean(step, 7, long_ago));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_graft_takes_failed_fsyncs_along)
{
	struct ckpt_step *a = begin("1"), *b = begin("2"), *c = begin("3");
	int64_t long_ago = ckpt_sys.now_ns() - INT64_C(3600000000000);

	for (uint64_t ino = 1; ino <= 300; ino++)
		ckpt_stage_synced(a, ino, long_ago, ckpt_sys.now_ns(), ino % 3 ? 0 : -EIO);
	ckpt_stage_synced(b, 1000, 0, 0, -EIO);
	ck_ok(ckpt_stage_graft(a, b, b->dirfd, "item"));
	ckpt_stage_synced(a, 1001, 0, 0, -EIO); // a fsync that was under way
	ckpt_stage_rewritten(a, 3);
	ck_ok(ckpt_stage_graft(b, c, c->dirfd, "item"));
	ckpt_stage_synced(a, 1002, 0, 0, -EIO);
	for (uint64_t ino = 1; ino <= 300; ino++)
		ck_assert_int_eq(ckpt_stage_has_failed(c, ino), ino % 3 == 0 && ino != 3);
	for (uint64_t ino = 1000; ino <= 1002; ino++)
		ck_assert(ckpt_stage_has_failed(c, ino));
	ckpt_step_unref(c); // the others hold it
	ckpt_stage_rewritten(a, 1002);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(a_graft_takes_along_that_a_failure_was_forgotten)
{
	struct ckpt_step *a = begin("1"), *b = begin("2");

	ckpt_staging_of(a)->synced_lost = true; // no memory for which
	ck_ok(ckpt_stage_graft(a, b, b->dirfd, "item"));
	ck_assert(ckpt_stage_has_failed(b, 7));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(a_failed_fsync_goes_with_the_file_to_another_step_and_back)
{
	struct ckpt_step *a = begin("1"), *b = begin("2");

	ckpt_stage_synced(a, 7, 0, 0, -EIO);
	ckpt_stage_synced(a, 8, 0, 0, -EIO);
	ckpt_stage_carry(a, b, 7);
	ckpt_stage_carry(a, b, 9);
	ck_assert(ckpt_stage_has_failed(b, 7));
	ck_assert(!ckpt_stage_has_failed(b, 8));
	ck_assert(!ckpt_stage_has_failed(b, 9));
	ckpt_stage_rewritten(b, 7);
	ckpt_stage_carry(b, a, 7);
	ck_assert(!ckpt_stage_has_failed(a, 7));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(a_fsync_within_a_tick_of_the_change_proves_nothing_where_times_are_coarse)
{
	struct ckpt_step *step = begin("1");
	int64_t now = ckpt_sys.now_ns() | 1, recent = now - 1000000000, old = now - INT64_C(2100000000);

	s->multigrain = false;
	ckpt_stage_synced(step, 7, recent, now, 0);
	ck_assert(!ckpt_stage_is_clean(step, 7, recent));
	ckpt_stage_synced(step, 7, old, now, 0);
	ck_assert(ckpt_stage_is_clean(step, 7, old));
	s->multigrain = true;
	ckpt_stage_synced(step, 7, recent, now, 0);
	ck_assert(ckpt_stage_is_clean(step, 7, recent));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_time_without_nanoseconds_proves_nothing_anywhere)
{
	struct ckpt_step *step = begin("1");
	int64_t now = ckpt_sys.now_ns(), whole = (now / 1000000000 - 3600) * 1000000000;

	s->multigrain = true;
	ckpt_stage_synced(step, 7, whole, now, 0);
	ck_assert(!ckpt_stage_is_clean(step, 7, whole));
	s->multigrain = false;
	ckpt_stage_synced(step, 7, whole, now, 0);
	ck_assert(!ckpt_stage_is_clean(step, 7, whole));
	ckpt_step_unref(step);
}
END_TEST

// --- Hostile stores ---------------------------------------------------------------------------------------------------

START_TEST(a_symlink_in_place_of_a_session_is_never_followed)
{
	char outside[PATH_MAX], path[2 * PATH_MAX];

	ckpt_temp_dir(outside);
	snprintf(path, sizeof(path), "%s/sessions/01234567-89ab-4def-8123-456789abcdef", dir);
	ck_assert_int_eq(symlink(outside, path), 0);
	ckpt_fixture_reopen();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	for (size_t i = 0; i < 3; i++) {
		static const char *const folders[] = {"sessions", "tree", "trash"};

		ckpt_store_close(s);
		s = NULL;
		snprintf(path, sizeof(path), "%s/%s", dir, folders[i]);
		ckpt_temp_empty(path, true);
		ck_assert_int_eq(symlink(outside, path), 0);
		ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), EBADMSG);
		ck_assert_int_eq(unlink(path), 0);
		s = ckpt_save_open(dir); // makes it anew
	}
}
END_TEST

START_TEST(what_cannot_be_taken_up_again_says_why)
{
	struct ckpt_step *step = begin("1000"), *other, **left;
	const char session[37] = "01234567-89ab-4def-8123-456789abcdef";
	size_t count;

	ck_error(ckpt_stage_resume(step), ESTALE);
	ck_error(ckpt_stage_rename(step, "", "a/b"), EINVAL);
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	ckpt_step_unref(ckpt_save_set_aside(s));
	ck_ok(ckpt_sys.mkdir(s->sessions_fd, session, 0700)); // it does not say what it was
	ck_ok(ckpt_stage_load_left(s, session));
	other = begin("1000");
	ck_ok(ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &left, &count));
	ck_assert_uint_eq(count, 2);
	for (size_t i = 0; i < count; i++)
		ck_error(ckpt_stage_resume(left[i]), *left[i]->name ? EEXIST : EINVAL);
	ck_ok(ckpt_stage_abort(other, false));
	for (size_t i = 0; i < count; i++)
		if (*left[i]->name) {
			ck_ok(ckpt_stage_resume(left[i]));
			ck_error(ckpt_stage_resume(left[i]), ESTALE);
		}
	ckpt_step_list_free(left, count);
	ckpt_step_unref(other);
}
END_TEST

START_TEST(a_writer_that_is_in_no_step_is_none)
{
	struct ckpt_writer w = {.fd = -1};

	ckpt_stage_writer_flushed(&w, 0, 0);
	ck_assert(!w.flushed);
	ck_ok(ckpt_stage_writer_await(&w));
	ckpt_stage_writer_remove(&w);
}
END_TEST

START_TEST(what_was_taken_out_of_order_leaves_the_others)
{
	struct ckpt_step *step = begin("1000");
	struct ckpt_writer w[3] = {0};

	for (size_t i = 0; i < ARRAY_LEN(w); i++)
		ckpt_stage_writer_add(step, &w[i]);
	ckpt_stage_writer_remove(&w[1]);
	ck_assert_ptr_eq(ckpt_staging_of(step)->writers, &w[2]);
	ck_assert_ptr_eq(w[2].next, &w[0]);
	ck_assert_ptr_eq(w[0].prev, &w[2]);
	ckpt_stage_writer_remove(&w[0]);
	ckpt_stage_writer_remove(&w[2]);
	ck_assert_ptr_null(ckpt_staging_of(step)->writers);
	ckpt_step_unref(step);
}
END_TEST

static Suite *stage_suite(void)
{
	Suite *suite = suite_create("stage");
	TCase *tcase = tcase_create("stage");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, a_name_is_taken_once);
	tcase_add_test(tcase, a_begin_that_fails_leaves_no_session);
	tcase_add_test(tcase, what_cannot_be_taken_up_again_says_why);
	tcase_add_test(tcase, a_writer_that_is_in_no_step_is_none);
	tcase_add_test(tcase, what_was_taken_out_of_order_leaves_the_others);
	tcase_add_test(tcase, a_name_that_no_step_can_have_is_refused);
	tcase_add_test(tcase, a_session_has_the_mode_and_says_who_began_it);
	tcase_add_test(tcase, what_cannot_be_begun_from_another_step_leaves_nothing);
	tcase_add_test(tcase, who_is_not_root_begins_steps_that_are_his);
	tcase_add_test(tcase, what_a_session_says_of_itself_is_not_trusted);
	tcase_add_loop_test(tcase, a_session_says_which_kind_it_is, 0, (int)ARRAY_LEN(kinds));
	tcase_add_test(tcase, a_staged_step_takes_another_name);
	tcase_add_test(tcase, a_graft_makes_a_step_a_directory_of_another_with_its_writers);
	tcase_add_test(tcase, a_graft_onto_a_file_or_a_full_directory_changes_nothing);
	tcase_add_test(tcase, an_abort_of_an_empty_step_refuses_one_with_files);
	tcase_add_test(tcase, an_abort_removes_everything_and_follows_no_symlink);
	tcase_add_test(tcase, a_committed_step_is_not_aborted);
	tcase_add_test(tcase, a_name_is_read_whole_while_it_changes);
	tcase_add_test(tcase, a_synced_file_is_clean_until_it_changes);
	tcase_add_test(tcase, a_failed_fsync_stays_failed_until_the_file_is_written_anew);
	tcase_add_test(tcase, a_graft_takes_failed_fsyncs_along);
	tcase_add_test(tcase, a_graft_takes_along_that_a_failure_was_forgotten);
	tcase_add_test(tcase, a_failed_fsync_goes_with_the_file_to_another_step_and_back);
	tcase_add_test(tcase, a_fsync_within_a_tick_of_the_change_proves_nothing_where_times_are_coarse);
	tcase_add_test(tcase, a_time_without_nanoseconds_proves_nothing_anywhere);
	tcase_add_test(tcase, a_symlink_in_place_of_a_session_is_never_followed);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(stage_suite());
}
