// core/base/lock.h: who takes locks in a wrong order is told which and where, and aborts in a test. This is so here in any build.
#undef CKPT_LOCK_ORDER
#define CKPT_LOCK_ORDER 1
#include "tests/support/hooks.h"
#include "tests/support/suite.h"

#include "core/base/lock.h"

#include <stdio.h>
#include <sys/wait.h>

static struct ckpt_lock acts = CKPT_LOCK_INIT(CKPT_LOCK_ACTS), store = CKPT_LOCK_INIT(CKPT_LOCK_STORE),
			leaf = CKPT_LOCK_INIT(CKPT_LOCK_LEAF);
static struct ckpt_lock steps[] = {CKPT_LOCK_INIT(CKPT_LOCK_STEP), CKPT_LOCK_INIT(CKPT_LOCK_STEP)};
static struct ckpt_rwlock names = CKPT_RWLOCK_INIT(CKPT_LOCK_NAMES);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void wait_with(struct ckpt_lock *l)
{
	ck_assert_int_eq(ckpt_lock_wait_ns(&changed, l, 1), ETIMEDOUT);
}

START_TEST(locks_are_taken_from_outer_to_inner_and_dropped_in_any_order)
{
	for (int i = 0; i < 2; i++) {
		ckpt_lock_take(&acts);
		ckpt_rwlock_read(&names);
		ckpt_lock_take(&store);
		ckpt_lock_drop(&acts);
		ckpt_lock_take_both(&steps[1], &steps[0]);
		ckpt_rwlock_drop(&names);
		ckpt_lock_drop(&store);
		ckpt_lock_drop(&steps[0]);
		ckpt_lock_drop(&steps[1]);
		ckpt_rwlock_write(&names);
		ckpt_lock_take(&leaf);
		ckpt_lock_drop(&leaf);
		ckpt_rwlock_drop(&names);
	}
}
END_TEST

START_TEST(who_waits_may_hold_the_lock_of_a_whole_act)
{
	LOCK_SCOPE(&acts);
	LOCK_SCOPE(&store);
	wait_with(&store);
	wait_with(&store);
}
END_TEST

static void *hold_acts(void *arg)
{
	pthread_barrier_t *both = arg;

	ckpt_lock_take(&acts);
	pthread_barrier_wait(both);
	pthread_barrier_wait(both);
	ckpt_lock_drop(&acts);
	return NULL;
}

START_TEST(who_tries_has_it_or_not)
{
	pthread_barrier_t both;
	pthread_t thread;

	pthread_barrier_init(&both, NULL, 2);
	ck_assert(!pthread_create(&thread, NULL, hold_acts, &both));
	pthread_barrier_wait(&both);
	ck_assert(!ckpt_lock_try_ns(&acts, 0));
	ck_assert(!ckpt_lock_try_ns(&acts, 10000000));
	ckpt_lock_take(&store); // nothing is held
	ckpt_lock_drop(&store);
	pthread_barrier_wait(&both);
	ck_assert(ckpt_lock_try_ns(&acts, INT64_C(30000000000)));
	ckpt_lock_take(&store);
	ckpt_lock_drop(&store);
	ckpt_lock_drop(&acts);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&both);
}
END_TEST

// --- What must not be -------------------------------------------------------------------------------------------------

static void outer_under_inner(void)
{
	LOCK_SCOPE(&steps[0]);
	LOCK_SCOPE(&store);
}

static void outer_tried_under_inner(void)
{
	LOCK_SCOPE(&steps[0]);
	if (ckpt_lock_try_ns(&store, 0))
		ckpt_lock_drop(&store);
}

static void outer_under_a_lock_that_was_not_the_last(void)
{
	ckpt_lock_take(&store);
	ckpt_lock_take(&leaf);
	ckpt_lock_drop(&leaf);
	ckpt_rwlock_read(&names);
}

static void lock_under_itself(void)
{
	ckpt_lock_take(&store);
	ckpt_lock_take(&store);
}

static void reader_under_a_reader(void)
{
	ckpt_rwlock_read(&names);
	ckpt_rwlock_read(&names);
}

static void two_of_a_rank(void)
{
	ckpt_lock_take(&steps[0]);
	ckpt_lock_take(&steps[1]);
}

static void two_at_once_under_a_third_of_the_rank(void)
{
	struct ckpt_lock third = CKPT_LOCK_INIT(CKPT_LOCK_STEP);

	ckpt_lock_take(&third);
	ckpt_lock_take_both(&steps[0], &steps[1]);
}

