// Whether a step is to be saved: each policy by a table, and those that run a program.
#include "tests/support/history.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#define FORCE 1
#define SAVING 2
#define PREEMPTED_AT_7 4

#define STAGES "{'step_intervals':[{'every':50,'until':100},{'every':100,'until':1000},{'every':1000}]}"
#define ENDS "{'step_intervals':[{'every':100,'until':1000}]}"
#define EVERY_15_MIN "{'time_interval':{'save_interval_secs':900}}"
#define ANY_OF_BOTH "{'any':[" EVERY_15_MIN ",{'fixed_interval':{'interval':100}}]}"
#define YES "{'fixed_interval':{'interval':1}}"
#define NEVER "{'specific_steps':{'steps':[]}}"
#define BROKEN "{'exec':{'command':['/nonexistent/decide']}}"
#define BROKEN_WHY "exec: /nonexistent/decide could not be run: No such file or directory"

// The clock of time_interval starts at 0. now is in seconds.
static const struct row {
	const char *save;
	int64_t step;
	const char *steps;
	double now;
	int how;
	const char *answer; // as the command line says it; a no by a rule with the rule behind it
} rows[] = {
	// fixed_interval: multiples, 0 too; what was saved does not matter.
	{"{'fixed_interval':{'interval':10}}", 0, "", 0, 0, "yes permanent fixed_interval"},
	{"{'fixed_interval':{'interval':10}}", 10, "", 0, 0, "yes permanent fixed_interval"},
	{"{'fixed_interval':{'interval':10}}", 20, "19@1", 1, SAVING, "yes permanent fixed_interval"},
	{"{'fixed_interval':{'interval':10}}", 15, "", 0, 0, "no"},
	{"{'fixed_interval':{'interval':9223372036854775807}}", INT64_MAX, "", 0, 0, "yes permanent fixed_interval"},
	// specific_steps: those, and ranges with both ends.
	{"{'specific_steps':{'steps':[1,5,[10,20]]}}", 5, "", 0, 0, "yes permanent specific_steps"},
	{"{'specific_steps':{'steps':[1,5,[10,20]]}}", 10, "", 0, 0, "yes permanent specific_steps"},
	{"{'specific_steps':{'steps':[1,5,[10,20]]}}", 20, "", 0, 0, "yes permanent specific_steps"},
	{"{'specific_steps':{'steps':[1,5,[10,20]]}}", 21, "", 0, 0, "no"},
	{"{'specific_steps':{'steps':[1,5,[10,20]]}}", 0, "", 0, 0, "no"},
	// continuous: not while a save is in progress; then the first, and after the interval, inclusive.
	{"{'continuous':{}}", 3, "", 0, SAVING, "no"},
	{"{'continuous':{}}", 3, "", 0, 0, "yes permanent continuous"},
	{"{'continuous':{}}", 4, "3@100", 100, 0, "yes permanent continuous"},
	{"{'continuous':{'minimum_interval_secs':600}}", 3, "", 0, SAVING, "no"},
	{"{'continuous':{'minimum_interval_secs':600}}", 3, "", 0, 0, "yes permanent continuous"},
	{"{'continuous':{'minimum_interval_secs':600}}", 4, "3@100", 699.9, 0, "no"},
	{"{'continuous':{'minimum_interval_secs':600}}", 4, "3@100", 700, 0, "yes permanent continuous"},
	{"{'continuous':{'minimum_interval_secs':600}}", 4, "3@100", 700, SAVING, "no"},
	{"{'continuous':{'minimum_interval_secs':600}}", 5, "3@100 4@400t", 900, 0, "no"}, // temporary ones count
	// A step that was committed in the future, by a clock that was set back, puts nothing off.
	{"{'continuous':{'minimum_interval_secs':600}}", 4, "3@100", 50, 0, "yes permanent continuous"},
	{EVERY_15_MIN, 7, "6@5000", 900, 0, "yes temporary time_interval"},
	{EVERY_15_MIN, 7, "6@5000", 899.9, 0, "no"}, // nor is it a reason to save
	{EVERY_15_MIN, 7, "", -1, 0, "yes temporary time_interval"},
	// initial: no step is there.
	{"{'initial':{}}", 7, "", 0, SAVING, "yes permanent initial"},
	{"{'initial':{}}", 7, "6@1", 0, 0, "no"},
	// preemption: from its step on, the same for all who ask.
	{"{'preemption':{}}", 7, "", 0, 0, "no"},
	{"{'preemption':{}}", 6, "", 0, PREEMPTED_AT_7, "no"},
	{"{'preemption':{}}", 7, "", 0, PREEMPTED_AT_7 | SAVING, "yes permanent preemption"},
	{"{'preemption':{}}", 8, "", 0, PREEMPTED_AT_7, "yes permanent preemption"},
	// step_intervals: until is inclusive, the first row that reaches so far decides alone.
	{STAGES, 50, "", 0, 0, "yes permanent step_intervals"},
	{STAGES, 100, "", 0, 0, "yes permanent step_intervals"},
	{STAGES, 150, "", 0, 0, "no"},
	{STAGES, 1000, "", 0, 0, "yes permanent step_intervals"},
	{STAGES, 1100, "", 0, 0, "no"},
	{STAGES, 2000, "", 0, 0, "yes permanent step_intervals"},
	{ENDS, 1000, "", 0, 0, "yes permanent step_intervals"},
	{ENDS, 1100, "", 0, 0, "no"}, // no row reaches so far
	{"{'step_intervals':[]}", 0, "", 0, 0, "no"},
	// time_interval: temporary, inclusive, since the start or the last save, whatever that was.
	{EVERY_15_MIN, 7, "", 899.9, 0, "no"},
	{EVERY_15_MIN, 7, "", 900, 0, "yes temporary time_interval"},
	{EVERY_15_MIN, 7, "6@100", 999.9, 0, "no"},
	{EVERY_15_MIN, 7, "6@100", 1000, 0, "yes temporary time_interval"},
	// any: permanent wins, in whatever order; of two the first.
	{ANY_OF_BOTH, 7, "", 900, 0, "yes temporary time_interval"},
	{ANY_OF_BOTH, 100, "", 900, 0, "yes permanent fixed_interval"},
	{ANY_OF_BOTH, 100, "", 0, 0, "yes permanent fixed_interval"},
	{ANY_OF_BOTH, 7, "", 0, 0, "no"},
	{"{'any':[{'initial':{}},{'fixed_interval':{'interval':1}}]}", 7, "", 0, 0, "yes permanent initial"},
	{"{'any':[{'initial':{}},{'fixed_interval':{'interval':1}}]}", 7, "6@1", 2, 0, "yes permanent fixed_interval"},
	{"{'any':[{'any':[" NEVER "," YES "]}]}", 7, "", 0, 0, "yes permanent fixed_interval"},
	// all, not.
	{"{'all':[" YES ",{'not':{'specific_steps':{'steps':[3000]}}}]}", 7, "", 0, 0, "yes permanent all"},
	{"{'all':[" YES ",{'not':{'specific_steps':{'steps':[3000]}}}]}", 3000, "", 0, 0, "no"},
	{"{'all':[" YES "," EVERY_15_MIN "]}", 7, "", 900, 0, "yes temporary all"}, // it would not be saved without it
	{"{'not':" EVERY_15_MIN "}", 7, "", 900, 0, "no"},
	{"{'not':" EVERY_15_MIN "}", 7, "", 0, 0, "yes permanent not"},
	{"{'any':[{'all':[" YES "," EVERY_15_MIN "]}," YES "]}", 7, "", 900, 0, "yes permanent fixed_interval"},
	// The rules before.
	{YES, 7, "7@1", 2, 0, "no skip_duplicate"},
	{YES, 6, "7@1", 2, 0, "no latest_step"},
	{YES, 6, "7@1 3@2", 3, 0, "no latest_step"}, // the highest, whichever was saved last
	{YES, 8, "7@1", 2, 0, "yes permanent fixed_interval"},
	{NEVER, 7, "7@1", 2, FORCE, "yes permanent force"},
	{NEVER, 6, "7@1", 2, FORCE | SAVING, "yes permanent force"},
	{EVERY_15_MIN, 6, "", 900, FORCE, "yes permanent force"}, // not temporary, although that is due
	// What fails says so, unless the others decide without it.
	{BROKEN, 7, "", 0, 0, BROKEN_WHY},
	{"{'any':[" BROKEN "," YES "]}", 7, "", 0, 0, "yes permanent fixed_interval"},
	{"{'any':[" BROKEN "," EVERY_15_MIN "]}", 7, "", 900, 0, BROKEN_WHY},
	{"{'any':[" NEVER "," BROKEN "]}", 7, "", 0, 0, BROKEN_WHY},
	{"{'all':[" BROKEN "," NEVER "]}", 7, "", 0, 0, "no"},
	{"{'all':[" BROKEN "," YES "]}", 7, "", 0, 0, BROKEN_WHY},
	{"{'not':" BROKEN "}", 7, "", 0, 0, BROKEN_WHY},
	{BROKEN, 7, "7@1", 2, 0, "no skip_duplicate"},
	{BROKEN, 7, "", 0, FORCE, "yes permanent force"},
};

