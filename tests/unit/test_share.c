// Shared files: a committed file under a second name, and the copy that the name gets at its first change.
#include "core/save/reopen.h"
#include "tests/support/disk.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"
#include "tests/support/sysfault.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/manifest.h"
#include "core/save/amend.h"
#include "core/save/remove.h"
#include "core/save/share.h"
#include "core/step/reopened.h"
#include "core/step/trash.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define CALLS_MAX 200

static struct ckpt_step *base, *step; // of one file, model.bin: committed; and staged with that file as a shared one

static void share(const char *name)
{
	struct ckpt_manifest *m;
	uint32_t index;

	ck_ok(ckpt_step_manifest(base, &m));
	ck_ok(ckpt_manifest_lookup(m, "model.bin", &index));
	ck_ok(ckpt_share_entry(base, m, index, step->dirfd, name));
	ckpt_manifest_unref(m);
}

static void setup(void)
{
	ckpt_fixture_open();
	base = ckpt_staged_one(s, "the base", "model.bin", "committed");
	step = ckpt_staged_begin(s, "2000");
	share("model.bin");
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_step_unref(base);
	ckpt_fixture_close();
}

static struct statx look(const char *name)
{
	struct statx stx;

	ck_assert_int_eq(statx(step->dirfd, name, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx), 0);
	return stx;
}

static void holds(const char *name, const char *text)
{
	CLEANUP_FD int fd = ckpt_sys.open(step->dirfd, name, O_RDONLY, 0);
	char there[64];

	ck_ok(fd);
	ck_assert_int_eq(pread(fd, there, sizeof(there), 0), (ssize_t)strlen(text));
	ck_assert_mem_eq(there, text, strlen(text));
}

static bool is_shared(const char *name)
{
	struct statx stx = look(name);

	return ckpt_share_is(step->dirfd, name, &stx);
}

static unsigned in_trash(void)
{
	int fd = openat(s->dirfd, "trash", O_RDONLY | O_DIRECTORY);
	DIR *trash = fdopendir(fd);
	struct dirent *d;
	unsigned count = 0;

	ck_assert_ptr_nonnull(trash);
	while ((d = readdir(trash)))
		count += d->d_name[0] != '.';
	closedir(trash);
	return count;
}

static int copy_up(const char *name, bool empty)
{
	struct ckpt_share_copy copy = {0};
	int rc = ckpt_share_copy_make(s, step->dirfd, name, empty, true, &copy);

	return !rc && copy.of ? ckpt_share_copy_place(s, &copy, step->dirfd, name) : rc;
}

static void put(const char *name, const char *text)
{
	close(ckpt_staged_put(step, name, text));
}

// --- The copy ---------------------------------------------------------------------------------------------------------

START_TEST(a_shared_file_is_the_raw_file_until_it_has_a_copy)
{
	struct statx before = look("model.bin");

	ck_assert(is_shared("model.bin"));
	ck_assert_uint_eq(before.stx_nlink, 2);
	ck_ok(copy_up("model.bin", _i));
	ck_assert(!is_shared("model.bin"));
	ck_assert_uint_eq(look("model.bin").stx_nlink, 1);
	ck_assert_uint_ne(look("model.bin").stx_ino, before.stx_ino);
	ck_assert_uint_eq(look("model.bin").stx_mode, before.stx_mode);
	ck_assert_int_eq(look("model.bin").stx_mtime.tv_nsec, before.stx_mtime.tv_nsec);
	holds("model.bin", _i ? "" : "committed");
	ckpt_staged_check(base, "model.bin", "committed");
	ck_assert_uint_eq(in_trash(), 0);
	ck_ok(copy_up("model.bin", false)); // it is its own already
	holds("model.bin", _i ? "" : "committed");
}
END_TEST

static void holds_at(const char *path, const char *text)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	char there[64];

	ck_ok(fd);
	ck_assert_int_eq(pread(fd, there, sizeof(there), 0), (ssize_t)strlen(text));
	ck_assert_mem_eq(there, text, strlen(text));
}

// What it is a copy of was on disk.
START_TEST(a_copy_is_on_disk_before_it_has_the_name)
{
	char out[PATH_MAX], path[2 * PATH_MAX];
	struct ckpt_disk *disk;

	ckpt_temp_dir(out);
	snprintf(path, sizeof(path), "%s/sessions/%s/model.bin", out, step->session);
	ck_ok(ckpt_disk_begin(dir, &disk));
	ck_ok(copy_up("model.bin", false));
	ckpt_disk_end(disk);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (uint64_t seed = 0; seed < 16; seed++) {
			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			holds_at(path, "committed");
			ckpt_temp_empty(out, false);
		}
	ckpt_disk_free(disk);
}
END_TEST

