// The error log: what people read of failures, in memory and in the file.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/jobs/jobs.h"
#include "core/step/errlog.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>

static int dirfd = -1;
static struct ckpt_jobs *jobs;
static struct ckpt_errlog *errlog;

static void setup(void)
{
	dirfd = ckpt_temp_fd();
	ck_ok(ckpt_jobs_new(&jobs));
	ck_ok(ckpt_errlog_open(dirfd, jobs, &errlog));
}

static void teardown(void)
{
	ckpt_errlog_close(errlog);
	ckpt_jobs_free(jobs);
	close(dirfd);
}

static bool is_utf8(const char *text)
{
	json_t *string = json_string(text); // refuses what is not

	json_decref(string);
	return string;
}

// Characters of 2, 3 and 4 bytes, at every offset to the place where the text is cut.
START_TEST(a_line_that_is_cut_ends_with_a_whole_character)
{
	static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};

	for (size_t i = 0; i < ARRAY_LEN(characters); i++) {
		for (int shift = 0; shift < 4; shift++) {
			char text[3000] = "", hint[3000] = "";
			CLEANUP_FREE char *all = NULL;

			memset(text, 'x', (size_t)shift);
			memset(hint, 'x', (size_t)shift);
			for (int n = 0; n < 600; n++) {
				strcat(text, characters[i]);
				strcat(hint, characters[i]);
			}
			ckpt_errlog_add(errlog, "1000", -EIO, NULL, "%s", text); // the text is cut
			ckpt_errlog_add(errlog, "1000", -EIO, hint, "text");     // the line may be
			ckpt_errlog_add(errlog, "1000", -EIO, hint, "%s", text);
			ck_ok(ckpt_errlog_text(errlog, &all));
			ck_assert(is_utf8(all));
			ck_assert(strlen(all) > 1000);
		}
	}
	ckpt_errlog_close(errlog);
	ck_ok(ckpt_errlog_open(dirfd, jobs, &errlog));
	CLEANUP_FREE char *read = NULL;
	ck_ok(ckpt_errlog_text(errlog, &read));
	ck_assert(is_utf8(read));
}
END_TEST

START_TEST(a_line_that_fits_keeps_every_byte)
{
	CLEANUP_FREE char *all = NULL;

	ckpt_errlog_add(errlog, "\xc3\xa9", -EBUSY, "mend \xe2\x82\xac", "caf\xc3\xa9");
	ckpt_errlog_add(errlog, "1", 0, NULL, "\xf0\x9f\x98\x80");
	ck_ok(ckpt_errlog_text(errlog, &all));
	ck_assert_ptr_nonnull(strstr(all, "\t\xc3\xa9\tEBUSY\tcaf\xc3\xa9\tmend \xe2\x82\xac\n"));
	ck_assert_ptr_nonnull(strstr(all, "\t1\tnote\t\xf0\x9f\x98\x80\t\n"));
}
END_TEST

// Whoever could write the store could write the file.
START_TEST(a_line_of_the_file_shows_no_control_bytes)
{
	static const char line[] = "2024-01-01T00:00:00Z\t1000\tEIO\t\x1b[2Jw\xff\x7f\tdo\nlast";
	int fd = openat(dirfd, "errors", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CLEANUP_FREE char *all = NULL;

	ck_assert_int_eq(write(fd, line, strlen(line)), (ssize_t)strlen(line));
	close(fd);
	ckpt_errlog_close(errlog);
	ck_ok(ckpt_errlog_open(dirfd, NULL, &errlog));
	ck_ok(ckpt_errlog_text(errlog, &all));
	ck_assert_str_eq(all, "2024-01-01T00:00:00Z\t1000\tEIO\t?[2Jw\xef\xbf\xbd?\tdo\nlast\n");
}
END_TEST

START_TEST(a_pipe_in_its_place_stops_nobody)
{
	CLEANUP_FREE char *all = NULL;

	ckpt_errlog_close(errlog);
	unlinkat(dirfd, "errors", 0);
	ck_assert_int_eq(mkfifoat(dirfd, "errors", 0600), 0);
	for (int writable = 0; writable < 2; writable++) {
		ck_ok(ckpt_errlog_open(dirfd, writable ? jobs : NULL, &errlog)); // and does not hang
		if (!writable)
			ckpt_errlog_close(errlog);
	}
	ckpt_errlog_add(errlog, "1000", -EIO, NULL, "text");
	ck_ok(ckpt_errlog_text(errlog, &all));
	ck_assert_ptr_nonnull(strstr(all, "\t1000\tEIO\ttext\t\n"));
}
END_TEST

static bool file_has(const char *text)
{
	CLEANUP_FREE char *read = NULL;
	struct ckpt_errlog *beside;
	bool has;

	ck_ok(ckpt_errlog_open(dirfd, NULL, &beside));
	ck_ok(ckpt_errlog_text(beside, &read));
	has = strstr(read, text);
	ckpt_errlog_close(beside);
	return has;
}

// The disk may hang whose failure is told: lines are there to read before the file has them, and the end writes what is left.
START_TEST(lines_are_told_before_the_file_has_them)
{
	CLEANUP_FREE char *all = NULL;

	ckpt_jobs_by_hand(jobs);
	ckpt_errlog_add(errlog, "1", -EIO, NULL, "first");
	ckpt_errlog_add(errlog, "2", -EIO, NULL, "second");
	ck_ok(ckpt_errlog_text(errlog, &all));
	ck_assert(strstr(all, "first") && strstr(all, "second"));
	ck_assert(!file_has("first"));
	ck_assert_pstr_eq(ckpt_jobs_run_next(jobs, NULL), "errors");
	ck_assert(file_has("first") && file_has("second"));
	ckpt_errlog_add(errlog, "3", -EIO, NULL, "third");
	ck_assert(!file_has("third"));
	ckpt_errlog_close(TAKE_PTR(errlog));
	ck_assert(file_has("third"));
}
END_TEST

static Suite *errlog_suite(void)
{
	Suite *suite = suite_create("errlog");
	TCase *tcase = tcase_create("errlog");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_line_that_is_cut_ends_with_a_whole_character);
	tcase_add_test(tcase, a_line_that_fits_keeps_every_byte);
	tcase_add_test(tcase, lines_are_told_before_the_file_has_them);
	tcase_add_test(tcase, a_line_of_the_file_shows_no_control_bytes);
	tcase_add_test(tcase, a_pipe_in_its_place_stops_nobody);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(errlog_suite());
}
