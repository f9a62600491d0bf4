// The lock of a store: who has it, and how long one waits for it. The clock is the test's.
#include "core/step/holder.h"
#include "tests/support/hooks.h"
#include "tests/support/save.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/store.h"
#include "core/step/store_file.h"
#include "core/store/open.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static char dir[PATH_MAX];
static struct ckpt_sys real;
static int64_t slept_ns, release_after_ns;
static int release_fd = -1; // closed once so much was slept
static int told;
static pid_t told_pid;

static int64_t fake_mono_ns(void)
{
	return real.mono_ns() + slept_ns;
}

static void fake_sleep_ns(int64_t ns)
{
	slept_ns += MAX(ns, (int64_t)250000000);
	if (release_fd >= 0 && slept_ns >= release_after_ns)
		close(TAKE_FD(release_fd));
	real.sleep_ns(1000000);
}

static void tell(pid_t pid)
{
	told++;
	told_pid = pid;
}

static void setup(void)
{
	ckpt_save_init(dir);
	real = ckpt_hooks;
	ckpt_hook_set(mono_ns, fake_mono_ns);
	ckpt_hook_set(sleep_ns, fake_sleep_ns);
	ckpt_holder_tell = tell;
	release_after_ns = INT64_MAX;
}

static void teardown(void)
{
	ckpt_hooks_restore(&real);
}

static void *until_told(void *end)
{
	char byte;

	(void)!read(*(int *)end, &byte, 1);
	_exit(0);
}

// A process that has the store mounted for all that the lock says, until release_fd is closed. leaves: its first thread has ended.
static pid_t hold(bool leaves, const char *boot_id)
{
	int ends[2], ready[2];
	char byte;
	pid_t pid;

	ck_ok(pipe2(ends, O_CLOEXEC));
	ck_ok(pipe2(ready, O_CLOEXEC));
	pid = fork();
	if (!pid) {
		struct ckpt_store *s;
		pthread_t thread;

		ckpt_hooks_restore(&real);
		close(ends[1]);
		ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s));
		if (boot_id)
			snprintf(s->boot_id, sizeof(s->boot_id), "%s", boot_id);
		ck_ok(ckpt_store_announce(s, "/mnt/point"));
		ck_ok(pthread_create(&thread, NULL, until_told, &ends[0]));
		(void)!write(ready[1], "x", 1);
		if (leaves)
			pthread_exit(NULL);
		pthread_join(thread, NULL);
	}
	close(ends[0]);
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	release_fd = ends[1];
	return pid;
}

static void end(pid_t pid)
{
	if (release_fd >= 0)
		close(TAKE_FD(release_fd));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static enum ckpt_holder_state state(void)
{
	struct ckpt_holder h;
	enum ckpt_holder_state is;

	ck_ok(ckpt_store_holder(dir, &h));
	is = h.state;
	ckpt_holder_done(&h);
	return is;
}

static void wait_for(enum ckpt_holder_state wanted)
{
	for (int i = 0; i < 5000 && state() != wanted; i++)
		usleep(1000);
	ck_assert_int_eq(state(), wanted);
}

START_TEST(a_holder_that_lives_is_not_waited_for)
{
	struct ckpt_store *s;
	pid_t pid = hold(false, NULL);

	ck_assert_int_eq(state(), CKPT_HOLDER_LIVES);
	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), EBUSY);
	ck_assert_int_eq(slept_ns, 0);
	ck_assert_int_eq(told, 0);
	end(pid);
}
END_TEST

// Its first thread is a zombie, another one has the lock, as of a daemon that was killed while it waits for the disk.
START_TEST(a_holder_that_ends_is_waited_for_without_limit)
{
	struct ckpt_store *s;
	pid_t pid = hold(true, NULL);

	wait_for(CKPT_HOLDER_ENDS);
	release_after_ns = INT64_C(60000000000);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s));
	ck_assert_int_ge(slept_ns, release_after_ns);
	ck_assert_int_eq(told, 1);
	ck_assert_int_eq(told_pid, pid);
	ckpt_store_close(s);
	end(pid);
}
END_TEST

START_TEST(a_signal_ends_the_wait)
{
	struct ckpt_store *s;
	pid_t pid = hold(true, NULL);
	sigset_t term;

	wait_for(CKPT_HOLDER_ENDS);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	raise(SIGTERM);
	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), EINTR);
	end(pid);
	sigtimedwait(&term, NULL, &(struct timespec){0});
}
END_TEST

// Its number is that of some other process here. The lock is real, though.
START_TEST(a_holder_of_another_boot_is_waited_for_two_seconds)
{
	struct ckpt_store *s;
	pid_t pid = hold(false, "00000000-0000-0000-0000-000000000000");

	ck_assert_int_eq(state(), CKPT_HOLDER_UNKNOWN);
	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), EBUSY);
	ck_assert_int_ge(slept_ns, INT64_C(1900000000));
	ck_assert_int_lt(slept_ns, INT64_C(4000000000));
	ck_assert_int_eq(told, 0);
	end(pid);
}
END_TEST

// What it wrote of itself stays, and its number may be anybody's by now.
START_TEST(the_file_of_a_holder_of_another_boot_stops_nobody)
{
	CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY);
	char host[65] = "", text[512];
	struct ckpt_store *s;

	gethostname(host, sizeof(host) - 1);
	snprintf(text, sizeof(text),
		 "{\"pid\":%d,\"host\":\"%s\",\"boot_id\":\"another\",\"mountpoint\":\"/mnt\",\"since_ns\":1}",
		 (int)getpid(), host);
	ck_ok(ckpt_store_file_write(fd, "holder.json", text));
	ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s));
	ck_assert_int_eq(slept_ns, 0);
	ckpt_store_close(s);
}
END_TEST

static Suite *holder_suite(void)
{
	Suite *suite = suite_create("holder");
	TCase *tcase = tcase_create("holder");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_holder_that_lives_is_not_waited_for);
	tcase_add_test(tcase, a_holder_that_ends_is_waited_for_without_limit);
	tcase_add_test(tcase, a_signal_ends_the_wait);
	tcase_add_test(tcase, a_holder_of_another_boot_is_waited_for_two_seconds);
	tcase_add_test(tcase, the_file_of_a_holder_of_another_boot_stops_nobody);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(holder_suite());
}
