// The power-loss disk itself: it loses what it may lose, and nothing else.
#include "tests/support/disk.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#define SEEDS 200

struct stand {
	char dir[PATH_MAX], out[PATH_MAX];
	int fd;
	struct ckpt_disk *disk;
};

static void stand_open(struct stand *s)
{
	ckpt_temp_dir(s->dir);
	ckpt_temp_dir(s->out);
	s->fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(s->fd, 0);
}

static void stand_begin(struct stand *s)
{
	ck_ok(ckpt_disk_begin(s->dir, &s->disk));
}

static void stand_close(struct stand *s)
{
	ckpt_disk_end(s->disk);
	ckpt_disk_free(s->disk);
	close(s->fd);
}

// Makes a file by ckpt_sys; sync: its data.
static void file_make(struct stand *s, const char *path, const char *text, bool sync)
{
	CLEANUP_FD int fd = ckpt_sys.open(s->fd, path, O_RDWR | O_CREAT | O_TRUNC, 0644);

	ck_ok(fd);
	ck_assert_int_eq(ckpt_sys.pwrite(fd, text, strlen(text), 0), (int)strlen(text));
	if (sync)
		ck_ok(ckpt_sys.fsync(fd));
}

static void dir_sync(struct stand *s, const char *path)
{
	CLEANUP_FD int fd = ckpt_sys.open(s->fd, path, O_RDONLY | O_DIRECTORY, 0);

	ck_ok(fd);
	ck_ok(ckpt_sys.fsync(fd));
}

// What a file has in the state that was built: its text, or "-" when it is not there.
static const char *state_text(struct stand *s, const char *name)
{
	static char text[4096];
	char path[2 * PATH_MAX];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "%s/%s", s->out, name);
	f = fopen(path, "r");
	if (!f)
		return "-";
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

// How many of the states after everything that was done so far give the file this text. Each state is one seed's.
static int states_with(struct stand *s, const char *name, const char *text)
{
	int found = 0;

	for (unsigned seed = 0; seed < SEEDS; seed++) {
		ck_ok(ckpt_disk_crash(s->disk, ckpt_disk_count(s->disk), seed, s->out));
		found += strcmp(state_text(s, name), text) == 0;
		ckpt_temp_empty(s->out, false);
	}
	return found;
}

#define assert_always(s, name, text) ck_assert_int_eq(states_with(s, name, text), SEEDS)
#define assert_never(s, name, text) ck_assert_int_eq(states_with(s, name, text), 0)
#define assert_sometimes(s, name, text)                                                                                \
	do {                                                                                                           \
		int sometimes_n = states_with(s, name, text);                                                          \
		ck_assert_int_gt(sometimes_n, 0);                                                                      \
		ck_assert_int_lt(sometimes_n, SEEDS);                                                                  \
	} while (0)

#define STAND(s)                                                                                                       \
	CLEANUP(stand_close) struct stand s;                                                                           \
	stand_open(&s);                                                                                                \
	stand_begin(&s)

START_TEST(an_unsynced_file_may_be_absent_empty_whole_or_torn)
{
	STAND(s);
	char text[513];

	memset(text, 'x', 512);
	text[512] = '\0';
	file_make(&s, "f", text, false);
	assert_sometimes(&s, "f", "-");
	assert_sometimes(&s, "f", "");
	assert_sometimes(&s, "f", text);
	dir_sync(&s, ".");
	assert_never(&s, "f", "-");
	assert_sometimes(&s, "f", "");
	assert_sometimes(&s, "f", text);
	ck_assert_int_lt(states_with(&s, "f", "") + states_with(&s, "f", text), SEEDS);
}
END_TEST

START_TEST(fsync_of_a_file_keeps_its_bytes_but_not_its_name)
{
	STAND(s);
	file_make(&s, "f", "bytes", true);
	assert_sometimes(&s, "f", "-");
	assert_sometimes(&s, "f", "bytes");
	assert_never(&s, "f", "");
	dir_sync(&s, ".");
	assert_always(&s, "f", "bytes");
}
END_TEST

START_TEST(syncfs_keeps_everything)
{
	STAND(s);
	ck_ok(ckpt_sys.mkdir(s.fd, "d", 0755));
	file_make(&s, "d/f", "bytes", false);
	assert_sometimes(&s, "d/f", "-");
	ck_ok(ckpt_sys.syncfs(s.fd));
	assert_always(&s, "d/f", "bytes");
}
END_TEST

