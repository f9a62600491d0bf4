// Adding to a committed step, replacing and taking out, when the process dies at any call and when the power goes at any
// point: what was acknowledged is so, what was cut happened wholly or not at all, and what it left is in nobody's way.
//
// CKPT_CRASH_SEEDS in the environment: states for each point of a power cut, 4 by default; CKPT_TEST_FULL=1: 8. By
// default every third call fails before a power cut, and each point is tried in every second state, with CKPT_TEST_FULL=1 in each.
#include "core/store/open.h"
#include "tests/support/amends.h"
#include "tests/support/disk.h"
#include "tests/support/save.h"
#include "tests/support/sysfault.h"

#include "core/base/util.h"

#include <stdio.h>
#include <sys/mman.h>

#define GO_ON_EACH 4 // of the states: the acts that are left are done, too

static unsigned seeds(void)
{
	return ckpt_suite_seeds(4, 8);
}

// After a cut while act done was under way.
static void check(const char *dir, size_t done, bool go_on)
{
	size_t now = ckpt_amends_check_at(dir, done, MIN(done + 1, CKPT_AMEND_ACTS));
	struct ckpt_store *s = ckpt_save_open(dir);

	ckpt_amends_check(s, now);
	for (; go_on && now < CKPT_AMEND_ACTS; now++) {
		ck_ok(ckpt_amends_do(s, now));
		ckpt_amends_check(s, now + 1);
	}
	ckpt_store_close(s);
	ckpt_amends_check_at(dir, now, now);
}

// --- The process dies -------------------------------------------------------------------------------------------------

// In memory shared with the child: how far it came.
struct shared {
	struct ckpt_sysfault fault;
	size_t done;
};

static bool died(const char *dir, uint64_t n, struct shared *shared)
{
	pid_t pid;

	*shared = (struct shared){.fault = {.at = n, .die = ckpt_sysfault_kill, .changes_only = true}};
	pid = fork();
	if (!pid) {
		struct ckpt_store *s = ckpt_save_open(dir);

		ckpt_sysfault_begin(&shared->fault);
		for (size_t i = 0; i < CKPT_AMEND_ACTS; i++) {
			if (ckpt_amends_do(s, i))
				_exit(1);
			__atomic_store_n(&shared->done, i + 1, __ATOMIC_RELEASE);
		}
		_exit(0);
	}
	return ckpt_sysfault_killed(pid, n);
}

START_TEST(deaths_at_every_call_leave_the_step_as_before_or_after)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool again = true;
	uint64_t n;

	ck_assert_ptr_ne(shared, MAP_FAILED);
	for (n = 1; again; n++) {
		char dir[PATH_MAX];

		ckpt_amends_init(dir);
		again = died(dir, n, shared);
		check(dir, shared->done, ckpt_suite_tries(2, 0, n));
		ckpt_temp_empty(dir, true);
	}
	printf("death: %llu calls\n", (unsigned long long)n - 2);
	ck_assert_uint_gt(n, 3 * CKPT_AMEND_ACTS);
}
END_TEST

// --- The power goes ---------------------------------------------------------------------------------------------------

static struct ckpt_disk *disk;

// The acts, with call n of act faulty failing once and then a second attempt; SIZE_MAX: none fails. done_at: when each act was
// acknowledged. False: there is no such call.
static bool run(const char *dir, size_t faulty, uint64_t n, size_t *done_at)
{
	struct ckpt_sysfault fault = {.at = n, .error = -EIO, .changes_only = true};
	struct ckpt_store *s;

	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	for (size_t i = 0; i < CKPT_AMEND_ACTS; i++) {
		int rc;

		ckpt_save_settle_all(s);
		if (i == faulty)
			ckpt_sysfault_begin(&fault);
		rc = ckpt_amends_do(s, i);
		ckpt_save_settle_all(s);
		if (i == faulty)
			ckpt_sysfault_end(&fault);
		if (rc) {
			ck_assert_uint_eq(i, faulty);
			ck_ok(ckpt_amends_do(s, i));
		}
		done_at[i] = ckpt_disk_count(disk);
	}
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	ck_assert_uint_eq(ckpt_disk_unknown(disk), 0);
	return fault.count >= n;
}

static size_t cut_everywhere(const size_t *done_at, size_t from, size_t to, unsigned count)
{
	char out[PATH_MAX];
	size_t states = 0;

	ckpt_temp_dir(out);
	for (size_t point = from; point <= to; point++)
		for (unsigned k = 0; k < count; k++) {
			size_t done = 0;

			if (!ckpt_suite_tries(2, k, point))
				continue;
			while (done < CKPT_AMEND_ACTS && done_at[done] <= point)
				done++;
			ck_ok(ckpt_disk_crash(disk, point, ckpt_disk_seed(k), out));
			check(out, done, states++ % GO_ON_EACH == 0);
			ckpt_temp_empty(out, false);
		}
	ckpt_disk_free(disk);
	return states;
}

START_TEST(power_cuts_at_every_point_keep_what_was_acknowledged)
{
	size_t done_at[CKPT_AMEND_ACTS], points;
	char dir[PATH_MAX];

	ckpt_amends_init(dir);
	run(dir, SIZE_MAX, 0, done_at);
	points = ckpt_disk_count(disk);
	printf("power: %zu states at %zu points\n", cut_everywhere(done_at, 0, points, seeds()), points + 1);
}
END_TEST

// Call n of an act fails and it is asked again; then the power goes, at any point of that act or the next.
START_TEST(power_cuts_after_a_failure_keep_what_was_acknowledged)
{
	size_t done_at[CKPT_AMEND_ACTS], act = (size_t)_i;
	uint64_t n = 1 + (ckpt_suite_full() ? 0 : act % 3);
	bool again = true;

	for (; again; n += ckpt_suite_full() ? 1 : 3) {
		char dir[PATH_MAX];

		ckpt_amends_init(dir);
		again = run(dir, act, n, done_at);
		cut_everywhere(done_at, act ? done_at[act - 1] : 0, done_at[MIN(act + 1, CKPT_AMEND_ACTS - 1)],
			       MAX(seeds() / 3, 2u));
		ckpt_temp_empty(dir, true);
	}
	ck_assert_uint_gt(n, 6);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("amend crash");
	TCase *death = tcase_create("death"), *power = tcase_create("power");

	tcase_add_test(death, deaths_at_every_call_leave_the_step_as_before_or_after);
	suite_add_tcase(suite, death);
	tcase_add_test(power, power_cuts_at_every_point_keep_what_was_acknowledged);
	tcase_add_loop_test(power, power_cuts_after_a_failure_keep_what_was_acknowledged, 0, CKPT_AMEND_ACTS);
	suite_add_tcase(suite, power);
	return ckpt_suite_run(suite);
}
