// The runner of jobs: when a turn comes, on which threads, and what ends it.
#include "core/jobs/jobs.h"

#include "tests/support/callfault.h"
#include "tests/support/hooks.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#define MS INT64_C(1000000)
#define MAX_JOBS 8

static struct ckpt_jobs *jobs;

static struct one {
	struct ckpt_job *job;
	int turns;       // atomic
	int64_t next_ns; // after a turn, from then on; 0: at once; INT64_MAX: never. Atomic
	bool holds;      // the turn lasts as long as this; atomic
} ones[MAX_JOBS];

static int turns(const struct one *one)
{
	return __atomic_load_n(&one->turns, __ATOMIC_ACQUIRE);
}

static void hold(struct one *one, bool holds)
{
	__atomic_store_n(&one->holds, holds, __ATOMIC_RELEASE);
}

static int64_t turn(void *arg, struct ckpt_job *job)
{
	struct one *one = arg;
	int64_t next_ns = __atomic_load_n(&one->next_ns, __ATOMIC_ACQUIRE);

	ck_assert_ptr_eq(job, one->job);
	__atomic_add_fetch(&one->turns, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&one->holds, __ATOMIC_ACQUIRE) && !ckpt_job_stops(job))
		ckpt_sys.sleep_ns(MS);
	return next_ns && next_ns != INT64_MAX ? ckpt_sys.mono_ns() + next_ns : next_ns;
}

static int add(struct one *one, const char *name, enum ckpt_job_class class, bool sleeps)
{
	return ckpt_job_new(jobs, &(struct ckpt_job_of){name, class, turn, one, sleeps}, &one->job);
}

static void setup(void)
{
	memset(ones, 0, sizeof(ones));
	for (size_t i = 0; i < MAX_JOBS; i++)
		ones[i].next_ns = INT64_MAX;
	ck_ok(ckpt_jobs_new(&jobs));
}

static void teardown(void)
{
	ckpt_jobs_free(jobs);
}

// Else the time limit of the test.
static void wait_turns(const struct one *one, int count)
{
	while (turns(one) < count)
		ckpt_sys.sleep_ns(MS);
}

static int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2; // "." and ".."
}

// --- Threads ------------------------------------------------------------------------------------------------------------

START_TEST(a_turn_comes_at_once_when_it_is_woken_and_when_it_is_due)
{
	ck_ok(add(&ones[0], "at once", CKPT_JOB_PROMPT, false));
	wait_turns(&ones[0], 1);
	ck_ok(add(&ones[1], "sleeps", CKPT_JOB_PROMPT, true));
	ck_assert(ckpt_job_wake(ones[0].job));
	wait_turns(&ones[0], 2);
	ck_assert_int_eq(turns(&ones[1]), 0);
	ones[1].next_ns = MS;
	ck_assert(ckpt_job_wake(ones[1].job));
	wait_turns(&ones[1], 5);
	ck_assert(!ckpt_job_wake(NULL));
	ckpt_job_stop(NULL);
}
END_TEST

// A thread watches for the job that is due in an hour; the turn of another one ends, which is due sooner.
START_TEST(a_time_that_comes_before_the_one_that_is_watched_is_kept)
{
	ones[0].next_ns = 3600000 * MS;
	ones[1].next_ns = MS;
	hold(&ones[1], true);
	ck_ok(add(&ones[1], "soon", CKPT_JOB_PROMPT, false));
	wait_turns(&ones[1], 1);
	ck_ok(add(&ones[0], "late", CKPT_JOB_PROMPT, false));
	wait_turns(&ones[0], 1);
	hold(&ones[1], false);
	wait_turns(&ones[1], 3);
	ck_assert_int_eq(turns(&ones[0]), 1);
}
END_TEST

START_TEST(jobs_run_beside_each_other)
{
	for (size_t i = 0; i < MAX_JOBS; i++) {
		hold(&ones[i], true);
		ck_ok(add(&ones[i], "holds", CKPT_JOB_GIVES_WAY, false));
	}
	for (size_t i = 0; i < MAX_JOBS; i++)
		wait_turns(&ones[i], 1);
}
END_TEST

// At most a moment, so that a spare thread ends soon.
static int wait_shortly(pthread_cond_t *changed, pthread_mutex_t *mutex, int64_t ns)
{
	struct timespec until;
	int rc;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 5 * MS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	rc = pthread_cond_timedwait(changed, mutex, &until);
	return ns > 0 ? rc : ETIMEDOUT;
}

START_TEST(one_thread_is_left_when_nothing_is_due)
{
	const int before = threads();

	ckpt_hook_set(wait_ns, wait_shortly);
	for (size_t i = 0; i < MAX_JOBS; i++) {
		hold(&ones[i], true);
		ck_ok(add(&ones[i], "holds", CKPT_JOB_PROMPT, false));
	}
	for (size_t i = 0; i < MAX_JOBS; i++)
		wait_turns(&ones[i], 1);
	ck_assert_int_ge(threads(), before + MAX_JOBS);
	for (size_t i = 0; i < MAX_JOBS; i++)
		hold(&ones[i], false);
	while (threads() > before + 1)
		ckpt_sys.sleep_ns(MS);
	ck_assert(ckpt_job_wake(ones[3].job));
	wait_turns(&ones[3], 2);
	ckpt_jobs_by_hand(jobs);
	ck_assert_int_eq(threads(), before);
}
END_TEST

