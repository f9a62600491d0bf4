// A store's life: init, open, its lock, who holds it, and what open refuses.
#include "core/save/stage.h"
#include "core/step/holder.h"
#include "core/step/store_folder.h"
#include "core/store/open.h"
#include "tests/support/callfault.h"
#include "tests/support/hooks.h"
#include "tests/support/save.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char dir[PATH_MAX];

static void setup(void)
{
	ckpt_save_init(dir);
}

static void spill(const char *name, const char *text)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void assert_refused(int error)
{
	struct ckpt_store *s;

	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), error);
	ck_error(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s), error);
}

START_TEST(a_store_is_made_once_and_only_where_nothing_is)
{
	char other[PATH_MAX], below[2 * PATH_MAX];

	ck_assert(ckpt_store_probe(dir));
	ck_error(ckpt_store_init(dir), EEXIST);
	ckpt_temp_dir(other);
	ck_assert(!ckpt_store_probe(other));
	snprintf(below, sizeof(below), "%s/a", other);
	ck_ok(ckpt_store_init(below)); // makes the directory
	ck_error(ckpt_store_init(other), ENOTEMPTY);
	snprintf(below, sizeof(below), "%s/b/c", other);
	ck_error(ckpt_store_init(below), ENOENT);
	ck_error(ckpt_store_init("/proc/self/status"), ENOTDIR);
}
END_TEST

// Steps that are committed to a store of one id are none of a store of another.
START_TEST(of_many_who_make_a_store_at_once_one_has_made_it)
{
	enum { MAKERS = 8, ROUNDS = 10 };
	char below[2 * PATH_MAX];

	ckpt_temp_dir(dir);
	for (int round = 0; round < ROUNDS; round++) {
		int made = 0, go[2];
		pid_t makers[MAKERS];

		snprintf(below, sizeof(below), "%s/%d", dir, round);
		ck_assert_int_eq(pipe(go), 0);
		for (int i = 0; i < MAKERS; i++) {
			char byte;

			makers[i] = fork();
			if (makers[i])
				continue;
			close(go[1]);
			(void)!read(go[0], &byte, 1); // until all are there
			_exit(-ckpt_store_init(below));
		}
		close(go[0]);
		close(go[1]);
		for (int i = 0; i < MAKERS; i++) {
			int status;

			ck_assert_int_eq(waitpid(makers[i], &status, 0), makers[i]);
			ck_assert(WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == EEXIST));
			made += !WEXITSTATUS(status);
		}
		ck_assert_int_eq(made, 1);
	}
}
END_TEST

START_TEST(an_init_that_was_cut_off_is_done_again)
{
	static const char *const made[] = {"sessions", "tree", "trash"};
	char path[2 * PATH_MAX];
	struct ckpt_store *s;

	ckpt_temp_dir(dir);
	for (size_t i = 0; i < ARRAY_LEN(made); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, made[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	spill("store.json.new", "{\n  \"form");
	spill("tree/mine", "");
	ck_error(ckpt_store_init(dir), ENOTEMPTY);
	snprintf(path, sizeof(path), "%s/tree/mine", dir);
	ck_assert_int_eq(unlink(path), 0);
	spill("mine", "");
	ck_error(ckpt_store_init(dir), ENOTEMPTY);
	snprintf(path, sizeof(path), "%s/mine", dir);
	ck_assert_int_eq(unlink(path), 0);
	ck_ok(ckpt_store_init(dir));
	ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s));
	ckpt_store_close(s);
}
END_TEST

static int (*real_readdir)(DIR *open, struct dirent **ret_entry);
static unsigned readdirs, fails_at;

static int failing_readdir(DIR *open, struct dirent **ret_entry)
{
	return ++readdirs == fails_at ? -EIO : real_readdir(open, ret_entry);
}

