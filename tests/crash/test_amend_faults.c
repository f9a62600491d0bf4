// Adding to a committed step, replacing and taking out, when any call behind ckpt_sys or of the backend fails, once or
// from then on, or is done and its answer lost: the step is as before or as after, what is in memory is what is on the
// disk or the outcome was said to be unknown, and asking again gives the final answer.
#include "tests/support/amends.h"
#include "tests/support/save.h"
#include "tests/support/sysfault.h"

#include "core/sys.h"
#include "core/util.h"

#include <stdio.h>

#define CALLS_MAX 1000

struct trial {
	char dir[PATH_MAX];
	struct ckpt_store *s;
	size_t act;
	int rc;
};

static void prepare(struct trial *t, size_t act)
{
	*t = (struct trial){.act = act};
	ckpt_amends_init(t->dir);
	t->s = ckpt_save_open(t->dir);
	for (size_t i = 0; i < act; i++)
		ck_ok(ckpt_amends_do(t->s, i));
	ckpt_amends_settle(t->s);
}

// The answer is so, and the second attempt and all acts after it work.
static void check_answer(struct trial *t, int error)
{
	bool unknown = t->rc == -EIO;

	ck_assert_msg(!t->rc || t->rc == error || unknown, "%s", strerror(-t->rc));
	ckpt_amends_check_at(t->dir, t->act + !t->rc, t->act + (!t->rc || unknown));
	if (!unknown)
		ckpt_amends_check(t->s, t->act + !t->rc);
	if (t->rc)
		ck_ok(ckpt_amends_do(t->s, t->act));
	for (size_t i = t->act + 1; i <= CKPT_AMEND_ACTS; i++) {
		ckpt_amends_check(t->s, i);
		ckpt_amends_check_at(t->dir, i, i);
		if (i < CKPT_AMEND_ACTS)
			ck_ok(ckpt_amends_do(t->s, i));
	}
	ckpt_store_close(t->s);
	t->s = ckpt_save_open(t->dir);
	ckpt_amends_check(t->s, CKPT_AMEND_ACTS);
	ckpt_store_close(t->s);
	ckpt_temp_empty(t->dir, true);
}

static bool faulty_call(size_t act, uint64_t n, int error, bool sticky)
{
	struct ckpt_sysfault fault = {.at = n, .error = error, .sticky = sticky, .torn = true};
	struct trial t;

	ck_assert_uint_lt(n, CALLS_MAX);
	prepare(&t, act);
	ckpt_sysfault_begin(&fault);
	t.rc = ckpt_amends_do(t.s, act);
	ckpt_amends_settle(t.s);
	ckpt_sysfault_end(&fault);
	check_answer(&t, error);
	return fault.count >= n;
}

static const int errors[] = {-EIO, -ENOSPC, -ENOMEM};

START_TEST(a_call_that_fails_fails_the_act_or_does_no_harm)
{
	size_t act = (size_t)_i % CKPT_AMEND_ACTS, way = (size_t)_i / CKPT_AMEND_ACTS;
	uint64_t n = 1;

	while (faulty_call(act, n, errors[way / 2], way % 2))
		n++;
	printf("act %zu, way %zu: %llu calls\n", act, way, (unsigned long long)n - 1);
}
END_TEST

static const struct ckpt_fault ways[] = {
	{.error = -EIO},
	{.error = -EIO, .half = true},
	{.error = -EIO, .sticky = true},
	{.error = -EIO, .half = true, .sticky = true},
	{.error = -ENOSPC},
	{.error = -ENOSPC, .sticky = true},
};

static bool faulty_backend(size_t act, const struct ckpt_fault *how, uint64_t n)
{
	struct ckpt_fault fault = {0};
	struct trial t;
	bool fired;

	ck_assert_uint_lt(n, CALLS_MAX);
	prepare(&t, act);
	ck_ok(ckpt_backend_fault_new(t.s->backend, &fault, &t.s->backend));
	fault = *how;
	fault.at = n;
	t.rc = ckpt_amends_do(t.s, act);
	ckpt_amends_settle(t.s);
	fired = fault.count >= n;
	fault.at = 0;
	check_answer(&t, how->error);
	return fired;
}

START_TEST(a_backend_that_fails_or_loses_answers_gives_one_final_answer_in_the_end)
{
	size_t act = (size_t)_i % CKPT_AMEND_ACTS;
	uint64_t n = 1;

	while (faulty_backend(act, &ways[_i / CKPT_AMEND_ACTS], n))
		n++;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("amend faults");
	TCase *tcase = tcase_create("faults");
	const char *full = getenv("CKPT_TEST_FULL");
	int tried = full && atoi(full) ? (int)ARRAY_LEN(errors) : 1;

	tcase_add_loop_test(tcase, a_call_that_fails_fails_the_act_or_does_no_harm, 0, 2 * tried * CKPT_AMEND_ACTS);
	tcase_add_loop_test(tcase, a_backend_that_fails_or_loses_answers_gives_one_final_answer_in_the_end, 0,
			    (int)ARRAY_LEN(ways) * CKPT_AMEND_ACTS);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
