// Adding to a committed step, replacing and taking out, when any call behind ckpt_sys or of the backend fails, once or
// from then on, or is done and its answer lost: the step is as before or as after, what is in memory is what is on the
// disk or the outcome was said to be unknown, and asking again gives the final answer.
#include "core/step/amending.h"
#include "core/store/open.h"
#include "tests/support/amends.h"
#include "tests/support/backendfault.h"
#include "tests/support/callfault.h"
#include "tests/support/hooks.h"
#include "tests/support/save.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/delete.h"

#include <fcntl.h>
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
	ckpt_save_settle_all(t->s);
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

static bool faulty_call(size_t act, uint64_t n, int kind, bool sticky)
{
	int error = ckpt_sysfault_error(kind, n);
	struct ckpt_sysfault fault = {.at = n, .error = error, .sticky = sticky, .torn = true};
	struct trial t;

	ck_assert_uint_lt(n, CALLS_MAX);
	prepare(&t, act);
	ckpt_sysfault_begin(&fault);
	t.rc = ckpt_amends_do(t.s, act);
	ckpt_save_settle_all(t.s);
	ckpt_sysfault_end(&fault);
	check_answer(&t, error);
	return fault.count >= n;
}

// One of a pair of ways has the other's gaps.
static uint64_t first(size_t act, size_t way)
{
	return ckpt_suite_first(2, (int)(act + (way + 1) / 2));
}

START_TEST(a_call_that_fails_fails_the_act_or_does_no_harm)
{
	size_t act = ckpt_amends_change((size_t)_i % CKPT_AMEND_CHANGES), way = (size_t)_i / CKPT_AMEND_CHANGES;
	uint64_t n = first(act, way);

	while (faulty_call(act, n, (int)way / 2, way % 2))
		n += ckpt_suite_stride(2);
	printf("act %zu, way %zu: %llu calls\n", act, way, (unsigned long long)n - 1);
	ck_assert_uint_gt(n, 10);
}
END_TEST

// Those that change nothing, and so are not behind ckpt_sys.
static bool faulty_call_of_libc(size_t act, uint64_t n, int error)
{
	struct trial t;
	bool fired;

	ck_assert_uint_lt(n, CALLS_MAX);
	prepare(&t, act);
	ckpt_callfault_begin(n, error);
	t.rc = ckpt_amends_do(t.s, act);
	ckpt_save_settle_all(t.s);
	fired = ckpt_callfault_end() >= n;
	check_answer(&t, error);
	return fired;
}

START_TEST(a_call_of_libc_that_fails_fails_the_act_or_does_no_harm)
{
	size_t act = ckpt_amends_change((size_t)_i / 2), way = (size_t)_i % 2;
	uint64_t n = first(act, way);

	while (faulty_call_of_libc(act, n, way ? -ENOMEM : -EIO))
		n += ckpt_suite_stride(2);
	ck_assert_uint_gt(n, 2);
}
END_TEST

static bool faulty_backend(size_t act, const struct ckpt_fault *how, uint64_t n)
{
	struct ckpt_fault fault = {0};
	struct trial t;
	bool fired;

	ck_assert_uint_lt(n, CALLS_MAX);
	prepare(&t, act);
	ckpt_save_fault(t.s, &fault);
	fault = *how;
	fault.at = n;
	t.rc = ckpt_amends_do(t.s, act);
	ckpt_save_settle_all(t.s);
	fired = fault.count >= n;
	fault.at = 0;
	check_answer(&t, how->error);
	return fired;
}

START_TEST(a_backend_that_fails_or_loses_answers_gives_one_final_answer_in_the_end)
{
	size_t act = (size_t)_i % CKPT_AMEND_ACTS, way = (size_t)_i / CKPT_AMEND_ACTS;
	uint64_t n = first(act, way);

	while (faulty_backend(act, &ckpt_objectsfault_ways[way], n))
		n += ckpt_suite_stride(2);
	ck_assert_uint_gt(n, 2);
}
END_TEST