// As the command line says it; malloc'ed.
static char *answer(const struct ckpt_policy *p, const struct ckpt_decide *q)
{
	struct ckpt_decision d = {0};
	CLEANUP_FREE char *why = NULL;
	char *text = NULL;
	int rc = ckpt_decide(p, q, &d, &why);

	if (rc)
		return TAKE_PTR(why);
	ck_assert_ptr_null(why);
	ck_assert(d.resets == d.save || !strcmp(d.by, "skip_zero"));
	if (asprintf(&text, "%s%s%s",
		     !d.save       ? "no"
		     : d.permanent ? "yes permanent"
				   : "yes temporary",
		     d.by ? " " : "", d.by ? d.by : "") < 0)
		ck_abort();
	return text;
}

static struct ckpt_policy saving(const char *save)
{
	CLEANUP_FREE char *text = NULL;

	if (asprintf(&text, "{'save':%s}", save) < 0)
		ck_abort();
	return policy_of(text);
}

START_TEST(a_step_is_decided_as_the_table_says)
{
	const struct row *r = &rows[_i];
	struct ckpt_policy p = saving(r->save);
	struct history h;

	history_parse(r->steps, &h);
	const struct ckpt_decide q = {.step = r->step,
				      .force = r->how & FORCE,
				      .steps = h.steps,
				      .count = h.count,
				      .now_ns = (int64_t)(r->now * 1e9),
				      .saving = r->how & SAVING,
				      .preempted_at = r->how & PREEMPTED_AT_7 ? 7 : -1};
	CLEANUP_FREE char *got = answer(&p, &q);
	ck_assert_msg(!strcmp(got, r->answer), "%s, step %lld: %s, not %s", r->save, (long long)r->step, got,
		      r->answer);
	history_done(&h);
	ckpt_policy_done(&p);
}
END_TEST

