// What is the local backend's own: its folders, hostile directories, other processes. The contract has its own suite,
// power cuts too.
#include "tests/support/hooks.h"
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "backends/spare.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct stand {
	int fd; // the store's directory
	struct ckpt_objects *b;
};

static void stand_open(struct stand *s)
{
	s->fd = ckpt_temp_fd();
	ck_ok(ckpt_local_open(s->fd, true, &s->b));
}

static void stand_close(struct stand *s)
{
	ckpt_objects_close(s->b);
	close(s->fd);
}

#define STAND(s)                                                                                                       \
	CLEANUP(stand_close) struct stand s;                                                                           \
	stand_open(&s)

static void file_make(int dirfd, const char *path, const char *text)
{
	CLEANUP_FD int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(write(fd, text, strlen(text)), (int)strlen(text));
}

static bool exists(int dirfd, const char *path)
{
	return faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int names_in(int dirfd, const char *path)
{
	DIR *dir = fdopendir(openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	for (struct dirent *e; (e = readdir(dir));)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

// Of its own it has the lock and the spare files.
static int left_in_tmp(int dirfd)
{
	return names_in(dirfd, "tmp") - 1 - CKPT_SPARE_COUNT;
}

struct list {
	char text[2000];
};

static int list_add(void *arg, const char *key, const struct ckpt_object *object)
{
	struct list *list = arg;
	size_t len = strlen(list->text);

	snprintf(list->text + len, sizeof(list->text) - len, "%s%s:%llu", len ? " " : "", key,
		 (unsigned long long)object->bytes);
	return 0;
}

static void assert_list(struct stand *s, const char *expected)
{
	struct list list = {0};

	ck_ok(ckpt_objects_list(s->b, "", NULL, list_add, &list));
	ck_assert_str_eq(list.text, expected);
}

START_TEST(a_writable_open_makes_the_folders_and_nothing_else)
{
	STAND(s);
	static const char *const folders[] = {"parts", "m", "packs", "log", "snap", "probe", "tmp"};

	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		struct stat st;

		ck_ok(fstatat(s.fd, folders[i], &st, AT_SYMLINK_NOFOLLOW));
		ck_assert_uint_eq(st.st_mode, S_IFDIR | 0700);
	}
	ck_assert_int_eq(names_in(s.fd, "."), (int)ARRAY_LEN(folders));
}
END_TEST

START_TEST(an_object_is_a_file_at_its_key_and_tmp_is_left_empty)
{
	STAND(s);
	struct stat st;

	ck_ok(ckpt_objects_put(s.b, "parts/1000/1", "record", 6, NULL));
	ck_ok(ckpt_objects_put(s.b, "parts/1000/2", "record", 6, NULL));
	ck_error(ckpt_objects_put(s.b, "parts/1000/2", "record", 6, NULL), EEXIST);
	ck_ok(fstatat(s.fd, "parts/1000/1", &st, AT_SYMLINK_NOFOLLOW));
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	ck_assert_uint_eq(st.st_nlink, 1);
	ck_assert_int_eq(st.st_size, 6);
	ck_assert_int_eq(left_in_tmp(s.fd), 0);
}
END_TEST

START_TEST(the_last_object_takes_its_folder_with_it)
{
	STAND(s);
	ck_ok(ckpt_objects_put(s.b, "parts/a/1", "", 0, NULL));
	ck_ok(ckpt_objects_put(s.b, "parts/a/2", "", 0, NULL));
	ck_ok(ckpt_objects_remove(s.b, "parts/a/1"));
	ck_assert(exists(s.fd, "parts/a"));
	ck_ok(ckpt_objects_remove(s.b, "parts/a/2"));
	ck_assert(!exists(s.fd, "parts/a"));
	ck_ok(ckpt_objects_put(s.b, "m/a", "", 0, NULL));
	ck_ok(ckpt_objects_remove(s.b, "m/a"));
	ck_assert(exists(s.fd, "m"));
}
END_TEST

static int fail_to_sync(int fd __attribute__((unused)))
{
	return -EIO;
}

// Who is told that there is none believes that for good, as there may be one again after a power cut.
START_TEST(what_is_gone_is_not_missing_before_that_is_durable)
{
	STAND(s);
	static const char *const keys[] = {"packs/a", "parts/a/1"};
	int (*fsync_before)(int fd) = ckpt_hooks.fsync;

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		ck_ok(ckpt_objects_put(s.b, keys[i], "", 0, NULL));
		ckpt_hook_set(fsync, fail_to_sync);
		ck_error(ckpt_objects_remove(s.b, keys[i]), EIO);
		ck_error(ckpt_objects_remove(s.b, keys[i]), EIO);
		ckpt_hook_set(fsync, fsync_before);
		ck_error(ckpt_objects_remove(s.b, keys[i]), ENOENT);
	}
}
END_TEST

START_TEST(an_empty_folder_is_no_object_and_no_obstacle)
{
	STAND(s);
	ck_ok(mkdirat(s.fd, "parts/a", 0700));
	assert_list(&s, "");
	ck_ok(ckpt_objects_put(s.b, "parts/a/1", "x", 1, NULL));
	assert_list(&s, "parts/a/1:1");
}
END_TEST

START_TEST(a_read_only_open_reads_and_changes_nothing)
{
	STAND(s);
	CLEANUP_FD int empty = ckpt_temp_fd();
	struct ckpt_object object;
	struct ckpt_objects *b;

	ck_ok(ckpt_objects_put(s.b, "m/x", "x", 1, &object));
	file_make(s.fd, "tmp/left", "");
	ck_ok(ckpt_local_open(s.fd, false, &b));
	ck_ok(ckpt_objects_head(b, "m/x", &object));
	ck_error(ckpt_objects_put(b, "m/y", "x", 1, NULL), EROFS);
	ck_error(ckpt_objects_remove(b, "m/x"), EROFS);
	ckpt_objects_close(b);
	ck_assert(exists(s.fd, "tmp/left"));
	ck_ok(ckpt_local_open(empty, false, &b));
	ck_error(ckpt_objects_head(b, "m/x", &object), ENOENT);
	ck_ok(ckpt_objects_list(b, "", NULL, list_add, &(struct list){0}));
	ckpt_objects_close(b);
	ck_assert_int_eq(names_in(empty, "."), 0);
}
END_TEST

// ---- Hostile directories

// A secret outside the store, and what a planted thing at the key may not do: be read, written or removed through.
static void assert_contained(struct stand *s, const char *key, int outside)
{
	struct ckpt_object object;
	char buf[16];
	size_t got;
	int r = ckpt_objects_get(s->b, key, 0, buf, sizeof(buf), &got, NULL);

	ck_assert_msg(r == -EIO, "%s: %d", key, r);
	ck_error(ckpt_objects_head(s->b, key, &object), EIO);
	r = ckpt_objects_put(s->b, key, "evil", 4, NULL);
	ck_assert_msg(r == -EIO || r == -EEXIST, "%s: %d", key, r);
	ck_error(ckpt_objects_remove(s->b, key), EIO);
	ck_assert_int_eq(names_in(outside, "."), 1);
	got = (size_t)pread(openat(outside, "1", O_RDONLY), buf, sizeof(buf), 0);
	ck_assert_uint_eq(got, 6);
	ck_assert_mem_eq(buf, "secret", 6);
}

START_TEST(planted_symlinks_are_listed_but_never_followed)
{
	STAND(s);
	CLEANUP_FD int outside = ckpt_temp_fd();
	char path[PATH_MAX], target[PATH_MAX], link[64];
	ssize_t n;

	file_make(outside, "1", "secret");
	snprintf(link, sizeof(link), "/proc/self/fd/%d", outside);
	n = readlink(link, path, sizeof(path) - 1);
	ck_assert_int_gt(n, 0);
	path[n] = '\0';
	snprintf(target, sizeof(target), "%.4000s/1", path);
	ck_ok(symlinkat(path, s.fd, "parts/dir"));       // an absolute one to a folder
	ck_ok(symlinkat(target, s.fd, "m/file"));        // to a file
	ck_ok(symlinkat("../tmp/lock", s.fd, "log/in")); // within the store
	ck_ok(symlinkat("nowhere", s.fd, "packs/broken"));
	assert_contained(&s, "parts/dir/1", outside);
	assert_contained(&s, "m/file", outside);
	assert_contained(&s, "log/in", outside);
	assert_contained(&s, "packs/broken", outside);
	assert_list(&s, "log/in:0 m/file:0 packs/broken:0 parts/dir:0");
	ck_ok(ckpt_objects_put(s.b, "parts/a/1", "x", 1, NULL));
	ck_ok(symlinkat(target, s.fd, "parts/a/2"));
	assert_contained(&s, "parts/a/2", outside);
}
END_TEST

START_TEST(a_symlink_in_place_of_a_top_folder_is_refused)
{
	static const char *const folders[] = {"parts", "m", "packs", "log", "snap", "probe", "tmp", "tmp/lock"};

	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		CLEANUP_FD int fd = ckpt_temp_fd();
		struct ckpt_objects *b;
		int r;

		mkdirat(fd, "tmp", 0700);
		mkdirat(fd, "elsewhere", 0700);
		file_make(fd, "elsewhere/1", "secret");
		if (strcmp(folders[i], "tmp") == 0)
			ck_ok(unlinkat(fd, "tmp", AT_REMOVEDIR));
		ck_ok(symlinkat(i == 5 ? "../elsewhere/1" : "elsewhere", fd, folders[i]));
		r = ckpt_local_open(fd, true, &b);
		ck_assert_msg(r == -ELOOP || r == -ENOTDIR, "%s: %d", folders[i], r);
		ck_assert_int_eq(names_in(fd, "elsewhere"), 1);
		ck_ok(ckpt_local_open(fd, false, &b));
		if (i < 4)
			ck_error(ckpt_objects_list(b, folders[i], NULL, list_add, &(struct list){0}), EIO);
		ckpt_objects_close(b);
	}
}
END_TEST