START_TEST(what_cannot_be_listed_is_not_taken_for_empty)
{
	char path[2 * PATH_MAX];

	ckpt_temp_dir(dir);
	snprintf(path, sizeof(path), "%s/tree", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	spill("tree/mine", "");
	real_readdir = ckpt_hooks.readdir;
	ckpt_hook_set(readdir, failing_readdir);
	for (fails_at = 1; fails_at <= 2; fails_at++) { // dir itself, and what is in it
		readdirs = 0;
		ck_error(ckpt_store_init(dir), EIO);
	}
	ckpt_hook_set(readdir, real_readdir);
	ck_assert(!ckpt_store_probe(dir));
	ck_error(ckpt_store_init(dir), ENOTEMPTY);
}
END_TEST

START_TEST(a_file_that_has_the_name_of_a_folder_is_somebodys)
{
	static const char *const names[] = {"sessions", "tree", "trash"};
	char path[2 * PATH_MAX];

	for (size_t i = 0; i < 2 * ARRAY_LEN(names); i++) {
		ckpt_temp_dir(dir);
		snprintf(path, sizeof(path), "%s/%s", dir, names[i / 2]);
		if (i % 2)
			ck_assert_int_eq(symlink("/", path), 0);
		else
			spill(names[i / 2], "");
		ck_error(ckpt_store_init(dir), ENOTEMPTY);
	}
}
END_TEST

START_TEST(what_is_no_store_is_refused)
{
	char empty[PATH_MAX];
	struct ckpt_store *s;

	ckpt_temp_dir(empty);
	ck_error(ckpt_store_open(empty, CKPT_STORE_WRITE, NULL, &s), EMEDIUMTYPE);
	ck_error(ckpt_store_open("/proc/self/status", CKPT_STORE_READ, NULL, &s), EMEDIUMTYPE);
	strcat(empty, "/absent");
	ck_error(ckpt_store_open(empty, CKPT_STORE_READ, NULL, &s), ENOENT);
}
END_TEST

START_TEST(a_newer_or_damaged_identity_is_refused)
{
	static const struct {
		const char *text;
		int error;
	} table[] = {
		{"", EBADMSG},
		{"{", EBADMSG},
		{"[]", EBADMSG},
		{"{}", EBADMSG},
		{"{\"format\": 0, \"id\": \"01234567-89ab-4def-8123-456789abcdef\"}", EBADMSG},
		{"{\"format\": \"1\", \"id\": \"01234567-89ab-4def-8123-456789abcdef\"}", EBADMSG},
		{"{\"format\": 1}", EBADMSG},
		{"{\"format\": 1, \"id\": \"../../etc\"}", EBADMSG},
		{"{\"format\": 1, \"format\": 1, \"id\": \"01234567-89ab-4def-8123-456789abcdef\"}", EBADMSG},
		{"{\"format\": 2, \"id\": \"01234567-89ab-4def-8123-456789abcdef\"}", ENOTSUP},
		{"{\"format\": 1, \"id\": \"01234567-89ab-4def-8123-456789abcdef\", \"required\": [\"moon\"]}",
		 ENOTSUP},
		{"{\"format\": 1, \"id\": \"01234567-89ab-4def-8123-456789abcdef\", \"required\": [\"log\", \"moon\"]}",
		 ENOTSUP},
		{"{\"format\": 1, \"id\": \"01234567-89ab-4def-8123-456789abcdef\", \"required\": []}",
		 EPROTONOSUPPORT},
	};
	struct ckpt_store *s;

	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		spill("store.json", table[i].text);
		assert_refused(table[i].error);
	}
	spill("store.json",
	      "{\"format\": 1, \"id\": \"01234567-89ab-4def-8123-456789abcdef\", \"required\": [\"log\"], "
	      "\"optional\": [\"moon\"]}");
	ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s));
	ckpt_store_close(s);
}
END_TEST

START_TEST(an_identity_that_is_a_symlink_is_not_followed)
{
	char path[2 * PATH_MAX], other[2 * PATH_MAX];
	struct ckpt_store *s;

	snprintf(path, sizeof(path), "%s/store.json", dir);
	snprintf(other, sizeof(other), "%s/other.json", dir);
	ck_assert_int_eq(rename(path, other), 0);
	ck_assert_int_eq(symlink("other.json", path), 0);
	ck_assert_int_lt(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), 0);
}
END_TEST