START_TEST(flags_skip_step_zero_and_duplicates)
{
	struct ckpt_policy p = policy_of("{'save':" YES ",'skip_zero':true}"),
			   again = policy_of("{'save':" YES ",'skip_duplicate':false}");
	const struct ckpt_policy_step seven = {.number = 7};
	struct ckpt_decide q = {.preempted_at = -1};
	struct ckpt_decision d;
	char *why;

	ck_ok(ckpt_decide(&p, &q, &d, &why));
	ck_assert(!d.save && d.resets); // the clock starts anew all the same
	ck_assert_str_eq(d.by, "skip_zero");
	q.force = true;
	ck_ok(ckpt_decide(&p, &q, &d, &why));
	ck_assert(d.save && d.permanent && d.resets);
	q = (struct ckpt_decide){.step = 7, .steps = &seven, .count = 1, .preempted_at = -1};
	ck_ok(ckpt_decide(&p, &q, &d, &why));
	ck_assert(!d.save && !d.resets);
	ck_ok(ckpt_decide(&again, &q, &d, &why));
	ck_assert(d.save && d.permanent);
	q.step = 6;
	ck_ok(ckpt_decide(&again, &q, &d, &why));
	ck_assert(!d.save && !strcmp(d.by, "latest_step"));
	ckpt_policy_done(&p);
	ckpt_policy_done(&again);
}
END_TEST