START_TEST(things_that_are_no_regular_files_are_refused_without_waiting)
{
	STAND(s);
	struct ckpt_object object;

	ck_ok(mkfifoat(s.fd, "m/fifo", 0600));
	ck_ok(mkdirat(s.fd, "m/dir", 0700));
	ck_error(ckpt_objects_head(s.b, "m/fifo", &object), EIO);
	ck_error(ckpt_objects_put(s.b, "m/fifo", "x", 1, NULL), EEXIST);
	ck_error(ckpt_objects_remove(s.b, "m/fifo"), EIO);
	ck_error(ckpt_objects_head(s.b, "m/dir", &object), ENOENT);
	ck_error(ckpt_objects_remove(s.b, "m/dir"), ENOENT);
	assert_list(&s, "m/fifo:0");
	ck_assert(exists(s.fd, "m/dir"));
}
END_TEST

START_TEST(names_that_are_no_keys_are_not_listed)
{
	STAND(s);
	ck_ok(ckpt_objects_put(s.b, "m/x", "x", 1, NULL));
	file_make(s.fd, "m/a\nb", "");
	file_make(s.fd, "m/\xff", "");
	ck_ok(mkdirat(s.fd, "parts/a", 0700));
	ck_ok(mkdirat(s.fd, "parts/a/b", 0700));
	file_make(s.fd, "parts/a/b/c", "");
	ck_ok(mkdirat(s.fd, "parts/\x01", 0700));
	file_make(s.fd, "parts/\x01/1", "");
	file_make(s.fd, "elsewhere", "");
	assert_list(&s, "m/x:1");
}
END_TEST