START_TEST(what_was_there_at_the_start_stays)
{
	CLEANUP(stand_close) struct stand s;
	CLEANUP_FD int fd = -1;

	stand_open(&s);
	ck_ok(mkdirat(s.fd, "d", 0755));
	fd = openat(s.fd, "d/f", O_WRONLY | O_CREAT, 0644);
	ck_assert_int_eq(write(fd, "old", 3), 3);
	ck_ok(symlinkat("d/f", s.fd, "l"));
	ck_ok(linkat(s.fd, "d/f", s.fd, "hard", 0));
	stand_begin(&s);
	assert_always(&s, "d/f", "old");
	assert_always(&s, "l", "old");
	assert_always(&s, "hard", "old");
	file_make(&s, "d/f", "newer", false);
	assert_sometimes(&s, "d/f", "old");
	assert_sometimes(&s, "d/f", "newer");
	assert_sometimes(&s, "d/f", "");
}
END_TEST

START_TEST(a_rename_is_seen_or_not_and_durable_with_its_target)
{
	STAND(s);
	ck_ok(ckpt_sys.mkdir(s.fd, "a", 0755));
	ck_ok(ckpt_sys.mkdir(s.fd, "b", 0755));
	file_make(&s, "a/f", "bytes", true);
	ck_ok(ckpt_sys.syncfs(s.fd));
	ck_ok(ckpt_sys.rename(s.fd, "a/f", s.fd, "b/f", 0));
	for (unsigned seed = 0; seed < SEEDS; seed++) {
		bool old, new;

		ck_ok(ckpt_disk_crash(s.disk, ckpt_disk_count(s.disk), seed, s.out));
		old = strcmp(state_text(&s, "a/f"), "bytes") == 0;
		new = strcmp(state_text(&s, "b/f"), "bytes") == 0;
		ck_assert(old != new);
		ckpt_temp_empty(s.out, false);
	}
	assert_sometimes(&s, "a/f", "bytes");
	assert_sometimes(&s, "b/f", "bytes");
	dir_sync(&s, "a");
	assert_sometimes(&s, "b/f", "bytes"); // the source's directory does not do
	dir_sync(&s, "b");
	assert_always(&s, "b/f", "bytes");
	assert_always(&s, "a/f", "-");
}
END_TEST

START_TEST(a_rename_over_a_file_never_loses_both)
{
	STAND(s);
	file_make(&s, "f", "old", true);
	dir_sync(&s, ".");
	file_make(&s, "t", "new", true);
	ck_ok(ckpt_sys.rename(s.fd, "t", s.fd, "f", 0));
	ck_assert_int_eq(states_with(&s, "f", "old") + states_with(&s, "f", "new"), SEEDS);
	assert_sometimes(&s, "f", "old");
	assert_sometimes(&s, "f", "new");
}
END_TEST

START_TEST(a_rename_over_a_file_whose_bytes_are_not_synced_may_leave_it_empty)
{
	STAND(s);
	file_make(&s, "f", "old", true);
	dir_sync(&s, ".");
	file_make(&s, "t", "new", false);
	ck_ok(ckpt_sys.rename(s.fd, "t", s.fd, "f", 0));
	dir_sync(&s, ".");
	assert_sometimes(&s, "f", "");
	assert_sometimes(&s, "f", "new");
	assert_never(&s, "f", "old");
}
END_TEST

START_TEST(a_folder_renamed_into_place_may_be_empty_unless_it_was_synced)
{
	STAND(s);
	ck_ok(ckpt_sys.mkdir(s.fd, "t", 0755));
	file_make(&s, "t/1", "bytes", true);
	ck_ok(ckpt_sys.rename(s.fd, "t", s.fd, "d", RENAME_NOREPLACE));
	dir_sync(&s, ".");
	assert_sometimes(&s, "d/1", "-");
	assert_sometimes(&s, "d/1", "bytes");
	dir_sync(&s, "d");
	assert_always(&s, "d/1", "bytes");
}
END_TEST

START_TEST(an_unlink_is_seen_in_order_and_durable_with_its_directory)
{
	STAND(s);
	file_make(&s, "f", "one", true);
	dir_sync(&s, ".");
	ck_ok(ckpt_sys.unlink(s.fd, "f", 0));
	assert_sometimes(&s, "f", "one");
	assert_sometimes(&s, "f", "-");
	file_make(&s, "f", "two", true);
	assert_sometimes(&s, "f", "one");
	assert_sometimes(&s, "f", "two");
	dir_sync(&s, ".");
	assert_always(&s, "f", "two");
}
END_TEST