START_TEST(a_job_that_is_woken_during_its_turn_has_one_more)
{
	hold(&ones[0], true);
	ck_ok(add(&ones[0], "woken", CKPT_JOB_PROMPT, false));
	wait_turns(&ones[0], 1);
	ck_assert(ckpt_job_wake(ones[0].job));
	ck_assert(ckpt_job_wake(ones[0].job));
	hold(&ones[0], false);
	wait_turns(&ones[0], 2);
	ckpt_jobs_by_hand(jobs);
	ck_assert_int_eq(turns(&ones[0]), 2);
	ck_assert_ptr_null(ckpt_jobs_run_next(jobs, NULL));
}
END_TEST

START_TEST(a_job_that_was_stopped_has_no_turn_any_more)
{
	hold(&ones[0], true);
	ck_ok(add(&ones[0], "stops", CKPT_JOB_PROMPT, false));
	ones[1].next_ns = MS;
	ck_ok(add(&ones[1], "goes on", CKPT_JOB_PROMPT, false));
	wait_turns(&ones[0], 1);
	ckpt_job_stop(ones[0].job); // ends the turn, and waits for that
	hold(&ones[0], false);
	ck_assert(ckpt_job_stops(ones[0].job));
	ck_assert(!ckpt_job_wake(ones[0].job));
	ckpt_job_stop(ones[0].job);
	wait_turns(&ones[1], turns(&ones[1]) + 3);
	ck_assert_int_eq(turns(&ones[0]), 1);
}
END_TEST

// Each ends when it is told: the second one here only after the first, if they were told one after the other.
START_TEST(jobs_are_told_at_once_that_they_end)
{
	for (size_t i = 0; i < 3; i++) {
		hold(&ones[i], true);
		ck_ok(add(&ones[i], "holds", i ? CKPT_JOB_GIVES_WAY : CKPT_JOB_PROMPT, false));
		wait_turns(&ones[i], 1);
	}
	ckpt_jobs_ending(jobs);
	ck_assert(ckpt_job_stops(ones[1].job) && ckpt_job_stops(ones[2].job));
	ck_assert(!ckpt_job_stops(ones[0].job));
	ck_assert(ckpt_job_wake(ones[0].job) && !ckpt_job_wake(ones[1].job));
	for (size_t i = 0; i < 3; i++)
		ckpt_job_stop(ones[i].job);
}
END_TEST

// --- Without threads ----------------------------------------------------------------------------------------------------

START_TEST(without_a_thread_for_its_first_turn_there_is_no_job)
{
	ckpt_callfault_begin(1, -EAGAIN);
	ck_error(add(&ones[0], "at once", CKPT_JOB_PROMPT, false), EAGAIN);
	ck_assert_uint_eq(ckpt_callfault_end(), 1);
	ckpt_callfault_begin(1, -EAGAIN);
	ck_ok(add(&ones[1], "sleeps", CKPT_JOB_PROMPT, true));
	ck_assert(!ckpt_job_wake(ones[1].job));
	ck_assert_uint_eq(ckpt_callfault_end(), 1);
	ck_assert(ckpt_job_wake(ones[1].job));
	wait_turns(&ones[1], 1);
}
END_TEST

START_TEST(without_more_threads_a_job_waits_for_one_that_is_free)
{
	hold(&ones[0], true);
	ck_ok(add(&ones[0], "holds", CKPT_JOB_PROMPT, false));
	wait_turns(&ones[0], 1);
	for (size_t i = 1; i < 4; i++)
		ck_ok(add(&ones[i], "sleeps", CKPT_JOB_PROMPT, true));
	for (size_t i = 1; i < 4; i++) {
		ckpt_callfault_begin(1, -EAGAIN);
		ck_assert(!ckpt_job_wake(ones[i].job)); // nobody may wait for it
		ck_assert_uint_eq(ckpt_callfault_end(), 1);
	}
	ckpt_callfault_begin(1, -EAGAIN);
	ck_ok(add(&ones[4], "at once", CKPT_JOB_PROMPT, false));
	ck_assert_uint_eq(ckpt_callfault_end(), 1);
	ck_assert_int_eq(turns(&ones[1]), 0);
	hold(&ones[0], false);
	for (size_t i = 1; i < 5; i++)
		wait_turns(&ones[i], 1);
}
END_TEST

// --- By hand ------------------------------------------------------------------------------------------------------------

static int64_t time_ns; // atomic

static int64_t hand_time_ns(void)
{
	return __atomic_load_n(&time_ns, __ATOMIC_RELAXED);
}

static void by_hand(void)
{
	ckpt_jobs_by_hand(jobs);
	time_ns = 1000;
	ckpt_hook_set(mono_ns, hand_time_ns);
}