START_TEST(a_file_cut_short_or_changed_by_hand_has_another_etag)
{
	STAND(s);
	struct ckpt_object before, after;

	ck_ok(ckpt_objects_put(s.b, "m/x", "12345", 5, &before));
	file_make(s.fd, "m/x", "1234");
	ck_ok(ckpt_objects_head(s.b, "m/x", &after));
	ck_assert_str_ne(before.etag, after.etag);
	ckpt_sys.sleep_ns(20000000); // by the clock that the disk's filesystem has
	file_make(s.fd, "m/x", "1230");
	ck_ok(ckpt_objects_head(s.b, "m/x", &before));
	ck_assert_str_ne(before.etag, after.etag);
}
END_TEST

// ---- Many at once

START_TEST(an_open_alone_sweeps_tmp_and_one_in_company_does_not)
{
	CLEANUP_FD int fd = ckpt_temp_fd();
	struct ckpt_objects *first, *second;

	ck_ok(mkdirat(fd, "tmp", 0700));
	file_make(fd, "tmp/file", "left");
	ck_ok(mkdirat(fd, "tmp/folder.d", 0700));
	file_make(fd, "tmp/folder.d/1", "left");
	ck_ok(symlinkat("../parts", fd, "tmp/link"));
	ck_ok(ckpt_local_open(fd, true, &first));
	ck_assert_int_eq(left_in_tmp(fd), 0);
	file_make(fd, "tmp/in-the-making", "");
	ck_ok(ckpt_local_open(fd, true, &second));
	ck_assert(exists(fd, "tmp/in-the-making"));
	ckpt_objects_close(first);
	ckpt_objects_close(second);
	ck_ok(ckpt_local_open(fd, true, &first));
	ck_assert_int_eq(left_in_tmp(fd), 0);
	ckpt_objects_close(first);
}
END_TEST