START_TEST(one_opens_for_writing_and_any_number_for_reading)
{
	struct ckpt_store *s = ckpt_save_open(dir), *other;
	struct ckpt_holder holder;

	ck_ok(ckpt_store_announce(s, "/mnt/point"));
	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &other), EBUSY);
	ck_ok(ckpt_store_holder(dir, &holder));
	ck_assert_int_eq(holder.pid, getpid());
	ck_assert_str_eq(holder.mountpoint, "/mnt/point");
	ck_assert_int_gt(holder.since_ns, 0);
	ckpt_holder_done(&holder);
	ckpt_step_unref(ckpt_save_one(s, 0));
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &other));
	struct ckpt_step *step = ckpt_save_find(other, 0);

	ck_assert_ptr_nonnull(step);
	ckpt_save_check_step(step, 0);
	ckpt_step_unref(step);
	ckpt_store_close(other);
	ckpt_store_close(s);
	ck_error(ckpt_store_holder(dir, &holder), ENOENT); // the file is there, and its writer is gone
	s = ckpt_save_open(dir);
	ck_ok(ckpt_store_holder(dir, &holder));
	ck_assert_msg(!holder.pid && !holder.mountpoint, "a verb has it, not who had it mounted before");
	ckpt_holder_done(&holder);
	ckpt_store_close(s);
}
END_TEST

START_TEST(the_lock_of_a_dead_holder_is_free)
{
	struct ckpt_holder holder;
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct ckpt_store *s = ckpt_save_open(dir);

		ck_ok(ckpt_store_announce(s, NULL));
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_error(ckpt_store_holder(dir, &holder), ENOENT);
	ckpt_store_close(ckpt_save_open(dir));
}
END_TEST

// A child that it forked has the lock for as long as it lives.
START_TEST(the_last_of_a_dead_holder_is_waited_for)
{
	int ends[2], status;
	pid_t pid;

	ck_ok(pipe(ends));
	pid = fork();
	if (!pid) {
		struct ckpt_store *s = ckpt_save_open(dir);
		char end;

		ck_ok(ckpt_store_announce(s, NULL));
		if (fork())
			_exit(0);
		close(ends[1]);
		(void)!read(ends[0], &end, 1);
		usleep(300000);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_ok(ckpt_store_holder(dir, NULL)); // still held
	close(ends[1]);
	ckpt_store_close(ckpt_save_open(dir));
	close(ends[0]);
}
END_TEST

START_TEST(reading_changes_nothing_in_the_store)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	char path[2 * PATH_MAX];
	struct stat st;

	ckpt_step_unref(ckpt_save_one(s, 0));
	ckpt_store_close(s);
	snprintf(path, sizeof(path), "%s/index", dir);
	ckpt_temp_empty(path, true);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	struct ckpt_step *step = ckpt_save_find(s, 0);

	ckpt_save_check_step(step, 0);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	ck_assert_int_eq(stat(path, &st), -1);
}
END_TEST

static bool gone_in_time(const char *name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	for (int i = 0; i < 1000; i++) {
		if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW))
			return true;
		ckpt_sys.sleep_ns(10000000);
	}
	return false;
}

