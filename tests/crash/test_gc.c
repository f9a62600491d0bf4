// Cooling with shared chunks, garbage collection and repacking when the process dies at any call, and when the power goes at any point, also
// after a call that failed: no byte that a step needs is lost (I7).
//
// CKPT_CRASH_SEEDS in the environment: states for each point of a power cut, 3 by default; CKPT_TEST_FULL=1: 6, and every point
// within the saves too. CKPT_CRASH_STRIDE: of a point's states only each so-many-th, 2 by default.
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/save.h"
#include "tests/support/sysfault.h"
#include "tests/support/tiers.h"

#include "core/base/util.h"
#include "core/gc/gc.h"
#include "core/save/delete.h"

#include <stdio.h>
#include <sys/mman.h>

#define SAVES_EACH 11 // of the points within a save
#define POINTS_MAX 5000

static bool is_worth_it(const struct ckpt_tiers_log *log, uint64_t point)
{
	return ckpt_suite_full() || point >= log->began[CKPT_TIERS_COOL_A] || point % SAVES_EACH == 0;
}

// --- The process dies ---------------------------------------------------------------------------------------------------

// In memory shared with the child: how far it came.
struct shared {
	struct ckpt_tiers_log log;
	struct ckpt_sysfault fault;
};

static struct shared *shared_new(void)
{
	struct shared *shared =
		mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(shared, MAP_FAILED);
	return shared;
}

static uint64_t calls(void *arg)
{
	return __atomic_load_n(&((struct shared *)arg)->fault.count, __ATOMIC_RELAXED);
}

// In a child that dies at call n (0: not); false when it came to its end before.
static bool died(const char *dir, uint64_t n, struct shared *shared)
{
	pid_t pid;

	*shared = (struct shared){.fault = {.at = n, .die = ckpt_sysfault_kill}};
	pid = fork();
	if (!pid) {
		ckpt_sysfault_begin(&shared->fault);
		ckpt_tiers_run(dir, &shared->log, calls, shared);
		_exit(0);
	}
	return ckpt_sysfault_killed(pid, n);
}

START_TEST(deaths_at_every_call_lose_nothing)
{
	struct shared *shared = shared_new(), *whole = shared_new();
	size_t deaths = 0;
	char dir[PATH_MAX];

	ckpt_save_init(dir);
	ck_assert(!died(dir, 0, whole));
	ckpt_tiers_check_at(dir, &whole->log, UINT64_MAX, true);
	ckpt_temp_empty(dir, true);
	for (uint64_t n = 1; n <= whole->fault.count; n++) {
		if (!is_worth_it(&whole->log, n))
			continue;
		ckpt_save_init(dir);
		deaths += died(dir, n, shared);
		ckpt_tiers_check_at(dir, &shared->log, UINT64_MAX, ckpt_suite_tries(2, 0, n));
		ckpt_temp_empty(dir, true);
	}
	printf("death: %zu of %llu calls\n", deaths, (unsigned long long)whole->fault.count);
	ck_assert_uint_gt(deaths, 0);
}
END_TEST

// --- The power goes -----------------------------------------------------------------------------------------------------

static uint64_t disk_clock(void *arg)
{
	return ckpt_disk_count(arg);
}

static void check_cut(struct ckpt_disk *disk, const char *out, const struct ckpt_tiers_log *log, size_t point,
		      uint64_t seed)
{
	ck_ok(ckpt_disk_crash(disk, point, seed, out));
	ckpt_tiers_check_at(out, log, point, true);
	ckpt_temp_empty(out, false);
}

START_TEST(power_cuts_at_every_point_lose_nothing)
{
	unsigned seeds = ckpt_suite_seeds(3, 6);
	struct ckpt_tiers_log log = {0};
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;
	size_t states = 0;

	ckpt_save_init(dir);
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(dir, &disk));
	ckpt_tiers_run(dir, &log, disk_clock, disk);
	ckpt_disk_end(disk);
	ck_assert_uint_eq(ckpt_disk_unknown(disk), 0);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned k = 0; k < seeds && is_worth_it(&log, point); k++)
			if (ckpt_suite_tries(2, k, point)) {
				check_cut(disk, out, &log, point, ckpt_disk_seed(k));
				states++;
			}
	printf("power: %zu states at %zu points\n", states, ckpt_disk_count(disk) + 1);
	ckpt_disk_free(disk);
}
END_TEST

