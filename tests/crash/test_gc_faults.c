// Cooling with shared chunks, garbage collection and repacking when any call behind ckpt_sys, of the backend or any allocation fails, once
// or from then on, the backend's also when it is done and its answer lost, or any of libc, once: no byte that a step needs is lost,
// garbage collection after it removes nothing that is needed either, and asking again works (I7, I16).
#include "core/store/open.h"
#include "tests/support/allocfault.h"
#include "tests/support/backendfault.h"
#include "tests/support/callfault.h"
#include "tests/support/save.h"
#include "tests/support/sysfault.h"
#include "tests/support/tiers.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/gc/gc.h"

#include <stdio.h>

#define CALLS_MAX 1000

static const enum ckpt_tiers_act acts[] = {CKPT_TIERS_COOL_A, CKPT_TIERS_COOL_B, CKPT_TIERS_GC_TRASH,
					   CKPT_TIERS_GC_A,   CKPT_TIERS_COOL_C, CKPT_TIERS_COOL_B_AGAIN,
					   CKPT_TIERS_REPACK};
#define ACTS ((int)ARRAY_LEN(acts))

struct trial {
	char dir[PATH_MAX];
	struct ckpt_store *s;
	enum ckpt_tiers_act act;
	int rc;
};

static void prepare(struct trial *t, enum ckpt_tiers_act act)
{
	*t = (struct trial){.act = act};
	ckpt_save_init(t->dir);
	t->s = ckpt_save_open(t->dir);
	for (int before = 0; before < (int)act; before++)
		ck_ok(ckpt_tiers_do(t->s, (enum ckpt_tiers_act)before));
	ckpt_save_settle_all(t->s);
}

static int act(struct trial *t)
{
	int rc = ckpt_tiers_do(t->s, t->act);

	ckpt_save_settle_all(t->s);
	return rc;
}

// Garbage is collected at once after the failure, and then after each act that follows.
static void check_answer(struct trial *t)
{
	const struct ckpt_gc_how all = {.force = true};
	struct ckpt_tiers_log log;
	struct ckpt_gc_done done;

	ck_assert_int_le(t->rc, 0);
	ckpt_tiers_log_to(&log, t->act, !t->rc);
	ckpt_tiers_check(t->s, &log, UINT64_MAX, false);
	ckpt_tiers_check_at(t->dir, &log, UINT64_MAX, false);
	ck_ok(ckpt_gc(t->s, &all, &done));
	ckpt_tiers_check(t->s, &log, UINT64_MAX, false);
	ckpt_tiers_check_at(t->dir, &log, UINT64_MAX, false);
	if (t->rc)
		ck_ok(ckpt_tiers_do(t->s, t->act));
	for (int next = (int)t->act + 1; next < CKPT_TIERS_ACTS; next++) {
		ck_ok(ckpt_tiers_do(t->s, (enum ckpt_tiers_act)next));
		ck_ok(ckpt_gc(t->s, &all, &done));
		ckpt_tiers_log_to(&log, (enum ckpt_tiers_act)next, true);
		ckpt_tiers_check(t->s, &log, UINT64_MAX, false);
	}
	ckpt_store_close(t->s);
	ckpt_tiers_check_at(t->dir, &log, UINT64_MAX, true);
	ckpt_temp_empty(t->dir, true);
}

// --- The backend --------------------------------------------------------------------------------------------------------

static bool faulty_backend(enum ckpt_tiers_act which, const struct ckpt_fault *how, uint64_t n)
{
	struct ckpt_fault fault = {0};
	struct trial t;
	bool fired;

	ck_assert_uint_lt(n, CALLS_MAX);
	prepare(&t, which);
	ckpt_save_fault(t.s, &fault);
	fault = *how;
	fault.at = n;
	t.rc = act(&t);
	fired = fault.count >= n;
	fault.at = 0;
	check_answer(&t);
	return fired;
}

// Cooling what has packs makes no version: it has nothing to put.
START_TEST(a_backend_that_fails_or_loses_answers_loses_no_step)
{
	uint64_t n = ckpt_suite_first(2, _i), least = acts[_i % ACTS] == CKPT_TIERS_COOL_B_AGAIN ? 2 : 3;

	while (faulty_backend(acts[_i % ACTS], &ckpt_objectsfault_ways[_i / ACTS], n))
		n += ckpt_suite_stride(2);
	ck_assert_uint_gt(n, least);
}
END_TEST

// --- What else fails ----------------------------------------------------------------------------------------------------

static struct ckpt_sysfault fault;

static void begin_sys(uint64_t n, int way)
{
	fault = (struct ckpt_sysfault){
		.at = n, .error = ckpt_sysfault_error(way / 2, n), .sticky = way % 2, .torn = true};
	ckpt_sysfault_begin(&fault);
}

static uint64_t end_sys(void)
{
	ckpt_sysfault_end(&fault);
	return fault.count;
}

static void begin_libc(uint64_t n, int way)
{
	ckpt_callfault_begin(n, way ? -ENOMEM : -EIO);
}

static void begin_alloc(uint64_t n, int way)
{
	ckpt_allocfault_begin(n, way);
}

// The n-th fails, n = 1, 2, 3 ... until none is left; there are at least so many. By default each third does.
static void each(void (*begin)(uint64_t n, int way), uint64_t (*end)(void), int i, uint64_t least)
{
	uint64_t n = ckpt_suite_first(3, i);
	bool fired;

	do {
		struct trial t;

		ck_assert_uint_lt(n, CALLS_MAX);
		prepare(&t, acts[i % ACTS]);
		begin(n, i / ACTS);
		t.rc = act(&t);
		fired = end() >= n;
		check_answer(&t);
		if (fired)
			n += ckpt_suite_stride(3);
	} while (fired);
	ck_assert_uint_gt(n, least);
}

START_TEST(calls_behind_the_seam_that_fail_lose_no_step)
{
	each(begin_sys, end_sys, _i, 5);
}
END_TEST

START_TEST(calls_of_libc_that_fail_lose_no_step)
{
	each(begin_libc, ckpt_callfault_end, _i, 3);
}
END_TEST

START_TEST(allocations_that_fail_lose_no_step)
{
	each(begin_alloc, ckpt_allocfault_end, _i, 8);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gc faults");
	TCase *tcase = tcase_create("faults");

	tcase_add_loop_test(tcase, a_backend_that_fails_or_loses_answers_loses_no_step, 0,
			    CKPT_BACKENDFAULT_WAYS * ACTS);
	tcase_add_loop_test(tcase, calls_behind_the_seam_that_fail_lose_no_step, 0, 2 * ckpt_sysfault_kinds() * ACTS);
	tcase_add_loop_test(tcase, calls_of_libc_that_fail_lose_no_step, 0, 2 * ACTS);
	tcase_add_loop_test(tcase, allocations_that_fail_lose_no_step, 0, 2 * ACTS);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