START_TEST(a_directory_goes_only_after_what_was_in_it)
{
	STAND(s);
	ck_ok(ckpt_sys.mkdir(s.fd, "d", 0755));
	file_make(&s, "d/f", "bytes", true);
	ck_ok(ckpt_sys.syncfs(s.fd));
	ck_ok(ckpt_sys.rename(s.fd, "d/f", s.fd, "f", 0));
	ck_ok(ckpt_sys.unlink(s.fd, "d", AT_REMOVEDIR));
	// The rmdir on the disk without the rename would lose the file.
	ck_assert_int_eq(states_with(&s, "f", "bytes") + states_with(&s, "d/f", "bytes"), SEEDS);
	assert_sometimes(&s, "d/f", "bytes");
}
END_TEST

START_TEST(links_are_names_of_one_file)
{
	STAND(s);
	struct stat a, b;
	char path[2 * PATH_MAX];

	file_make(&s, "a", "bytes", true);
	ck_ok(ckpt_sys.link(s.fd, "a", s.fd, "b"));
	assert_sometimes(&s, "b", "bytes");
	dir_sync(&s, ".");
	assert_always(&s, "b", "bytes");
	ck_ok(ckpt_disk_crash(s.disk, ckpt_disk_count(s.disk), CKPT_DISK_MOST, s.out));
	snprintf(path, sizeof(path), "%s/a", s.out);
	ck_ok(stat(path, &a));
	snprintf(path, sizeof(path), "%s/b", s.out);
	ck_ok(stat(path, &b));
	ck_assert_uint_eq(a.st_ino, b.st_ino);
}
END_TEST

START_TEST(fdatasync_keeps_bytes_and_size_fsync_xattrs_too)
{
	STAND(s);
	CLEANUP_FD int fd = ckpt_sys.open(s.fd, "f", O_RDWR | O_CREAT, 0644);
	char path[2 * PATH_MAX];
	int with = 0;

	dir_sync(&s, ".");
	ck_assert_int_eq(ckpt_sys.pwrite(fd, "bytes", 5, 0), 5);
	ck_ok(ckpt_sys.fsetxattr(fd, "user.a", "v", 1, 0));
	ck_ok(ckpt_sys.fdatasync(fd));
	snprintf(path, sizeof(path), "%s/f", s.out);
	for (int round = 0; round < 2; round++) {
		with = 0;
		for (unsigned seed = 0; seed < SEEDS; seed++) {
			ck_ok(ckpt_disk_crash(s.disk, ckpt_disk_count(s.disk), seed, s.out));
			ck_assert_str_eq(state_text(&s, "f"), "bytes");
			with += getxattr(path, "user.a", NULL, 0) == 1;
			ckpt_temp_empty(s.out, false);
		}
		if (round == 0)
			ck_assert(with > 0 && with < SEEDS);
		ck_ok(ckpt_sys.fsync(fd));
	}
	ck_assert_int_eq(with, SEEDS);
}
END_TEST

START_TEST(truncation_is_pending_too)
{
	STAND(s);
	CLEANUP_FD int fd = -1;

	file_make(&s, "f", "0123456789", true);
	dir_sync(&s, ".");
	fd = ckpt_sys.open(s.fd, "f", O_WRONLY, 0);
	ck_ok(ckpt_sys.ftruncate(fd, 4));
	assert_sometimes(&s, "f", "0123456789");
	assert_sometimes(&s, "f", "0123");
	ck_ok(ckpt_sys.fsync(fd));
	assert_always(&s, "f", "0123");
}
END_TEST

START_TEST(a_clone_is_a_write)
{
	STAND(s);
	CLEANUP_FD int from = -1, to = -1;

	file_make(&s, "a", "bytes", true);
	from = ckpt_sys.open(s.fd, "a", O_RDONLY, 0);
	to = ckpt_sys.open(s.fd, "b", O_WRONLY | O_CREAT | O_EXCL, 0644);
	ck_ok(ckpt_sys.clone(from, to));
	dir_sync(&s, ".");
	assert_sometimes(&s, "b", "bytes");
	assert_sometimes(&s, "b", "");
	ck_ok(ckpt_sys.fsync(to));
	assert_always(&s, "b", "bytes");
}
END_TEST

START_TEST(a_copied_range_is_a_write)
{
	STAND(s);
	CLEANUP_FD int from = -1, to = -1;

	file_make(&s, "a", "0123456789", true);
	file_make(&s, "b", "abcdef", true);
	dir_sync(&s, ".");
	from = ckpt_sys.open(s.fd, "a", O_RDONLY, 0);
	to = ckpt_sys.open(s.fd, "b", O_WRONLY, 0);
	ck_ok(ckpt_sys.copy_range(from, 5, to, 2, 3));
	assert_sometimes(&s, "b", "ab567f");
	assert_sometimes(&s, "b", "abcdef");
	ck_ok(ckpt_sys.fsync(to));
	assert_always(&s, "b", "ab567f");
}
END_TEST