static const enum ckpt_tiers_act failing[] = {CKPT_TIERS_COOL_A, CKPT_TIERS_COOL_B, CKPT_TIERS_GC_A,
					      CKPT_TIERS_COOL_C, CKPT_TIERS_WARM_B, CKPT_TIERS_REPACK};

// Call n of one act fails once, then it is asked again, by the same process or the next, and the script goes on: with what the failure
// left, durable or not. The power goes between the acts after it.
static bool cut_after_a_failure(enum ckpt_tiers_act failing_act, uint64_t n, bool reopen, const char *out)
{
	struct ckpt_sysfault fault = {.at = n, .error = -EIO};
	struct ckpt_tiers_log log = {0};
	struct ckpt_disk *disk;
	char dir[PATH_MAX];
	struct ckpt_store *s;

	ckpt_save_init(dir);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	for (int act = 0; act < CKPT_TIERS_ACTS; act++) {
		int rc;

		log.began[act] = ckpt_disk_count(disk) + 1;
		ckpt_save_settle_all(s);
		if (act == (int)failing_act)
			ckpt_sysfault_begin(&fault);
		rc = ckpt_tiers_do(s, (enum ckpt_tiers_act)act);
		ckpt_save_settle_all(s);
		if (act == (int)failing_act)
			ckpt_sysfault_end(&fault);
		ck_assert(!rc || act == (int)failing_act);
		if (rc && reopen) {
			ckpt_store_close(s);
			s = ckpt_save_open(dir);
		}
		if (rc)
			ck_ok(ckpt_tiers_do(s, (enum ckpt_tiers_act)act));
		log.done[act] = ckpt_disk_count(disk) + 1;
	}
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	for (int act = (int)failing_act; act < CKPT_TIERS_ACTS; act++)
		for (unsigned k = 0; k < (ckpt_suite_full() ? 11 : 2); k++)
			check_cut(disk, out, &log, log.done[act] - 1, ckpt_disk_seed(k));
	ckpt_disk_free(disk);
	ckpt_temp_empty(dir, true);
	return fault.count >= n;
}

START_TEST(power_cuts_after_a_failure_lose_nothing)
{
	uint64_t n = ckpt_suite_first(2, _i / 2);
	char out[PATH_MAX];

	ckpt_temp_dir(out);
	for (; cut_after_a_failure(failing[_i / 2], n, _i % 2, out); n += ckpt_suite_stride(2))
		ck_assert_uint_lt(n, POINTS_MAX);
	ck_assert_uint_gt(n, 5);
}
END_TEST

// From call n of one act on nothing reaches the disk, as when the process dies. The next one finds what was done, durable or not, and
// collects garbage by it before anything else is done. The power goes at any point of that.
static bool cut_after_a_death(enum ckpt_tiers_act dying_act, uint64_t n, const char *out)
{
	struct ckpt_sysfault fault = {.at = n, .error = -EIO, .sticky = true, .changes_only = true};
	struct ckpt_tiers_log log = {0};
	struct ckpt_disk *disk;
	char dir[PATH_MAX];
	struct ckpt_store *s;
	size_t point;

	ckpt_save_init(dir);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	for (int act = 0; act < (int)dying_act; act++)
		ck_ok(ckpt_tiers_do(s, (enum ckpt_tiers_act)act));
	ckpt_save_settle_all(s);
	ckpt_sysfault_begin(&fault);
	(void)ckpt_tiers_do(s, dying_act);
	ckpt_save_settle_all(s);
	ckpt_sysfault_end(&fault);
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
	point = ckpt_disk_count(disk);
	ck_ok(ckpt_tiers_do(s, CKPT_TIERS_REPACK)); // whatever it finds
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	ckpt_tiers_log_to(&log, dying_act, false);
	for (; point <= ckpt_disk_count(disk); point++)
		for (unsigned k = 0; k < (ckpt_suite_full() ? 11 : 3); k++) {
			ck_ok(ckpt_disk_crash(disk, point, ckpt_disk_seed(k), out));
			ckpt_tiers_check_at(out, &log, point, false);
			ckpt_temp_empty(out, false);
		}
	ckpt_disk_free(disk);
	ckpt_temp_empty(dir, true);
	return fault.count >= n;
}