// --- A lost write -------------------------------------------------------------------------------------------------------

static int fsyncs_to_fail;

static int fsync_once(int fd)
{
	return fsyncs_to_fail-- > 0 ? -EIO : fsync(fd) ? -errno : 0;
}

static int put_new(struct ckpt_store *s, struct ckpt_step *step, const char *name)
{
	CLEANUP_FREE char *path = NULL;
	CLEANUP_FD int fd = -1;

	ck_assert_int_gt(asprintf(&path, "%s/%s", step->session, name), 0);
	fd = ckpt_sys.open(s->sessions_fd, path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, "text", 4, 0));
	return 0;
}

// The kernel reports it once, and a later fsync of the same bytes succeeds: they must be written anew.
START_TEST(a_lost_write_is_not_made_good_by_a_second_close)
{
	int (*const whole)(int fd) = ckpt_hooks.fsync;
	struct ckpt_step *step;
	struct trial t;
	size_t done;

	prepare(&t, 0);
	step = ckpt_amends_step(t.s, &done);
	put_new(t.s, step, "late");
	ck_ok(ckpt_amending_begin(step, "late", NULL));
	fsyncs_to_fail = 1;
	ckpt_hook_set(fsync, fsync_once);
	ck_error(ckpt_amend_add(step, "late"), EIO);
	ck_error(ckpt_amend_add(step, "late"), EIO);
	ck_ok(ckpt_amending_settle(step));
	ck_assert(ckpt_amending_is_pending(step, "late"));
	ckpt_hook_set(fsync, whole);
	ckpt_step_unref(step);
	t.rc = -EIO;
	check_answer(&t, -EIO);
}
END_TEST

// Of a file that is added and of a step that changes meanwhile.
START_TEST(what_is_no_place_for_an_addition_is_refused)
{
	struct ckpt_step *step;
	struct trial t;
	size_t done;

	prepare(&t, 0);
	step = ckpt_amends_step(t.s, &done);
	ck_error(ckpt_amend_add(step, "config"), EEXIST);
	ck_error(ckpt_amend_add(step, "nothing/x"), ENOENT);
	ck_error(ckpt_amend_add(step, "nothing"), ENOENT);
	ck_error(ckpt_amend_add(step, "model/x"), ENOTDIR);
	ck_error(ckpt_amend_replace(step, "nothing", "model"), ENOENT);
	ck_error(ckpt_amend_replace(step, "sub", "model"), EEXIST);
	ck_error(ckpt_amend_remove(step, "nothing"), ENOENT);
	ck_error(ckpt_amend_remove(step, ""), EINVAL);
	ckpt_amends_check(t.s, 0);
	ck_ok(ckpt_delete(step));
	ck_error(ckpt_amend_add(step, "late"), ESTALE);
	ck_error(ckpt_amend_remove(step, "config"), ESTALE);
	ck_ok(ckpt_undelete(step));
	ck_ok(ckpt_amend_remove(step, "config"));
	ckpt_step_unref(step);
	ckpt_store_close(t.s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("amend faults");
	TCase *tcase = tcase_create("faults");

	tcase_add_loop_test(tcase, a_call_that_fails_fails_the_act_or_does_no_harm, 0,
			    2 * ckpt_sysfault_kinds() * CKPT_AMEND_CHANGES);
	tcase_add_loop_test(tcase, a_call_of_libc_that_fails_fails_the_act_or_does_no_harm, 0, 2 * CKPT_AMEND_CHANGES);
	tcase_add_loop_test(tcase, a_backend_that_fails_or_loses_answers_gives_one_final_answer_in_the_end, 0,
			    CKPT_BACKENDFAULT_WAYS * CKPT_AMEND_ACTS);
	tcase_add_test(tcase, a_lost_write_is_not_made_good_by_a_second_close);
	tcase_add_test(tcase, what_is_no_place_for_an_addition_is_refused);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
