// The error log: what people read of failures, in memory and in the file.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/step/errlog.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>

static int dirfd = -1;
static struct ckpt_errlog *errlog;

static void setup(void)
{
	dirfd = ckpt_temp_fd();
	ck_ok(ckpt_errlog_open(dirfd, true, &errlog));
}

static void teardown(void)
{
	ckpt_errlog_close(errlog);
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
	ck_ok(ckpt_errlog_open(dirfd, true, &errlog));
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
	ck_ok(ckpt_errlog_open(dirfd, false, &errlog));
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
		ck_ok(ckpt_errlog_open(dirfd, writable, &errlog)); // and does not hang
		if (!writable)
			ckpt_errlog_close(errlog);
	}
	ckpt_errlog_add(errlog, "1000", -EIO, NULL, "text");
	ck_ok(ckpt_errlog_text(errlog, &all));
	ck_assert_ptr_nonnull(strstr(all, "\t1000\tEIO\ttext\t\n"));
}
END_TEST

static Suite *errlog_suite(void)
{
	Suite *suite = suite_create("errlog");
	TCase *tcase = tcase_create("errlog");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_line_that_is_cut_ends_with_a_whole_character);
	tcase_add_test(tcase, a_line_that_fits_keeps_every_byte);
	tcase_add_test(tcase, a_line_of_the_file_shows_no_control_bytes);
	tcase_add_test(tcase, a_pipe_in_its_place_stops_nobody);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(errlog_suite());
}