static void check_next(const char *name, int64_t due_ns)
{
	int64_t next_ns;
	const char *ran = ckpt_jobs_run_next(jobs, &next_ns);

	ck_assert_pstr_eq(ran, name);
	ck_assert_int_eq(next_ns, due_ns);
}

START_TEST(by_hand_turns_come_by_class_and_by_time)
{
	by_hand();
	ones[0].next_ns = 50;
	ones[1].next_ns = 20;
	ck_ok(add(&ones[0], "slow", CKPT_JOB_GIVES_WAY, false));
	ck_ok(add(&ones[1], "hurries", CKPT_JOB_HURRIES, false));
	ck_ok(add(&ones[2], "sleeps", CKPT_JOB_PROMPT, true));
	check_next("hurries", 1000);
	check_next("slow", 1020);
	check_next(NULL, 1020);
	time_ns = 1049;
	check_next("hurries", 1050);
	time_ns = 1069;
	ck_assert(!ckpt_job_wake(ones[2].job)); // no thread runs it
	check_next("sleeps", 1050);
	check_next("hurries", 1050); // a class goes first, whatever the time of others
	ckpt_job_stop(ones[1].job);
	ones[0].next_ns = 0;
	check_next("slow", 1069);
	check_next("slow", 1069);
	ones[0].next_ns = INT64_MAX;
	check_next("slow", INT64_MAX);
	time_ns = INT64_MAX / 2;
	check_next(NULL, INT64_MAX);
}
END_TEST

// --- How fast -----------------------------------------------------------------------------------------------------------

static int64_t waited_ns, slept_ns;

static int64_t hand_waited_ns(void)
{
	return waited_ns;
}

static void hand_sleep_ns(int64_t ns)
{
	slept_ns += ns;
	time_ns += ns;
}

// 10 ms at work, of which it waited 1 ms for a processor.
static int64_t work(void *arg, struct ckpt_job *job)
{
	ck_assert(ckpt_job_go_on(job, 1));
	time_ns += 10 * MS;
	waited_ns += MS;
	ck_assert(ckpt_job_go_on(job, 1));
	*(int64_t *)arg = slept_ns;
	return INT64_MAX;
}

START_TEST(a_job_gives_way_as_its_class_says)
{
	static const struct {
		enum ckpt_job_class class;
		int saves;
		int64_t rest_ns;
	} cases[] = {
		{CKPT_JOB_GIVES_WAY, 0, 15 * MS},
		{CKPT_JOB_GIVES_WAY, 1, 70 * MS},
		{CKPT_JOB_HURRIES, 0, 0},
		{CKPT_JOB_HURRIES, 1, 70 * MS},
	};

	by_hand();
	ckpt_hook_set(waited_ns, hand_waited_ns);
	ckpt_hook_set(sleep_ns, hand_sleep_ns);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ckpt_job *job;
		int64_t rest_ns = -1;

		slept_ns = 0;
		ckpt_jobs_saves(jobs, cases[i].saves);
		ck_ok(ckpt_job_new(jobs, &(struct ckpt_job_of){"works", cases[i].class, work, &rest_ns, false}, &job));
		ck_assert_pstr_eq(ckpt_jobs_run_next(jobs, NULL), "works");
		ck_assert_int_eq(rest_ns, cases[i].rest_ns);
		ckpt_jobs_saves(jobs, -cases[i].saves);
		ckpt_job_stop(job);
		ck_assert(!ckpt_job_go_on(job, 1));
	}
	ck_assert_int_eq(ckpt_jobs_saving(jobs), 0);
}
END_TEST

START_TEST(a_failure_says_when_to_try_again)
{
	by_hand();
	ck_assert_int_eq(ckpt_job_again_ns(-EBUSY), 1000 + 1000 * MS);
	ck_assert_int_eq(ckpt_job_again_ns(-ENOSPC), 1000 + CKPT_JOB_LATER_NS);
	ck_assert_int_eq(ckpt_job_again_ns(-EIO), INT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("jobs");
	TCase *tcase = tcase_create("jobs");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_turn_comes_at_once_when_it_is_woken_and_when_it_is_due);
	tcase_add_test(tcase, a_time_that_comes_before_the_one_that_is_watched_is_kept);
	tcase_add_test(tcase, jobs_run_beside_each_other);
	tcase_add_test(tcase, one_thread_is_left_when_nothing_is_due);
	tcase_add_test(tcase, a_job_that_is_woken_during_its_turn_has_one_more);
	tcase_add_test(tcase, a_job_that_was_stopped_has_no_turn_any_more);
	tcase_add_test(tcase, jobs_are_told_at_once_that_they_end);
	tcase_add_test(tcase, without_a_thread_for_its_first_turn_there_is_no_job);
	tcase_add_test(tcase, without_more_threads_a_job_waits_for_one_that_is_free);
	tcase_add_test(tcase, by_hand_turns_come_by_class_and_by_time);
	tcase_add_test(tcase, a_job_gives_way_as_its_class_says);
	tcase_add_test(tcase, a_failure_says_when_to_try_again);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