START_TEST(every_point_and_the_seeds_for_least_and_most_are_exact)
{
	STAND(s);
	size_t made, synced;

	file_make(&s, "f", "bytes", true);
	made = ckpt_disk_count(s.disk);
	dir_sync(&s, ".");
	synced = ckpt_disk_count(s.disk);
	ck_ok(ckpt_sys.unlink(s.fd, "f", 0));
	for (size_t point = 0; point <= ckpt_disk_count(s.disk); point++) {
		ck_ok(ckpt_disk_crash(s.disk, point, CKPT_DISK_LEAST, s.out));
		ck_assert_str_eq(state_text(&s, "f"), point >= synced ? "bytes" : "-");
		ckpt_temp_empty(s.out, false);
		ck_ok(ckpt_disk_crash(s.disk, point, CKPT_DISK_MOST, s.out));
		if (point >= made)
			ck_assert_str_eq(state_text(&s, "f"), point > synced ? "-" : "bytes");
		ckpt_temp_empty(s.out, false);
	}
}
END_TEST

START_TEST(a_stopped_disk_changes_nothing_more)
{
	STAND(s);
	size_t point;

	file_make(&s, "f", "bytes", true);
	point = ckpt_disk_count(s.disk);
	ckpt_disk_stop(s.disk, point);
	ck_error(ckpt_sys.unlink(s.fd, "f", 0), EIO);
	ck_error(ckpt_sys.fsync(s.fd), EIO);
	ck_error(ckpt_sys.mkdir(s.fd, "d", 0755), EIO);
	ck_error(ckpt_sys.open(s.fd, "g", O_CREAT | O_WRONLY, 0644), EIO);
	ck_error(ckpt_sys.rename(s.fd, "f", s.fd, "g", 0), EIO);
	ck_assert_uint_eq(ckpt_disk_count(s.disk), point);
}
END_TEST

START_TEST(changes_of_things_made_behind_it_are_counted)
{
	STAND(s);
	CLEANUP_FD int fd = openat(s.fd, "behind", O_WRONLY | O_CREAT, 0644);

	ck_assert_uint_eq(ckpt_disk_unknown(s.disk), 0);
	ck_assert_int_eq(ckpt_sys.pwrite(fd, "x", 1, 0), 1);
	ck_assert_uint_eq(ckpt_disk_unknown(s.disk), 1);
	ck_ok(ckpt_sys.rename(s.fd, "behind", s.fd, "seen", 0));
	ck_ok(ckpt_sys.syncfs(s.fd));
	assert_always(&s, "seen", "x");
}
END_TEST

static Suite *disk_suite(void)
{
	Suite *suite = suite_create("disk");
	TCase *tcase = tcase_create("model");

	tcase_add_test(tcase, an_unsynced_file_may_be_absent_empty_whole_or_torn);
	tcase_add_test(tcase, fsync_of_a_file_keeps_its_bytes_but_not_its_name);
	tcase_add_test(tcase, syncfs_keeps_everything);
	tcase_add_test(tcase, what_was_there_at_the_start_stays);
	tcase_add_test(tcase, a_rename_is_seen_or_not_and_durable_with_its_target);
	tcase_add_test(tcase, a_rename_over_a_file_never_loses_both);
	tcase_add_test(tcase, a_rename_over_a_file_whose_bytes_are_not_synced_may_leave_it_empty);
	tcase_add_test(tcase, a_folder_renamed_into_place_may_be_empty_unless_it_was_synced);
	tcase_add_test(tcase, an_unlink_is_seen_in_order_and_durable_with_its_directory);
	tcase_add_test(tcase, a_directory_goes_only_after_what_was_in_it);
	tcase_add_test(tcase, links_are_names_of_one_file);
	tcase_add_test(tcase, fdatasync_keeps_bytes_and_size_fsync_xattrs_too);
	tcase_add_test(tcase, truncation_is_pending_too);
	tcase_add_test(tcase, a_clone_is_a_write);
	tcase_add_test(tcase, a_copied_range_is_a_write);
	tcase_add_test(tcase, every_point_and_the_seeds_for_least_and_most_are_exact);
	tcase_add_test(tcase, a_stopped_disk_changes_nothing_more);
	tcase_add_test(tcase, changes_of_things_made_behind_it_are_counted);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(disk_suite());
}