static void two_at_once_of_different_ranks(void)
{
	ckpt_lock_take_both(&acts, &leaf);
}

static void wait_under_another_lock(void)
{
	LOCK_SCOPE(&steps[0]);
	LOCK_SCOPE(&leaf);
	wait_with(&leaf);
}

static void wait_with_an_outer_lock(void)
{
	LOCK_SCOPE(&acts);
	LOCK_SCOPE(&store);
	wait_with(&acts);
}

static void drop_of_what_is_not_held(void)
{
	ckpt_lock_drop(&store);
}

static const struct {
	void (*act)(void);
	const char *said, *and;
} wrong[] = {
	{outer_under_inner, "lock order: &store at ", " is taken under &steps[0] at "},
	{outer_tried_under_inner, "&store at ", " is taken under &steps[0] at "},
	{outer_under_a_lock_that_was_not_the_last, "&names at ", " is taken under &store at "},
	{lock_under_itself, "&store at ", " is taken under &store at "},
	{reader_under_a_reader, "&names at ", " is taken under &names at "},
	{two_of_a_rank, "&steps[1] at ", " is taken under &steps[0] at "},
	{two_at_once_under_a_third_of_the_rank, "&steps[0] at ", " is taken under &third at "},
	{two_at_once_of_different_ranks, "&acts at ", " is no second one under &acts at "},
	{wait_under_another_lock, "l at ", " is waited with under &steps[0] at "},
	{wait_with_an_outer_lock, "l at ", " is waited with by a thread that holds another &store at "},
	{drop_of_what_is_not_held, "&store at ", " is dropped by a thread that does not hold it"},
};

START_TEST(what_could_be_a_deadlock_aborts_and_says_where)
{
	char said[1024] = "";
	int ends[2], status;
	ssize_t n;
	pid_t pid;

	ck_ok(pipe(ends));
	pid = fork();
	if (!pid) {
		dup2(ends[1], STDERR_FILENO);
		wrong[_i].act();
		_exit(0);
	}
	close(ends[1]);
	for (size_t at = 0; (n = read(ends[0], said + at, sizeof(said) - 1 - at)) > 0; at += (size_t)n)
		;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x, said: %s", status, said);
	ck_assert_msg(strstr(said, wrong[_i].said) && strstr(said, wrong[_i].and) && strstr(said, __FILE__), "%s",
		      said);
}
END_TEST

static unsigned told;

static void count_told(const char *text)
{
	ck_assert_msg(strstr(text, "&store at ") && strstr(text, __FILE__), "%s", text);
	told++;
}

START_TEST(a_place_is_told_of_once_where_nobody_aborts)
{
	ck_assert_int_eq(unsetenv("CKPT_LOCK_ORDER"), 0);
	ckpt_lock_order_tell = count_told;
	for (int i = 0; i < 3; i++) {
		LOCK_SCOPE(&leaf);
		LOCK_SCOPE(&store);
	}
	ck_assert_uint_eq(told, 1);
	ckpt_lock_take(&leaf);
	ckpt_lock_take(&store);
	ck_assert_uint_eq(told, 2);
}
END_TEST

static int64_t asked_ns;

static int wait_not(pthread_cond_t *c __attribute__((unused)), pthread_mutex_t *mutex __attribute__((unused)),
		    int64_t ns)
{
	asked_ns = ns;
	return ETIMEDOUT;
}

START_TEST(a_test_may_drive_who_waits)
{
	ckpt_hook_set(wait_ns, wait_not);
	LOCK_SCOPE(&leaf);
	ck_assert_int_eq(ckpt_lock_wait_ns(&changed, &leaf, INT64_C(3600000000000)), ETIMEDOUT);
	ck_assert_int_eq(asked_ns, INT64_C(3600000000000));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("lock");
	TCase *t = tcase_create("lock");

	tcase_add_test(t, locks_are_taken_from_outer_to_inner_and_dropped_in_any_order);
	tcase_add_test(t, who_waits_may_hold_the_lock_of_a_whole_act);
	tcase_add_test(t, who_tries_has_it_or_not);
	tcase_add_loop_test(t, what_could_be_a_deadlock_aborts_and_says_where, 0, ARRAY_LEN(wrong));
	tcase_add_test(t, a_place_is_told_of_once_where_nobody_aborts);
	tcase_add_test(t, a_test_may_drive_who_waits);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
