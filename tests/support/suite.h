// What every C test program starts with: one Check suite, and directories that are gone when it ends.
//
// main() is `return ckpt_suite_run(suite())`. Check forks each test, so a test may leave threads, descriptors and files
// behind; directories from ckpt_temp_dir() are removed by the parent, after crashes of tests too.
#pragma once

#include <check.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

// The exit status: 0 when all tests passed. Frees the suite.
int ckpt_suite_run(Suite *suite);

// A new empty directory ($CKPT_TEST_TMP, else tmpfs where there is one); ret_path has PATH_MAX bytes. Ends the test on failure.
void ckpt_temp_dir(char *ret_path);
// A descriptor of a new empty directory, O_RDONLY.
int ckpt_temp_fd(void);
// Removes what is in the directory, and with whole the directory.
void ckpt_temp_empty(const char *path, int whole);

// With CKPT_TEST_FULL=1: the long loops are wanted.
bool ckpt_suite_full(void);
// The number in this environment variable, or this one.
unsigned ckpt_suite_setting(const char *name, unsigned without);
// A loop over calls or points tries each so-many-th: each with CKPT_TEST_FULL=1, or as CKPT_CRASH_STRIDE says. Which ones, a number
// chooses: with the next number they are the next ones, so that what tries the same calls in several ways leaves out none of them.
unsigned ckpt_suite_stride(unsigned usual);
unsigned ckpt_suite_first(unsigned usual, int i);                  // where it begins, from 1
bool ckpt_suite_tries(unsigned usual, uint64_t i, uint64_t point); // whether this is one of them
// How many seeds a loop over power cuts tries at each point: CKPT_CRASH_SEEDS, or one of these.
unsigned ckpt_suite_seeds(unsigned usual, unsigned full);

// What else there is to tell of a test that fails, called before Check ends it, by _exit(): no atexit() handler would run.
extern void (*ckpt_suite_tell)(void);
void ckpt_suite_failing(void);
#define _ck_assert_failed(...) (ckpt_suite_failing(), _ck_assert_failed(__VA_ARGS__))

// Check writes the place of each assertion into a file, for who crashes after it. In here they are made a million times by
// the crash loops: after a crash the last place is where the test called us.
#ifdef CKPT_TEST_SUPPORT
#define _mark_point(file, line) ((void)0)
#endif

// The calls that a test makes to set things up must succeed: 0 or more, or a count, not -errno.
#define ck_ok(expr)                                                                                                    \
	do {                                                                                                           \
		long ck_ok_r = (long)(expr);                                                                           \
		ck_assert_msg(ck_ok_r >= 0, "%s: %s", #expr, strerror((int)-ck_ok_r));                                 \
	} while (0)
#define ck_error(expr, error)                                                                                          \
	do {                                                                                                           \
		long ck_error_r = (long)(expr);                                                                        \
		ck_assert_msg(ck_error_r == -(error), "%s: %ld (%s), not %s", #expr, ck_error_r,                       \
			      strerror((int)(ck_error_r < 0 ? -ck_error_r : 0)), strerror(error));                     \
	} while (0)