START_TEST(power_cuts_after_a_death_and_a_collection_lose_nothing)
{
	uint64_t n = ckpt_suite_first(2, _i);
	char out[PATH_MAX];

	ckpt_temp_dir(out);
	for (; cut_after_a_death(failing[_i], n, out); n += ckpt_suite_stride(2))
		ck_assert_uint_lt(n, POINTS_MAX);
	ck_assert_uint_gt(n, 2); // a collection of one pack: unlink, fsync
}
END_TEST

#define SHARED "what two steps share"
#define LONG "a text that is longer than the one which is shared, and of one step alone"

// The same of a repacking of one step, whose version is the last that is put: the pack that it emptied is garbage to the next process
// from its start on.
static bool cut_after_a_death_while_repacking(uint64_t n, const char *out)
{
	const struct ckpt_gc_how all = {.force = true};
	struct ckpt_sysfault fault = {.at = n, .error = -EIO, .sticky = true, .changes_only = true};
	struct ckpt_step *a, *b;
	struct ckpt_gc_done done;
	struct ckpt_disk *disk;
	char dir[PATH_MAX];
	struct ckpt_store *s;
	size_t point;

	ckpt_save_init(dir);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	a = ckpt_packed_together(s, "a", SHARED, LONG);
	b = ckpt_packed_step(s, "b", SHARED);
	ck_ok(ckpt_delete(a));
	ck_ok(ckpt_expire(a));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_save_settle_all(s);
	ckpt_sysfault_begin(&fault);
	(void)ckpt_gc(s, &all, &done);
	ckpt_save_settle_all(s);
	ckpt_sysfault_end(&fault);
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
	point = ckpt_disk_count(disk);
	ck_ok(ckpt_gc(s, &all, &done));
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	for (; point <= ckpt_disk_count(disk); point++) {
		ck_ok(ckpt_disk_crash(disk, point, CKPT_DISK_LEAST, out));
		s = ckpt_save_open(out);
		b = ckpt_step_find(s, "", "b");
		ck_ok(ckpt_packed_read(b, "0", SHARED));
		ckpt_step_unref(b);
		ckpt_store_close(s);
		ckpt_temp_empty(out, false);
	}
	ckpt_disk_free(disk);
	ckpt_temp_empty(dir, true);
	return fault.count >= n;
}

START_TEST(a_power_cut_after_a_death_while_repacking_loses_nothing)
{
	char out[PATH_MAX];
	uint64_t n = 1;

	ckpt_temp_dir(out);
	while (cut_after_a_death_while_repacking(n, out))
		ck_assert_uint_lt(n++, POINTS_MAX);
	ck_assert_uint_gt(n, 5);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gc crash");
	TCase *death = tcase_create("death"), *power = tcase_create("power"), *failure = tcase_create("failure");

	tcase_add_test(death, deaths_at_every_call_lose_nothing);
	suite_add_tcase(suite, death);
	tcase_add_test(power, power_cuts_at_every_point_lose_nothing);
	suite_add_tcase(suite, power);
	tcase_add_loop_test(failure, power_cuts_after_a_failure_lose_nothing, 0, 2 * (int)ARRAY_LEN(failing));
	tcase_add_loop_test(failure, power_cuts_after_a_death_and_a_collection_lose_nothing, 0,
			    (int)ARRAY_LEN(failing));
	tcase_add_test(failure, a_power_cut_after_a_death_while_repacking_loses_nothing);
	suite_add_tcase(suite, failure);
	return ckpt_suite_run(suite);
}
