#include "tests/support/suite.h"

#include <fcntl.h>
#include <ftw.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define WALK_FDS 16

#ifdef __SANITIZE_THREAD__
// The sanitizer sleeps for a second at each exit, in case other threads still race. The crash loops exit thousands of times.
// Children of a test whose store has threads open stores of their own.
const char *__tsan_default_options(void);

const char *__tsan_default_options(void)
{
	return "atexit_sleep_ms=0:die_after_fork=0";
}

// libcrypto is not instrumented: the sanitizer does not see that its cleanup at exit comes after a finished thread's use.
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
	return "race:CRYPTO_THREAD_lock_free\n";
}
#endif

static char base[PATH_MAX]; // of this program, made by its parent process

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	if (ftw->level > 0)
		return type == FTW_DP ? rmdir(path) : unlink(path);
	return 0;
}

void ckpt_temp_empty(const char *path, int whole)
{
	nftw(path, remove_one, WALK_FDS, FTW_DEPTH | FTW_PHYS);
	if (whole)
		rmdir(path);
}

static int base_make(void)
{
	const char *top = getenv("CKPT_TEST_TMP");

	snprintf(base, sizeof(base), "%s/ckptfs-test-XXXXXX", top ? top : "/dev/shm");
	if (mkdtemp(base) && (top || setxattr(base, "user.test", "", 0, 0) == 0))
		return 0;
	// No tmpfs, or one from before Linux 6.6, which has no user xattrs.
	rmdir(base);
	snprintf(base, sizeof(base), "/tmp/ckptfs-test-XXXXXX");
	return mkdtemp(base) ? 0 : -1;
}

// By rm, which removes paths that are too long for a call, too: tests make such.
static void base_remove(void)
{
	pid_t pid = fork();

	if (!pid) {
		execlp("rm", "rm", "-rf", "--", base, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

void (*ckpt_suite_tell)(void);

void ckpt_suite_failing(void)
{
	if (ckpt_suite_tell)
		ckpt_suite_tell();
}

int ckpt_suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	if (base_make() < 0) {
		perror(base);
		srunner_free(runner);
		return EXIT_FAILURE;
	}
	setenv("CKPT_LOCK_ORDER", "abort", 0);
	// LMDB asks for 2 MiB of zeroes at each opening. From fresh pages, as at first, they cost nothing; from a heap that has
	// grown by then, they were a third of what the crash loops took.
	mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
	srunner_free(runner);
	base_remove();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

unsigned ckpt_suite_setting(const char *name, unsigned without)
{
	const char *text = getenv(name);

	return text ? (unsigned)atoi(text) : without;
}

bool ckpt_suite_full(void)
{
	return ckpt_suite_setting("CKPT_TEST_FULL", 0);
}

unsigned ckpt_suite_stride(unsigned usual)
{
	unsigned stride = ckpt_suite_setting("CKPT_CRASH_STRIDE", ckpt_suite_full() ? 1 : usual);

	return stride ? stride : 1;
}

unsigned ckpt_suite_first(unsigned usual, int i)
{
	return 1 + (unsigned)i % ckpt_suite_stride(usual);
}

bool ckpt_suite_tries(unsigned usual, uint64_t i, uint64_t point)
{
	return (point + i) % ckpt_suite_stride(usual) == 0;
}

unsigned ckpt_suite_seeds(unsigned usual, unsigned full)
{
	return ckpt_suite_setting("CKPT_CRASH_SEEDS", ckpt_suite_full() ? full : usual);
}

void ckpt_temp_dir(char *ret_path)
{
	int len = snprintf(ret_path, PATH_MAX, "%s/XXXXXX", base);

	ck_assert(len > 0 && len < PATH_MAX);
	ck_assert_msg(mkdtemp(ret_path) != NULL, "%s", ret_path);
}

int ckpt_temp_fd(void)
{
	char path[PATH_MAX];
	int fd;

	ckpt_temp_dir(path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}