// eFormer knows no order: step 0, and the one that was saved last, are all that it skips.
START_TEST(without_only_after_latest_an_older_step_is_asked_of_the_policy)
{
	struct ckpt_policy p = policy_of("{'preset':'eformer','save':" YES "}");
	// Step 3 was saved anew after 7.
	const struct ckpt_policy_step steps[] = {{.number = 3, .sequence = 3}, {.number = 7, .sequence = 2}};
	struct ckpt_decide q = {.step = 5, .steps = steps, .count = 2, .preempted_at = -1};
	struct ckpt_decision d;
	char *why;

	ck_ok(ckpt_decide(&p, &q, &d, &why));
	ck_assert(d.save && d.permanent);
	q.step = 2;
	ck_ok(ckpt_decide(&p, &q, &d, &why));
	ck_assert(d.save && d.permanent);
	q.step = 7;
	ck_ok(ckpt_decide(&p, &q, &d, &why));
	ck_assert(d.save && d.permanent);
	q.step = 3;
	ck_ok(ckpt_decide(&p, &q, &d, &why));
	ck_assert(!d.save && !strcmp(d.by, "skip_duplicate"));
	q.step = 0;
	ck_ok(ckpt_decide(&p, &q, &d, &why));
	ck_assert(!d.save && !strcmp(d.by, "skip_zero"));
	q = (struct ckpt_decide){.step = 5, .preempted_at = -1};
	ck_ok(ckpt_decide(&p, &q, &d, &why));
	ck_assert(d.save);
	ckpt_policy_done(&p);
}
END_TEST

START_TEST(the_clock_of_time_interval_starts_where_it_was_set)
{
	struct ckpt_policy p = saving(EVERY_15_MIN);
	const struct ckpt_policy_step early = {.number = 7, .committed_ns = 100 * HISTORY_SECOND};
	struct ckpt_decide q = {.step = 8,
				.steps = &early,
				.count = 1,
				.now_ns = 1499 * HISTORY_SECOND,
				.clock_ns = 600 * HISTORY_SECOND,
				.preempted_at = -1};
	CLEANUP_FREE char *before = answer(&p, &q), *after = NULL;

	q.now_ns = 1500 * HISTORY_SECOND;
	after = answer(&p, &q);
	ck_assert_str_eq(before, "no");
	ck_assert_str_eq(after, "yes temporary time_interval");
	ckpt_policy_done(&p);
}
END_TEST

START_TEST(a_function_of_the_users_decides_in_place_of_the_tree)
{
	static const struct {
		enum ckpt_decide_answer says;
		const char *answer;
	} table[] = {{CKPT_DECIDE_NO, "no"},
		     {CKPT_DECIDE_TEMPORARY, "yes temporary callback"},
		     {CKPT_DECIDE_PERMANENT, "yes permanent callback"}};
	struct ckpt_policy p = saving(YES);

	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		const struct ckpt_decide q = {.step = 7, .preempted_at = -1, .answered = true, .answer = table[i].says};
		CLEANUP_FREE char *got = answer(&p, &q);

		ck_assert_str_eq(got, table[i].answer);
	}
	ckpt_policy_done(&p);
}
END_TEST

// --- Programs ---------------------------------------------------------------------------------------------------------

static char place[PATH_MAX], script[PATH_MAX + 16], noted[PATH_MAX + 16];

static void setup(void)
{
	ckpt_temp_dir(place);
	snprintf(script, sizeof(script), "%s/decide", place);
	snprintf(noted, sizeof(noted), "%s/noted", place);
}

// What a program with these lines says of step 40, after 30 was saved at 10 s.
static char *ask_program(const char *lines, unsigned timeout_secs)
{
	const struct ckpt_policy_step thirty = {.number = 30, .committed_ns = 10 * HISTORY_SECOND};
	const struct ckpt_decide q = {.step = 40,
				      .folder = "runs/a b",
				      .store = "/data/a store",
				      .steps = &thirty,
				      .count = 1,
				      .now_ns = HISTORY_SECOND * 3 / 2,
				      .saving = true,
				      .preempted_at = 40};
	CLEANUP_FREE char *text = NULL;
	struct ckpt_policy p;
	FILE *f = fopen(script, "w");
	char *got;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_gt(fprintf(f, "#!/bin/sh\n%s\n", lines), 0);
	ck_assert_int_eq(fchmod(fileno(f), 0755) | fclose(f), 0);
	ck_assert_int_gt(
		asprintf(&text, "{'exec':{'command':['%s','a b','$HOME'],'timeout_secs':%u}}", script, timeout_secs),
		0);
	p = saving(text);
	got = answer(&p, &q);
	ckpt_policy_done(&p);
	return got;
}

static void assert_program(const char *lines, const char *format)
{
	CLEANUP_FREE char *got = ask_program(lines, 10), *want = NULL;

	ck_assert_int_gt(asprintf(&want, format, script), 0);
	ck_assert_str_eq(got, want);
}

