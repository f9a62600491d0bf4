// Deleting, having back, saving anew, reopening, deriving and expiring when the process dies at any call, and when the power
// goes at any point: what was acknowledged is so, what was cut happened wholly or not at all, what is in the trash is whole, and
// what expires leaves nothing behind (I11).
//
// CKPT_CRASH_SEEDS in the environment: states for each point of a power cut, 3 by default; CKPT_TEST_FULL=1: 4, and
// every point within the saves too, which test_commit.c has each of. CKPT_CRASH_STRIDE: only each so-many-th call, and
// of a point's states each so-many-th, 2 by default.
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/life.h"
#include "tests/support/sysfault.h"

#include "core/step/trash.h"

#include <stdio.h>
#include <sys/mman.h>

#define SAVES_EACH 7 // of the points within a save
#define THOROUGH_EACH 8
#define POINTS_MAX 20000

static const struct ckpt_life_script *const wholes[] = {&ckpt_life_whole, &ckpt_life_reopened};

static bool is_worth_it(const struct ckpt_life_script *script, const struct ckpt_life_log *log, uint64_t point,
			unsigned i)
{
	size_t at = ckpt_life_at(script, log, point);
	bool saving = at < script->count && script->ops[at].act == CKPT_LIFE_SAVE;

	return (ckpt_suite_full() || !saving || (point + i) % SAVES_EACH == 0) && ckpt_suite_tries(2, i, point);
}

// --- The process dies -------------------------------------------------------------------------------------------------

// In memory shared with the child: how far it came.
struct shared {
	const struct ckpt_life_script *script;
	struct ckpt_life_log log;
	struct ckpt_sysfault fault;
};

static struct shared *shared_new(const struct ckpt_life_script *script)
{
	struct shared *shared =
		mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(shared, MAP_FAILED);
	shared->script = script;
	return shared;
}

static uint64_t calls(void *arg)
{
	return __atomic_load_n(&((struct shared *)arg)->fault.count, __ATOMIC_RELAXED);
}

// In a child that dies at call n (0: not); false when it came to its end before.
static bool died(const char *dir, uint64_t n, struct shared *shared, void (*body)(const char *dir, struct shared *s))
{
	pid_t pid;

	shared->fault = (struct ckpt_sysfault){.at = n, .die = ckpt_sysfault_kill};
	pid = fork();
	if (!pid) {
		ckpt_sysfault_begin(&shared->fault);
		body(dir, shared);
		_exit(0);
	}
	return ckpt_sysfault_killed(pid, n);
}

static void run(const char *dir, struct shared *shared)
{
	ckpt_life_run(dir, shared->script, &shared->log, calls, shared);
}

static void open_and_close(const char *dir, struct shared *shared)
{
	struct ckpt_store *s = ckpt_save_open(dir);

	(void)shared;
	ckpt_trash_drain(*ckpt_trash_of(s));
	ckpt_store_close(s);
}

// How long the whole is, and when each act begins.
static uint64_t measure(struct shared *shared)
{
	char dir[PATH_MAX];

	ckpt_save_init(dir);
	ck_assert(!died(dir, 0, shared, run));
	ckpt_temp_empty(dir, true);
	return shared->fault.count;
}

START_TEST(deaths_at_every_call_leave_no_step_half_deleted)
{
	const struct ckpt_life_script *script = wholes[_i];
	struct shared *shared = shared_new(script), *whole = shared_new(script);
	uint64_t count = measure(whole);
	size_t deaths = 0, tried = 0;

	for (uint64_t n = 1; n <= count; n++) {
		char dir[PATH_MAX];

		if (!is_worth_it(script, &whole->log, n, (unsigned)_i))
			continue;
		*shared = (struct shared){.script = script};
		ckpt_save_init(dir);
		deaths += died(dir, n, shared, run);
		ckpt_life_check(dir, script, &shared->log, UINT64_MAX,
				tried++ % THOROUGH_EACH == 0 || ckpt_suite_full());
		ckpt_temp_empty(dir, true);
	}
	printf("death: %zu of %llu calls\n", deaths, (unsigned long long)count);
	ck_assert_uint_gt(deaths, 0);
}
END_TEST

// The start that goes on with an expiry that was cut dies at every call, over and over.
START_TEST(a_start_that_dies_over_an_expiry_harms_nothing)
{
	const struct ckpt_life_script *script = wholes[_i];
	struct shared *shared = shared_new(script), *start = shared_new(script), *whole = shared_new(script);
	size_t act = 0;

	measure(whole);
	while (script->ops[act].act != CKPT_LIFE_EXPIRE)
		act++;
	for (uint64_t at = whole->log.began[act]; at < whole->log.done[act]; at += 5) {
		bool again = true;
		char dir[PATH_MAX];

		*shared = (struct shared){.script = script};
		ckpt_save_init(dir);
		ck_assert(died(dir, at, shared, run));
		for (uint64_t n = 1; again; n += ckpt_suite_full() ? 1 : 3)
			again = died(dir, n, start, open_and_close);
		ckpt_life_check(dir, script, &shared->log, UINT64_MAX, true);
		ckpt_temp_empty(dir, true);
	}
}
END_TEST