// Somebody may have it open under the name that is gone.
START_TEST(a_file_that_was_shared_stays_marked_with_one_name_left)
{
	CLEANUP_FD int fd = ckpt_sys.open(step->dirfd, "model.bin", O_RDONLY, 0);
	uint64_t ino = look("model.bin").stx_ino;
	char raw[64];

	ck_ok(fd);
	snprintf(raw, sizeof(raw), "%s/model.bin", base->session);
	ck_ok(ckpt_sys.unlink(s->sessions_fd, raw, 0));
	ck_assert_uint_eq(look("model.bin").stx_nlink, 1);
	ck_assert(ckpt_share_is_marked(fd));
	ck_ok(copy_up("model.bin", false));
	ck_assert_uint_ne(look("model.bin").stx_ino, ino);
	holds("model.bin", "committed");
}
END_TEST

START_TEST(what_has_the_name_meanwhile_keeps_it)
{
	struct ckpt_share_copy copy;

	ck_ok(ckpt_share_copy_make(s, step->dirfd, "model.bin", false, false, &copy));
	ck_ok(ckpt_sys.unlink(step->dirfd, "model.bin", 0));
	if (_i)
		put("model.bin", "newer");
	ck_error(ckpt_share_copy_place(s, &copy, step->dirfd, "model.bin"), ESTALE);
	if (_i)
		holds("model.bin", "newer");
	else
		ck_assert_int_eq(faccessat(step->dirfd, "model.bin", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	ck_assert_uint_eq(in_trash(), 0);
}
END_TEST

static int (*real_rename)(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags);
static int exchanges;
static bool replaces; // else it only removes

// The last moment: what had the name goes after it was looked at.
static int late_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
	if (!strcmp(to, "model.bin") && !exchanges++) {
		ck_ok(ckpt_sys.unlink(to_dirfd, to, 0));
		if (replaces)
			put("model.bin", "newer");
	}
	return real_rename(from_dirfd, from, to_dirfd, to, flags);
}

START_TEST(what_has_the_name_since_the_last_moment_keeps_it)
{
	int rc;

	exchanges = 0;
	replaces = _i;
	real_rename = ckpt_hooks.rename;
	ckpt_hook_set(rename, late_rename);
	rc = copy_up("model.bin", false);
	ckpt_hook_set(rename, real_rename);
	ck_error(rc, ESTALE);
	if (_i)
		holds("model.bin", "newer");
	else
		ck_assert_int_eq(faccessat(step->dirfd, "model.bin", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	ck_assert_uint_eq(in_trash(), 0);
	ckpt_staged_check(base, "model.bin", "committed");
}
END_TEST

static int no_exchange(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
	return flags & RENAME_EXCHANGE ? -EINVAL : real_rename(from_dirfd, from, to_dirfd, to, flags);
}

START_TEST(a_disk_that_exchanges_nothing_will_do)
{
	int rc;

	real_rename = ckpt_hooks.rename;
	ckpt_hook_set(rename, no_exchange);
	rc = copy_up("model.bin", false);
	ckpt_hook_set(rename, real_rename);
	ck_ok(rc);
	ck_assert(!is_shared("model.bin"));
	holds("model.bin", "committed");
	ck_assert_uint_eq(in_trash(), 0);
}
END_TEST

START_TEST(a_copy_that_fails_leaves_the_shared_file)
{
	for (uint64_t n = 1;; n++) {
		struct ckpt_sysfault fault = {.at = n, .error = -ENOSPC, .torn = true};
		int rc;

		ck_assert_uint_lt(n, CALLS_MAX);
		ckpt_sysfault_begin(&fault);
		rc = copy_up("model.bin", false);
		ckpt_sysfault_end(&fault);
		holds("model.bin", "committed");
		ck_assert_int_eq(is_shared("model.bin"), rc != 0);
		ckpt_staged_check(base, "model.bin", "committed");
		if (!rc) {
			ck_ok(ckpt_sys.unlink(step->dirfd, "model.bin", 0));
			share("model.bin");
		}
		if (fault.count < n)
			break;
	}
	ck_assert_uint_le(in_trash(), 2); // what could not be cleared away, for the next start
	ckpt_step_unref(TAKE_PTR(step));
	ckpt_step_unref(TAKE_PTR(base));
	ckpt_fixture_reopen();
	ckpt_trash_drain(*ckpt_trash_of(s));
	ck_assert_uint_eq(in_trash(), 0);
}
END_TEST

// --- Links ------------------------------------------------------------------------------------------------------------

static int no_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	(void)from_dirfd;
	(void)from;
	(void)to_dirfd;
	(void)to;
	return -EMLINK;
}

static int no_mark(int fd, const char *name, const void *value, size_t len, int flags)
{
	(void)fd;
	(void)name;
	(void)value;
	(void)len;
	(void)flags;
	return -EPERM;
}

START_TEST(where_no_link_can_be_had_there_is_a_copy)
{
	int (*link)(int from_dirfd, const char *from, int to_dirfd, const char *to) = ckpt_hooks.link;
	int (*mark)(int fd, const char *name, const void *value, size_t len, int flags) = ckpt_hooks.fsetxattr;

	if (_i)
		ckpt_hook_set(link, no_link);
	else
		ckpt_hook_set(fsetxattr, no_mark);
	share("other");
	ckpt_hook_set(link, link);
	ckpt_hook_set(fsetxattr, mark);
	ck_assert(!is_shared("other"));
	ck_assert_uint_eq(look("other").stx_nlink, 1);
	holds("other", "committed");
}
END_TEST

START_TEST(a_raw_file_that_is_gone_or_changed_is_not_shared)
{
	struct ckpt_manifest *m;
	char raw[64];
	uint32_t index;

	snprintf(raw, sizeof(raw), "%s/model.bin", base->session);
	ck_ok(ckpt_sys.unlink(s->sessions_fd, raw, 0));
	if (_i)
		close(ckpt_sys.open(s->sessions_fd, raw, O_WRONLY | O_CREAT | O_EXCL, 0644));
	ck_ok(ckpt_step_manifest(base, &m));
	ck_ok(ckpt_manifest_lookup(m, "model.bin", &index));
	ck_error(ckpt_share_entry(base, m, index, step->dirfd, "other"), EIO);
	ck_error(ckpt_share_entry(base, m, 0, step->dirfd, "other"), EISDIR);
	ckpt_manifest_unref(m);
	ck_assert_int_eq(faccessat(step->dirfd, "other", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}
END_TEST

START_TEST(each_name_of_a_shared_file_has_a_number_of_its_own)
{
	struct statx stx;
	uint64_t one, other;

	share("other");
	stx = look("model.bin");
	one = ckpt_share_ino(step, "model.bin", 7, &stx, true);
	other = ckpt_share_ino(step, "other", 7, &stx, true);
	ck_assert_uint_ne(one, other);
	ck_assert_uint_ne(one, ckpt_store_ino(&stx));
	ck_assert_uint_eq(ckpt_share_ino(step, "model.bin", 7, &stx, true), one); // it stays
	ck_assert_uint_eq(ckpt_share_ino(NULL, "a/model.bin", 7, &stx, true),
			  one); // of name and directory, not of the path
	ck_assert_uint_ne(ckpt_share_ino(step, "model.bin", 8, &stx, true), one);
	ck_ok(copy_up("model.bin", false));
	stx = look("model.bin");
	ck_assert_uint_eq(ckpt_share_ino(step, "model.bin", 7, &stx, false), ckpt_store_ino(&stx));
}
END_TEST

START_TEST(a_whole_step_is_shared_with_all_that_belongs_to_it)
{
	struct ckpt_step *from = ckpt_save_one(s, (unsigned)_i), *to = ckpt_staged_begin(s, "3000");
	struct ckpt_manifest *m;
	char path[PATH_MAX];
	struct stat mine, its;

	ck_ok(ckpt_step_manifest(from, &m));
	ck_ok(ckpt_share_tree(from, m, to->dirfd));
	ckpt_manifest_unref(m);
	snprintf(path, sizeof(path), "%s/model.bin", from->session);
	ck_assert_int_eq(fstatat(s->sessions_fd, path, &its, 0), 0);
	ck_assert_int_eq(fstatat(to->dirfd, "model.bin", &mine, 0), 0);
	ck_assert_uint_eq(mine.st_ino, its.st_ino);
	ck_ok(ckpt_commit(to, &ckpt_staged_plain));
	ckpt_save_check_files(to, (unsigned)_i);
	ckpt_save_check_files(from, (unsigned)_i);
	ckpt_step_unref(to);
	ckpt_step_unref(from);
}
END_TEST

// --- A step that is reopened --------------------------------------------------------------------------------------------

START_TEST(what_is_no_file_has_no_copy_of_its_own)
{
	struct ckpt_share_copy copy = {.of = 7};
	struct statx stx;

	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	stx = look("sub");
	ck_assert(!ckpt_share_is(step->dirfd, "sub", &stx));
	ck_ok(ckpt_share_copy_make(s, step->dirfd, "sub", false, false, &copy));
	ck_assert_uint_eq(copy.of, 0);
	ck_assert_uint_eq(in_trash(), 0);
}
END_TEST

static uint64_t number_in(struct ckpt_step *of, const char *path)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_step_manifest(of, &m));
	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ckpt_manifest_entry(m, index, &e);
	ckpt_manifest_unref(m);
	return e.ino;
}

// Its raw file is another since it was written again, and the client's number of it is that of the first.
START_TEST(a_file_that_was_written_again_keeps_its_number_where_its_step_is_reopened)
{
	uint64_t number = number_in(base, "model.bin");
	struct statx stx;
	char raw[64];
	int fd;

	ckpt_step_unref(step);
	snprintf(raw, sizeof(raw), "%s/.again-1", base->session);
	fd = ckpt_sys.open(s->sessions_fd, raw, O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, "later", 5, 0));
	close(fd);
	ck_ok(ckpt_amend_replace(base, "model.bin", ".again-1"));
	ck_ok(ckpt_reopen(base, &step));
	stx = look("model.bin");
	ck_assert(is_shared("model.bin"));
	ck_assert_uint_ne(ckpt_store_ino(&stx), number);
	ck_assert_uint_eq(ckpt_share_ino(step, "model.bin", 7, &stx, true), number);
	ck_ok(ckpt_sys.rename(step->dirfd, "model.bin", step->dirfd, "other", 0)); // another, of which there was none
	ck_assert_uint_ne(ckpt_share_ino(step, "other", 7, &stx, true), number);
	share("model.bin");
	ck_ok(copy_up("model.bin", false)); // or a copy that is shared in its turn
	stx = look("model.bin");
	ck_assert_uint_ne(ckpt_share_ino(step, "model.bin", 7, &stx, true), number);
	ck_ok(ckpt_sys.unlink(s->sessions_fd, raw, 0));
	ck_assert_uint_ne(ckpt_share_ino(step, "model.bin", 7, &stx, true), number);
}
END_TEST

static struct ckpt_step *commit_tree(void)
{
	struct ckpt_step *tree = ckpt_staged_begin(s, "a tree");

	ck_ok(ckpt_sys.mkdir(tree->dirfd, "full", 0755));
	ck_ok(ckpt_sys.mkdir(tree->dirfd, "gone", 0755));
	close(ckpt_staged_put(tree, "first", "linked"));
	ck_ok(ckpt_sys.link(tree->dirfd, "first", tree->dirfd, "second"));
	ck_ok(ckpt_sys.link(tree->dirfd, "first", tree->dirfd, "third"));
	ck_ok(ckpt_sys.symlink("first", tree->dirfd, "symlink"));
	ck_ok(ckpt_commit(tree, &ckpt_staged_plain));
	return tree;
}

START_TEST(what_was_removed_is_in_no_reopened_step_and_what_is_left_is_one_file_as_before)
{
	struct ckpt_step *tree = commit_tree();
	struct ckpt_manifest *m;
	struct statx stx;

	ck_ok(ckpt_step_manifest(tree, &m));
	ck_ok(ckpt_remove_entry(tree, m, 0, "gone", true, 0));
	ck_ok(ckpt_remove_entry(tree, m, 0, "first", false, 0));
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ck_ok(ckpt_reopen(tree, &step));
	ck_assert_int_eq(faccessat(step->dirfd, "gone", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	ck_assert_int_eq(faccessat(step->dirfd, "first", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	ck_assert_uint_eq(look("second").stx_ino, look("third").stx_ino);
	ck_assert_uint_eq(look("second").stx_nlink, 2);
	holds("third", "linked");
	stx = look("full");
	ck_assert_uint_eq(ckpt_share_ino(step, "full", 7, &stx, false), number_in(tree, "full"));
	stx = look("second");
	ck_assert_uint_ne(ckpt_share_ino(step, "full", 7, &stx, true), number_in(tree, "full")); // a file has the name
	ckpt_step_unref(tree);
}
END_TEST

START_TEST(a_symlink_of_a_step_is_made_anew_in_another_place)
{
	struct ckpt_step *tree = commit_tree();
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	char target[16] = "";
	struct statx stx;
	uint32_t index;

	ck_ok(ckpt_step_manifest(tree, &m));
	ck_ok(ckpt_manifest_lookup(m, "symlink", &index));
	ckpt_manifest_entry(m, index, &e);
	ck_ok(ckpt_share_entry(tree, m, index, step->dirfd, "again"));
	ck_assert_int_eq(readlinkat(step->dirfd, "again", target, sizeof(target)), 5);
	ck_assert_str_eq(target, "first");
	stx = look("again");
	ck_assert_int_eq(stx.stx_mtime.tv_sec, e.mtime_s);
	ck_assert_uint_eq(stx.stx_mtime.tv_nsec, e.mtime_ns);
	ck_error(ckpt_share_entry(tree, m, index, step->dirfd, "again"), EEXIST);
	ckpt_manifest_unref(m);
	ckpt_step_unref(tree);
}
END_TEST

static char attributes_set[256];

static int note_attribute(int fd, const char *name, const void *value, size_t len, int flags)
{
	(void)fd;
	(void)value;
	(void)len;
	(void)flags;
	strcat(strcat(attributes_set, name), " ");
	return 0;
}

// A manifest is bytes from outside: it sets nothing that a client could not set.
START_TEST(of_the_attributes_in_a_manifest_only_a_clients_are_set)
{
	static const char *const names[] = {"user.a", CKPT_OWN_XATTRS "shared", "trusted.b", "user.c"};
	struct ckpt_entry top = {.type = CKPT_ENTRY_DIR,
				 .name = "",
				 .mode = 0755,
				 .uid = getuid(),
				 .gid = getgid(),
				 .nlink = 2,
				 .ino = 7};
	int (*const mark)(int fd, const char *name, const void *value, size_t len, int flags) = ckpt_hooks.fsetxattr;
	struct ckpt_manifest_writer *w;
	struct ckpt_manifest *m;
	uint32_t handle;
	size_t len;
	void *data;

	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(ckpt_manifest_writer_add(w, 0, &top, &handle));
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ck_ok(ckpt_manifest_writer_xattr(w, handle, names[i], "1", 1));
	ck_ok(ckpt_manifest_writer_finish(w, &data, &len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(data, len, &m));
	ckpt_hook_set(fsetxattr, note_attribute);
	ck_ok(ckpt_share_tree(base, m, step->dirfd));
	ckpt_hook_set(fsetxattr, mark);
	ck_assert_str_eq(attributes_set, "user.a user.c ");
	ckpt_manifest_unref(m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share");
	TCase *copy = tcase_create("copy"), *links = tcase_create("links"), *reopened = tcase_create("reopened");

	tcase_add_checked_fixture(copy, setup, teardown);
	tcase_add_loop_test(copy, a_shared_file_is_the_raw_file_until_it_has_a_copy, 0, 2);
	tcase_add_test(copy, a_copy_is_on_disk_before_it_has_the_name);
	tcase_add_test(copy, a_file_that_was_shared_stays_marked_with_one_name_left);
	tcase_add_loop_test(copy, what_has_the_name_meanwhile_keeps_it, 0, 2);
	tcase_add_loop_test(copy, what_has_the_name_since_the_last_moment_keeps_it, 0, 2);
	tcase_add_test(copy, a_disk_that_exchanges_nothing_will_do);
	tcase_add_test(copy, a_copy_that_fails_leaves_the_shared_file);
	suite_add_tcase(suite, copy);
	tcase_add_checked_fixture(links, setup, teardown);
	tcase_add_loop_test(links, where_no_link_can_be_had_there_is_a_copy, 0, 2);
	tcase_add_loop_test(links, a_raw_file_that_is_gone_or_changed_is_not_shared, 0, 2);
	tcase_add_test(links, each_name_of_a_shared_file_has_a_number_of_its_own);
	tcase_add_loop_test(links, a_whole_step_is_shared_with_all_that_belongs_to_it, 0, CKPT_SAVE_STEPS);
	suite_add_tcase(suite, links);
	tcase_add_checked_fixture(reopened, setup, teardown);
	tcase_add_test(reopened, what_is_no_file_has_no_copy_of_its_own);
	tcase_add_test(reopened, a_file_that_was_written_again_keeps_its_number_where_its_step_is_reopened);
	tcase_add_test(reopened, what_was_removed_is_in_no_reopened_step_and_what_is_left_is_one_file_as_before);
	tcase_add_test(reopened, a_symlink_of_a_step_is_made_anew_in_another_place);
	tcase_add_test(reopened, of_the_attributes_in_a_manifest_only_a_clients_are_set);
	suite_add_tcase(suite, reopened);
	return ckpt_suite_run(suite);
}