#define PROCESSES 4
#define ROUNDS 50

static void process_body(int fd, int me)
{
	struct ckpt_objects *b;
	char key[32];
	unsigned slot = 1;

	// Opening and closing all the time: a sweep may not take what another process is making.
	for (int i = 0; i < ROUNDS; i++) {
		int r;

		ck_ok(ckpt_local_open(fd, true, &b));
		snprintf(key, sizeof(key), "parts/%d/%d", i, me);
		ck_ok(ckpt_objects_put(b, key, key, strlen(key), NULL));
		do {
			snprintf(key, sizeof(key), "log/%u", slot++);
			r = ckpt_objects_put(b, key, key, strlen(key), NULL);
		} while (r == -EEXIST);
		ck_ok(r);
		ckpt_objects_close(b);
	}
}

START_TEST(processes_share_a_store_without_losing_an_object)
{
	CLEANUP_FD int fd = ckpt_temp_fd();
	struct ckpt_object object;
	struct ckpt_objects *b;
	struct list list = {0};
	char key[32];

	for (int i = 0; i < PROCESSES; i++) {
		if (fork() == 0) {
			process_body(fd, i);
			_exit(0);
		}
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status;

		ck_assert_int_gt(wait(&status), 0);
		ck_assert_int_eq(status, 0);
	}
	ck_ok(ckpt_local_open(fd, true, &b));
	for (int i = 1; i <= PROCESSES * ROUNDS + 1; i++) { // each place was taken once
		snprintf(key, sizeof(key), "log/%d", i);
		ck_assert_int_eq(ckpt_objects_head(b, key, &object), i > PROCESSES * ROUNDS ? -ENOENT : 0);
	}
	ck_ok(ckpt_objects_list(b, "parts/49/", NULL, list_add, &list));
	ck_assert_str_eq(list.text, "parts/49/0:10 parts/49/1:10 parts/49/2:10 parts/49/3:10");
	ckpt_objects_close(b);
	ck_assert_int_eq(left_in_tmp(fd), 0);
}
END_TEST

static Suite *local_suite(void)
{
	Suite *suite = suite_create("local");
	TCase *tcase = tcase_create("directory");

	tcase_add_test(tcase, a_writable_open_makes_the_folders_and_nothing_else);
	tcase_add_test(tcase, an_object_is_a_file_at_its_key_and_tmp_is_left_empty);
	tcase_add_test(tcase, the_last_object_takes_its_folder_with_it);
	tcase_add_test(tcase, what_is_gone_is_not_missing_before_that_is_durable);
	tcase_add_test(tcase, an_empty_folder_is_no_object_and_no_obstacle);
	tcase_add_test(tcase, a_read_only_open_reads_and_changes_nothing);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("hostile");
	tcase_add_test(tcase, planted_symlinks_are_listed_but_never_followed);
	tcase_add_test(tcase, a_symlink_in_place_of_a_top_folder_is_refused);
	tcase_add_test(tcase, things_that_are_no_regular_files_are_refused_without_waiting);
	tcase_add_test(tcase, names_that_are_no_keys_are_not_listed);
	tcase_add_test(tcase, a_file_cut_short_or_changed_by_hand_has_another_etag);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("many");
	tcase_add_test(tcase, an_open_alone_sweeps_tmp_and_one_in_company_does_not);
	tcase_add_test(tcase, processes_share_a_store_without_losing_an_object);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(local_suite());
}
