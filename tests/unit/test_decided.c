// What was decided: until when it holds, and how much of it is kept.
#include "tests/support/history.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/policy/decided.h"

#include <stdio.h>

#define NOW (1000 * HISTORY_SECOND)
#define NEVER INT64_MIN

static const struct ckpt_decision yes = {.save = true, .permanent = true, .resets = true, .by = "fixed_interval"};
static const struct ckpt_decision no = {0};

// Step 5, decided at NOW when 3 was the latest.
static const struct {
	const char *what;
	int64_t step, now_ns, changed_ns, latest;
	bool holds;
} rows[] = {
	{"at once", 5, NOW, NEVER, 3, true},
	{"of another step there is none", 6, NOW, NEVER, 3, false},
	{"up to ten minutes", 5, NOW + CKPT_DECIDED_NS - 1, NEVER, 3, true},
	{"not longer", 5, NOW + CKPT_DECIDED_NS, NEVER, 3, false},
	{"not for a clock that was set back", 5, NOW - 1, NEVER, 3, false},
	{"a commit of before does not matter", 5, NOW, NOW - 1, 3, true},
	{"not beyond its commit", 5, NOW + 2, NOW + 1, 5, false},
	{"not beyond that moment", 5, NOW + 2, NOW, 5, false},
	{"another step may be committed", 5, NOW + 2, NEVER, 4, true},
	{"not after a rollback", 5, NOW + 2, NEVER, 2, false},
	{"not after the only step was deleted", 5, NOW + 2, NEVER, -1, false},
};

START_TEST(a_decision_holds_as_the_table_says)
{
	struct ckpt_decided *d = malloc(sizeof(*d));

	ckpt_decided_init(d, 0);
	ckpt_decided_add(d, "", 4, NOW, 3, &no);
	ckpt_decided_add(d, "", 5, NOW, 3, &yes);
	ckpt_decided_add(d, "", 7, NOW, 3, &no);
	const struct ckpt_decided_step *found =
		ckpt_decided_find(d, "", rows[_i].step, rows[_i].now_ns, rows[_i].changed_ns, rows[_i].latest);
	ck_assert_msg(!found == !rows[_i].holds, "%s", rows[_i].what);
	if (found) {
		ck_assert(found->step == 5 && found->save && found->permanent);
		ck_assert_str_eq(found->by, "fixed_interval");
	}
	free(d);
}
END_TEST

START_TEST(a_step_has_one_decision_the_last)
{
	struct ckpt_decided *d = malloc(sizeof(*d));

	ckpt_decided_init(d, 7);
	ckpt_decided_add(d, "", 5, NOW, -1, &no);
	ck_assert_int_eq(ckpt_decided_clock(d, "", NOW), 7); // no save, and so no new start
	ck_assert(!ckpt_decided_find(d, "", 5, NOW, NEVER, -1)->save);
	ckpt_decided_add(d, "", 5, NOW + 1, -1, &yes);
	ck_assert_int_eq(ckpt_decided_clock(d, "", 0), NOW + 1);
	ck_assert(ckpt_decided_find(d, "", 5, NOW + 1, NEVER, -1)->save);
	ck_assert_uint_eq(d->count, 1);
	free(d);
}
END_TEST

START_TEST(the_oldest_go_first)
{
	struct ckpt_decided *d = malloc(sizeof(*d));

	ckpt_decided_init(d, 0);
	for (int64_t step = 0; step < CKPT_DECIDED_MAX + 10; step++)
		ckpt_decided_add(d, "", step, NOW + step, -1, &yes);
	ck_assert_uint_eq(d->count, CKPT_DECIDED_MAX);
	for (int64_t step = 0; step < CKPT_DECIDED_MAX + 10; step++)
		ck_assert_int_eq(ckpt_decided_find(d, "", step, NOW + 1000, NEVER, -1) != NULL, step >= 10);
	free(d);
}
END_TEST

START_TEST(as_json_it_says_the_same)
{
	struct ckpt_decided *d = malloc(2 * sizeof(*d));

	ckpt_decided_init(&d[0], 0);
	ck_assert_int_eq(d[0].preempted_at, -1);
	d[0].preempted_at = 1200;
	ckpt_decided_under(&d[0], 7);
	for (int64_t step = 0; step < CKPT_DECIDED_MAX; step++)
		ckpt_decided_add(&d[0], "", step, NOW + step, step - 1, step % 3 ? &yes : &no);
	CLEANUP_FREE char *text = ckpt_decided_text(&d[0]), *again = NULL;
	ck_assert_uint_lt(strlen(text), CKPT_VALUE_BYTES_MAX);
	ck_ok(ckpt_decided_parse(text, strlen(text), NOW * 2, &d[1]));
	again = ckpt_decided_text(&d[1]);
	ck_assert_str_eq(text, again);
	ck_assert_int_eq(ckpt_decided_clock(&d[1], "", 0), ckpt_decided_clock(&d[0], "", 0));
	ck_assert_uint_eq(d[1].policy, 7);
	ck_assert_int_eq(d[1].preempted_at, 1200);
	ck_assert_mem_eq(d[1].steps, d[0].steps, sizeof(d->steps));
	free(d);
}
END_TEST

