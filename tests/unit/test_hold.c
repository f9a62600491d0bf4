// A store that the threads of a process share while they are at work in it, and what forks.
#include "core/step/holder.h"
#include "tests/support/save.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/request/hold.h"
#include "core/step/store.h"
#include "core/store/open.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define TIMES 20

static char dir[PATH_MAX];

static void setup(void)
{
	ckpt_save_init(dir);
}

START_TEST(whoever_holds_it_has_the_same_and_the_last_one_closes_it)
{
	struct ckpt_store *first, *second, *own;
	char none[PATH_MAX + 8];

	snprintf(none, sizeof(none), "%s/none", dir);
	ck_ok(ckpt_hold(dir, &first));
	ck_ok(ckpt_hold(dir, &second));
	ck_assert_ptr_eq(first, second);
	ckpt_let_go(first);
	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &own), EBUSY);
	ckpt_let_go(second);
	ckpt_store_close(ckpt_save_open(dir));
	ckpt_let_go(NULL);
	ck_error(ckpt_hold(none, &first), ENOENT);
}
END_TEST

static void *hold_often(void *arg)
{
	for (int i = 0; i < TIMES; i++) {
		struct ckpt_store *s;

		ck_ok(ckpt_hold(dir, &s));
		ck_assert(s->writable);
		ckpt_let_go(s);
	}
	return arg;
}

START_TEST(threads_come_and_go)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, hold_often, NULL));
	for (int i = 0; i < THREADS; i++)
		ck_assert(!pthread_join(threads[i], NULL));
	ckpt_store_close(ckpt_save_open(dir));
}
END_TEST

static pid_t child_that_waits(void)
{
	pid_t pid = fork();

	if (!pid) {
		pause();
		_exit(0);
	}
	return pid;
}

// A data loader's worker, which lives on.
START_TEST(a_child_of_the_program_keeps_nobody_out)
{
	struct ckpt_store *s;
	pid_t pid;

	ck_ok(ckpt_hold(dir, &s));
	pid = child_that_waits();
	ckpt_let_go(s);
	ckpt_store_close(ckpt_save_open(dir));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(a_child_has_nothing_of_its_parents)
{
	struct ckpt_store *s, *again;
	int status;
	pid_t pid;

	ck_ok(ckpt_hold(dir, &s));
	pid = fork();
	if (!pid) {
		if (ckpt_hold(dir, &again) != -EBUSY)
			_exit(1);
		ckpt_let_go(s); // as a destructor might
		_exit(ckpt_store_holder(dir, NULL) ? 2 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ckpt_step_unref(ckpt_save_one(s, 0)); // it is as it was
	ckpt_let_go(s);
	ckpt_store_close(ckpt_save_open(dir));
}
END_TEST

START_TEST(signals_are_as_they_were)
{
	struct ckpt_store *s;
	sigset_t before, after;

	sigemptyset(&before);
	sigaddset(&before, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	ck_ok(ckpt_hold(dir, &s));
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	ck_assert(sigismember(&after, SIGUSR2) && !sigismember(&after, SIGUSR1));
	ckpt_let_go(s);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	ck_assert(sigismember(&after, SIGUSR2) && !sigismember(&after, SIGTERM));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hold");
	TCase *tcase = tcase_create("hold");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, whoever_holds_it_has_the_same_and_the_last_one_closes_it);
	tcase_add_test(tcase, threads_come_and_go);
	tcase_add_test(tcase, a_child_of_the_program_keeps_nobody_out);
	tcase_add_test(tcase, a_child_has_nothing_of_its_parents);
	tcase_add_test(tcase, signals_are_as_they_were);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