START_TEST(what_a_dead_daemon_was_removing_goes_at_the_next_start)
{
	static const char *const dirs[] = {"trash/drop-0", "trash/drop-0/a", "trash/drop-0/a/b", "trash/0",
					   "tree/kept"};
	char path[2 * PATH_MAX], outside[2 * PATH_MAX];
	struct ckpt_store *s;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, dirs[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	snprintf(outside, sizeof(outside), "%s/tree/kept", dir);
	spill("trash/drop-0/a/b/file", "text");
	spill("trash/copy-0123-0", "text");
	spill("trash/0/file", "text");
	spill("tree/kept/file", "text");
	snprintf(path, sizeof(path), "%s/trash/drop-0/link", dir);
	ck_assert_int_eq(symlink(outside, path), 0);
	snprintf(path, sizeof(path), "%s/trash/drop-link", dir);
	ck_assert_int_eq(symlink(outside, path), 0);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	ckpt_store_close(s);
	snprintf(path, sizeof(path), "%s/trash/drop-0/a/b/file", dir);
	ck_assert_int_eq(access(path, F_OK), 0); // who reads changes nothing
	s = ckpt_save_open(dir);
	ck_assert(gone_in_time("trash/drop-0"));
	ck_assert(gone_in_time("trash/drop-link"));
	ck_assert(gone_in_time("trash/copy-0123-0"));
	ckpt_store_close(s);
	snprintf(path, sizeof(path), "%s/trash/0/file", dir); // may be undeleted
	ck_assert_int_eq(access(path, F_OK), 0);
	snprintf(path, sizeof(path), "%s/tree/kept/file", dir);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

static unsigned fsync_calls, fsync_failing;
static int (*real_fsync)(int fd);

static int counted_fsync(int fd)
{
	fsync_calls++;
	return fsync_failing && fsync_failing-- ? -EIO : real_fsync(fd);
}

START_TEST(an_id_that_was_not_synced_is_synced_by_the_next_who_asks)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	char id[CKPT_FOLDER_ID_LEN + 1], again[CKPT_FOLDER_ID_LEN + 1];
	CLEANUP_FD int fd = -1;

	ck_ok(ckpt_sys.mkdir(s->tree_fd, "runs", 0755));
	ck_ok(ckpt_sys.mkdir(s->tree_fd, "runs/a", 0755));
	fd = ckpt_sys.open(s->tree_fd, "runs/a", O_RDONLY | O_DIRECTORY, 0);
	real_fsync = ckpt_hooks.fsync;
	ckpt_hook_set(fsync, counted_fsync);
	fsync_failing = 1;
	ck_error(ckpt_store_folder_id(s, fd, true, id), EIO);
	ck_ok(ckpt_store_folder_id(s, fd, true, id));
	ck_assert_uint_eq(fsync_calls, 1 + 3); // itself, the folder above it, the top
	ck_ok(ckpt_store_folder_id(s, fd, true, again));
	ck_ok(ckpt_store_folder_id(s, fd, false, again));
	ck_assert_uint_eq(fsync_calls, 1 + 3);
	ckpt_store_close(s);
	s = ckpt_save_open(dir); // whoever made it may have died before it was on disk
	fsync_calls = 0;
	ck_ok(ckpt_store_folder_id(s, fd, false, again));
	ck_ok(ckpt_store_folder_id(s, fd, true, again));
	ck_assert_uint_eq(fsync_calls, 3);
	ck_assert_str_eq(id, again);
	ckpt_hook_set(fsync, real_fsync);
	ckpt_store_close(s);
}
END_TEST

START_TEST(a_folder_keeps_its_id)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	char id[CKPT_FOLDER_ID_LEN + 1], again[CKPT_FOLDER_ID_LEN + 1];
	CLEANUP_FD int fd = -1;
	CLEANUP_FD int other = -1;

	ck_ok(ckpt_sys.mkdir(s->tree_fd, "runs", 0755));
	fd = ckpt_sys.open(s->tree_fd, "runs", O_RDONLY | O_DIRECTORY, 0);
	ck_error(ckpt_store_folder_id(s, fd, false, id), ENOENT);
	ck_ok(ckpt_store_folder_id(s, fd, true, id));
	ck_assert(ckpt_name_is_folder_id(id) && *id);
	ck_ok(ckpt_store_folder_id(s, fd, true, again));
	ck_assert_str_eq(id, again);
	ck_ok(ckpt_sys.fsetxattr(fd, "user.ckptfs.folder", "../../etc/passwd", 16, 0));
	ck_error(ckpt_store_folder_id(s, fd, false, again), ENOENT); // not one of ours
	ck_ok(ckpt_store_folder_id(s, fd, true, again));
	ck_assert_str_eq(id, again); // it follows from where the folder is
	ck_ok(ckpt_sys.rename(s->tree_fd, "runs", s->tree_fd, "old", 0));
	ck_ok(ckpt_sys.mkdir(s->tree_fd, "runs", 0755));
	other = ckpt_sys.open(s->tree_fd, "runs", O_RDONLY | O_DIRECTORY, 0);
	ck_ok(ckpt_store_folder_id(s, other, true, again));
	ck_assert(ckpt_name_is_folder_id(again) && strcmp(id, again)); // which the renamed one has
	ck_ok(ckpt_store_folder_id(s, fd, true, again));
	ck_assert_str_eq(id, again);
	ckpt_store_close(s);
}
END_TEST