START_TEST(a_program_says_yes_by_0_and_no_by_1)
{
	assert_program("exit 0", "yes permanent exec%.0s");
	assert_program("exit 1", "no%.0s");
	assert_program("exit 2", "exec: %s ended with status 2, which is neither 0 (yes) nor 1 (no)");
	assert_program("echo; echo no such file >&2; exit 127",
		       "exec: %s ended with status 127, which is neither 0 (yes) nor 1 (no): no such file");
	assert_program("kill -SEGV $$", "exec: %s was ended by signal 11 (Segmentation fault)");
}
END_TEST

START_TEST(a_program_gets_its_words_as_they_are_and_the_context)
{
	CLEANUP_FREE char *lines = NULL;
	char got[1024] = "";
	FILE *f;

	setenv("CKPT_STEP", "of somebody else", 1);
	setenv("KEPT", "as it is", 1);
	ck_assert_int_gt(asprintf(&lines,
				  "echo \"$#|$1|$2|$KEPT|$CKPT_STEP|$CKPT_NOW|$CKPT_SAVING|$CKPT_PREEMPTED|$CKPT_STEPS|"
				  "$CKPT_LATEST_STEP|$CKPT_LATEST_TIME|$CKPT_RUN|$CKPT_STORE|$(tr '\\0' '\\n' "
				  "</proc/$$/environ | grep -c "
				  "^CKPT_STEP=)|$(ls /proc/self/fd "
				  "| wc -l)|\" >%s; cat",
				  noted),
			 0);
	assert_program(lines, "yes permanent exec%.0s");
	f = fopen(noted, "r");
	ck_assert_ptr_nonnull(fgets(got, sizeof(got), f));
	fclose(f);
	ck_assert_str_eq(got,
			 "2|a b|$HOME|as it is|40|1970-01-01T00:00:01.500000000Z|1|1|1|30|"
			 "1970-01-01T00:00:10.000000000Z|runs/a b|/data/a store|1|4|\n"); // its three, and that of ls
}
END_TEST

// And all that it has started; who waits does not wait longer than he was told to.
START_TEST(a_program_that_hangs_is_killed_with_its_children)
{
	CLEANUP_FREE char *lines = NULL, *got = NULL, *want = NULL;
	int64_t began_ns = ckpt_sys.mono_ns();
	pid_t child = 0;
	FILE *f;

	ck_assert_int_gt(asprintf(&lines, "trap '' TERM\nsleep 60 & echo $! >%s\nwait\nsleep 60", noted), 0);
	got = ask_program(lines, 1);
	ck_assert_int_lt(ckpt_sys.mono_ns() - began_ns, 10 * HISTORY_SECOND);
	ck_assert_int_gt(asprintf(&want, "exec: %s did not end within 1 s, and was ended", script), 0);
	ck_assert_str_eq(got, want);
	f = fopen(noted, "r");
	ck_assert_int_eq(fscanf(f, "%d", &child), 1);
	fclose(f);
	for (int i = 0; i < 1000 && !kill(child, 0); i++) {
		char path[64], state = 0;

		snprintf(path, sizeof(path), "/proc/%d/stat", child);
		f = fopen(path, "r");
		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1 || state == 'Z')
			return; // nobody here waits for it
		fclose(f);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	ck_assert_msg(kill(child, 0), "its child lives on");
}
END_TEST

START_TEST(a_program_has_no_signals_blocked)
{
	sigset_t blocked;

	sigfillset(&blocked);
	pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	signal(SIGTERM, SIG_IGN);
	assert_program("kill -TERM $$; exit 0", "exec: %s was ended by signal 15 (Terminated)");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("decide");
	TCase *tcase = tcase_create("decide");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, a_step_is_decided_as_the_table_says, 0, ARRAY_LEN(rows));
	tcase_add_test(tcase, flags_skip_step_zero_and_duplicates);
	tcase_add_test(tcase, without_only_after_latest_an_older_step_is_asked_of_the_policy);
	tcase_add_test(tcase, the_clock_of_time_interval_starts_where_it_was_set);
	tcase_add_test(tcase, a_function_of_the_users_decides_in_place_of_the_tree);
	tcase_add_test(tcase, a_program_says_yes_by_0_and_no_by_1);
	tcase_add_test(tcase, a_program_gets_its_words_as_they_are_and_the_context);
	tcase_add_test(tcase, a_program_that_hangs_is_killed_with_its_children);
	tcase_add_test(tcase, a_program_has_no_signals_blocked);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