// A run is a folder: its steps and its clock are its own.
START_TEST(each_run_has_its_own)
{
	struct ckpt_decided *d = malloc(2 * sizeof(*d));
	static const char a[] = "00000000000000aa", b[] = "00000000000000bb";

	ckpt_decided_init(d, 7);
	ck_assert_int_eq(ckpt_decided_clock(d, a, NOW), NOW); // it begins when it is asked for
	ckpt_decided_add(d, a, 5, NOW + 1, -1, &yes);
	ckpt_decided_add(d, b, 5, NOW + 2, -1, &no);
	ck_assert(!ckpt_decided_find(d, "", 5, NOW + 2, NEVER, -1));
	ck_assert(ckpt_decided_find(d, a, 5, NOW + 2, NEVER, -1)->save);
	ck_assert(!ckpt_decided_find(d, b, 5, NOW + 2, NEVER, -1)->save);
	CLEANUP_FREE char *text = ckpt_decided_text(d);
	ck_ok(ckpt_decided_parse(text, strlen(text), NOW * 2, &d[1]));
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ckpt_decided_clock(&d[i], a, 0), NOW + 1);
		ck_assert_int_eq(ckpt_decided_clock(&d[i], "", 0), 7);
		ck_assert_str_eq(ckpt_decided_find(&d[i], a, 5, NOW + 2, NEVER, -1)->by, "fixed_interval");
	}
	for (int i = 0; i < CKPT_DECIDED_RUNS_MAX - 1; i++) {
		char id[CKPT_FOLDER_ID_LEN + 1];

		snprintf(id, sizeof(id), "%016x", 0x1000 + i);
		ck_assert_int_eq(ckpt_decided_clock(d, id, NOW + 9), NOW + 9);
	}
	ck_assert_int_eq(ckpt_decided_clock(d, "", 0), 7); // the last of them that was asked for before
	ck_assert_int_eq(ckpt_decided_clock(d, a, 0), 0);  // which begins anew
	free(d);
}
END_TEST

#define STEP "{\"at_ns\":1,\"by\":\"\",\"folder\":\"\",\"latest\":-1,\"permanent\":false,\"save\":false,\"step\":5}"
#define WHOLE(runs, steps) "{\"runs\":[" runs "],\"policy\":0,\"decisions\":[" steps "]}"
#define RUN "{\"folder\":\"\",\"clock_ns\":1}"

START_TEST(what_is_damaged_says_nothing)
{
	static const char *const bad[] = {"",
					  "{",
					  "[]",
					  "{}",
					  "{\"clock_ns\":1,\"decisions\":[]}",
					  WHOLE("{\"folder\":\"\",\"clock_ns\":\"soon\"}", ""),
					  WHOLE("{\"folder\":\"../..\",\"clock_ns\":1}", ""),
					  WHOLE(RUN, "7"),
					  "{\"runs\":[],\"policy\":0,\"decisions\":[],\"preempted_at\":\"soon\"}",
					  "{\"runs\":[],\"policy\":0,\"decisions\":[],\"preempted_at\":-2}",
					  "{\"runs\":[" RUN "],\"policy\":\"\",\"decisions\":[]}",
					  "{\"runs\":[" RUN "],\"policy\":-1,\"decisions\":[]}",
					  WHOLE(RUN, STEP ",{\"at_ns\":1}"),
					  WHOLE(RUN, "{\"at_ns\":1,\"by\":\"a name of more than "
						     "thirty-one bytes\",\"folder\":\"\",\"latest\":-1,"
						     "\"permanent\":false,\"save\":false,\"step\":5}"),
					  WHOLE(RUN, "{\"at_ns\":1,\"by\":\"\",\"folder\":\"x\",\"latest\":-1,"
						     "\"permanent\":false,\"save\":false,\"step\":5}")};
	static const char good[] = WHOLE(RUN, STEP),
			  ahead[] = WHOLE("{\"folder\":\"\",\"clock_ns\":9223372036854775807}", "");
	struct ckpt_decided *d = malloc(sizeof(*d));

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		ck_ok(ckpt_decided_parse(bad[i], strlen(bad[i]), NOW, d));
		ck_assert_msg(d->count == 0 && ckpt_decided_clock(d, "", 0) == NOW, "%s", bad[i]);
	}
	ck_ok(ckpt_decided_parse(good, strlen(good), NOW, d));
	ck_assert(d->count == 1 && ckpt_decided_clock(d, "", 0) == 1 && d->preempted_at == -1);
	// A clock that runs ahead would put off time_interval for ever.
	ck_ok(ckpt_decided_parse(ahead, strlen(ahead), NOW, d));
	ck_assert_int_eq(ckpt_decided_clock(d, "", 0), NOW);
	free(d);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("decided");
	TCase *tcase = tcase_create("decided");

	tcase_add_loop_test(tcase, a_decision_holds_as_the_table_says, 0, ARRAY_LEN(rows));
	tcase_add_test(tcase, a_step_has_one_decision_the_last);
	tcase_add_test(tcase, the_oldest_go_first);
	tcase_add_test(tcase, as_json_it_says_the_same);
	tcase_add_test(tcase, each_run_has_its_own);
	tcase_add_test(tcase, what_is_damaged_says_nothing);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