// Who took a failure for "none" would forget the folder's steps, or give the folder another id.
START_TEST(an_id_that_cannot_be_read_just_now_is_not_taken_for_none)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	char id[CKPT_FOLDER_ID_LEN + 1], again[CKPT_FOLDER_ID_LEN + 1] = "";
	CLEANUP_FD int fd = -1;

	ck_ok(ckpt_sys.mkdir(s->tree_fd, "runs", 0755));
	fd = ckpt_sys.open(s->tree_fd, "runs", O_RDONLY | O_DIRECTORY, 0);
	ck_ok(ckpt_store_folder_id(s, fd, true, id));
	for (int make = 0; make <= 1; make++) {
		int rc;

		ckpt_callfault_begin(1, -ENOMEM);
		rc = ckpt_store_folder_id(s, fd, make, again);
		ckpt_callfault_end();
		ck_error(rc, ENOMEM);
		ck_ok(ckpt_store_folder_id(s, fd, make, again));
		ck_assert_str_eq(id, again);
	}
	ckpt_store_close(s);
}
END_TEST

START_TEST(sequence_numbers_go_on_after_a_restart)
{
	static const struct ckpt_commit how = {.event = "marker", .profile = "generic"};
	struct ckpt_store *s = ckpt_save_open(dir);
	struct ckpt_step *step;

	for (int i = 0; i < 20; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		ck_ok(ckpt_stage_begin(s, "", name, 0755, 0, 0, 0, &step));
		ck_ok(ckpt_commit(step, &how));
		ckpt_step_unref(step);
	}
	CLEANUP_FREE char *before = ckpt_save_listing(s);
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
	CLEANUP_FREE char *after = ckpt_save_listing(s);
	ck_assert_str_eq(before, after);
	ck_assert_uint_eq(*ckpt_step_sequence_locked(s), 20);
	ckpt_store_close(s);
}
END_TEST

START_TEST(times_are_believed_only_of_filesystems_known_to_tell_changes_apart)
{
	CLEANUP_FD int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert(!ckpt_has_multigrain_times(proc));
}
END_TEST

static Suite *store_suite(void)
{
	Suite *suite = suite_create("store");
	TCase *tcase = tcase_create("store");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_store_is_made_once_and_only_where_nothing_is);
	tcase_add_test(tcase, of_many_who_make_a_store_at_once_one_has_made_it);
	tcase_add_test(tcase, an_init_that_was_cut_off_is_done_again);
	tcase_add_test(tcase, what_cannot_be_listed_is_not_taken_for_empty);
	tcase_add_test(tcase, a_file_that_has_the_name_of_a_folder_is_somebodys);
	tcase_add_test(tcase, what_is_no_store_is_refused);
	tcase_add_test(tcase, a_newer_or_damaged_identity_is_refused);
	tcase_add_test(tcase, an_identity_that_is_a_symlink_is_not_followed);
	tcase_add_test(tcase, one_opens_for_writing_and_any_number_for_reading);
	tcase_add_test(tcase, the_lock_of_a_dead_holder_is_free);
	tcase_add_test(tcase, the_last_of_a_dead_holder_is_waited_for);
	tcase_add_test(tcase, reading_changes_nothing_in_the_store);
	tcase_add_test(tcase, what_a_dead_daemon_was_removing_goes_at_the_next_start);
	tcase_add_test(tcase, an_id_that_was_not_synced_is_synced_by_the_next_who_asks);
	tcase_add_test(tcase, a_folder_keeps_its_id);
	tcase_add_test(tcase, an_id_that_cannot_be_read_just_now_is_not_taken_for_none);
	tcase_add_test(tcase, sequence_numbers_go_on_after_a_restart);
	tcase_add_test(tcase, times_are_believed_only_of_filesystems_known_to_tell_changes_apart);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(store_suite());
}
