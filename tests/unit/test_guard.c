// core/base/guard.h: what becomes of the child never is our end, and what it has of ours is nothing.
#include "tests/support/suite.h"

#include "core/base/guard.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <signal.h>

static int answer(void *arg)
{
	return *(int *)arg;
}

static int die(void *arg)
{
	return raise(*(int *)arg);
}

static int hang(void *arg __attribute__((unused)))
{
	return pause();
}

// 0: the descriptor is not open here.
static int has(void *arg)
{
	return fcntl(*(int *)arg, F_GETFD) >= 0 ? -EEXIST : errno == EBADF ? 0 : -errno;
}

START_TEST(what_the_child_returns_is_the_answer)
{
	int values[] = {0, -EIO, -EBADMSG};

	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		ck_assert_int_eq(ckpt_guard_run(answer, &values[i], 10), values[i]);
}
END_TEST

START_TEST(a_child_that_dies_or_hangs_has_found_damage)
{
	int signals[] = {SIGBUS, SIGSEGV, SIGABRT, SIGKILL};

	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		ck_error(ckpt_guard_run(die, &signals[i], 10), EBADMSG);
	ck_error(ckpt_guard_run(hang, NULL, 1), EBADMSG);
}
END_TEST

// Else it would keep our locks when we are killed.
START_TEST(the_child_has_none_of_our_descriptors)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_gt(fd, STDERR_FILENO);
	ck_ok(ckpt_guard_run(has, &fd, 10));
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	close(fd);
}
END_TEST

static Suite *guard_suite(void)
{
	Suite *suite = suite_create("guard");
	TCase *tcase = tcase_create("guard");

	tcase_add_test(tcase, what_the_child_returns_is_the_answer);
	tcase_add_test(tcase, a_child_that_dies_or_hangs_has_found_damage);
	tcase_add_test(tcase, the_child_has_none_of_our_descriptors);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(guard_suite());
}