// --- The power goes ---------------------------------------------------------------------------------------------------

static uint64_t disk_clock(void *arg)
{
	return ckpt_disk_count(arg);
}

static void check_cut(struct ckpt_disk *disk, const char *out, const struct ckpt_life_script *script,
		      const struct ckpt_life_log *log, size_t point, uint64_t seed, bool thorough)
{
	ck_ok(ckpt_disk_crash(disk, point, seed, out));
	ckpt_life_check(out, script, log, point, thorough);
	ckpt_temp_empty(out, false);
}

START_TEST(power_cuts_at_every_point_leave_no_step_half_deleted)
{
	unsigned seeds = ckpt_suite_seeds(3, 4);
	const struct ckpt_life_script *script = wholes[_i];
	struct ckpt_life_log log = {0};
	size_t states = 0;
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;

	ckpt_save_init(dir);
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(dir, &disk));
	ckpt_life_run(dir, script, &log, disk_clock, disk);
	ckpt_disk_end(disk);
	ck_assert_uint_eq(ckpt_disk_unknown(disk), 0);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned k = 0; k < seeds; k++)
			if (is_worth_it(script, &log, point, k))
				check_cut(disk, out, script, &log, point, ckpt_disk_seed(k),
					  states++ % THOROUGH_EACH == 0);
	printf("power: %zu states at %zu points\n", states, ckpt_disk_count(disk) + 1);
	ckpt_disk_free(disk);
}
END_TEST

static const struct ckpt_life_script scripts[] = {
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST}, {CKPT_LIFE_DELETE, LIFE_FIRST}}, .count = 2},
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST}, {CKPT_LIFE_DELETE, LIFE_FIRST}, {CKPT_LIFE_UNDELETE, LIFE_FIRST}},
	 .count = 3},
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST}, {CKPT_LIFE_DELETE, LIFE_FIRST}, {CKPT_LIFE_EXPIRE, LIFE_FIRST}},
	 .count = 3},
};

// Call n of the last act fails once; after a second attempt, or none, the store is opened anew: that sweeps. Then the
// power goes, at any point since.
static bool cut_after_a_failure(const struct ckpt_life_script *script, uint64_t n, bool again, const char *out)
{
	struct ckpt_sysfault fault = {.at = n, .error = -EIO};
	size_t last = script->count - 1, each = ckpt_suite_full() ? 1 : 3, from, states = 0;
	struct ckpt_life_log log = {0};
	struct ckpt_disk *disk;
	char dir[PATH_MAX];
	struct ckpt_store *s;
	int rc;

	ckpt_save_init(dir);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	for (size_t i = 0; i <= last; i++) {
		log.began[i] = ckpt_disk_count(disk) + 1;
		ckpt_save_settle_all(s);
		if (i == last)
			ckpt_sysfault_begin(&fault);
		rc = ckpt_life_do(s, &script->ops[i], &log);
		ckpt_save_settle_all(s);
		if (i == last)
			ckpt_sysfault_end(&fault);
		ck_assert(!rc || i == last);
		if (rc && again)
			ck_ok(rc = ckpt_life_do(s, &script->ops[i], &log));
		log.done[i] = rc ? 0 : ckpt_disk_count(disk) + 1;
	}
	from = (size_t)log.began[last] - 1;
	ckpt_store_close(s);
	open_and_close(dir, NULL);
	ckpt_disk_end(disk);
	for (size_t point = from + n % each; point <= ckpt_disk_count(disk); point += each)
		for (unsigned k = 0; k < (ckpt_suite_full() ? 7 : 4); k++)
			check_cut(disk, out, script, &log, point, ckpt_disk_seed(k), states++ % THOROUGH_EACH == 0);
	ckpt_disk_free(disk);
	ckpt_temp_empty(dir, true);
	return fault.count >= n;
}

START_TEST(a_power_cut_after_a_failure_finds_it_undone_or_done)
{
	char out[PATH_MAX];

	ckpt_temp_dir(out);
	for (uint64_t n = ckpt_suite_first(2, _i / 2); cut_after_a_failure(&scripts[_i / 2], n, _i % 2, out);
	     n += ckpt_suite_stride(2))
		ck_assert_uint_lt(n, POINTS_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("delete crash");
	TCase *death = tcase_create("death"), *power = tcase_create("power"), *failure = tcase_create("failure");

	tcase_add_loop_test(death, deaths_at_every_call_leave_no_step_half_deleted, 0, (int)ARRAY_LEN(wholes));
	tcase_add_loop_test(death, a_start_that_dies_over_an_expiry_harms_nothing, 0, (int)ARRAY_LEN(wholes));
	suite_add_tcase(suite, death);
	tcase_add_loop_test(power, power_cuts_at_every_point_leave_no_step_half_deleted, 0, (int)ARRAY_LEN(wholes));
	suite_add_tcase(suite, power);
	tcase_add_loop_test(failure, a_power_cut_after_a_failure_finds_it_undone_or_done, 0,
			    2 * (int)ARRAY_LEN(scripts));
	suite_add_tcase(suite, failure);
	return ckpt_suite_run(suite);
}
