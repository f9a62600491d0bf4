// Runs of 2,000 steps under a test clock: the process dies before step 700 and before 1601, and is told at step 1300 that it
// is to end, which it does once that step's save is over, if it makes one. Each time it goes on behind the latest step that
// was committed. Which steps are there at the end follows from the rules of the system that the preset is of; it is written
// down here as a list, which knows nothing of policies.
#include "tests/support/history.h"
#include "tests/support/suite.h"

#include "core/preserve.h"
#include "core/util.h"

#include <stdio.h>

#define STEPS 2000
#define PREEMPTED_AT 1300

struct run {
	struct ckpt_policy policy;
	int64_t step_ns, save_ns;
	int64_t now_ns, clock_ns;
	struct ckpt_policy_step steps[STEPS]; // that are there
	size_t count;
	struct ckpt_policy_step saved; // under way until ends_ns
	bool saving;
	int64_t ends_ns;
};

static void retain(struct run *r)
{
	static struct ckpt_verdict verdicts[STEPS];
	size_t n = 0, temporary = 0;

	ck_ok(ckpt_preserve(&r->policy, r->steps, r->count, r->now_ns, verdicts));
	for (size_t i = 0; i < r->count; i++)
		if (verdicts[i].keep)
			r->steps[n++] = r->steps[i];
	r->count = n;
	for (size_t i = 0; i < r->count; i++)
		temporary += r->steps[i].temporary;
	ck_assert_uint_le(temporary, 1);
}

static void end_save(struct run *r)
{
	r->saved.committed_ns = r->ends_ns;
	r->now_ns = MAX(r->now_ns, r->ends_ns);
	ck_assert_uint_lt(r->count, STEPS);
	r->steps[r->count++] = r->saved;
	r->saving = false;
	retain(r);
}

static bool step(struct run *r, int64_t number, bool preempted)
{
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decision d;

	if (r->saving && r->ends_ns <= r->now_ns)
		end_save(r);
	const struct ckpt_decide q = {.step = number,
				      .steps = r->steps,
				      .count = r->count,
				      .now_ns = r->now_ns,
				      .clock_ns = r->clock_ns,
				      .saving = r->saving,
				      .preempted_at = preempted ? PREEMPTED_AT : -1};
	ck_ok(ckpt_decide(&r->policy, &q, &d, &why));
	if (d.resets)
		r->clock_ns = r->now_ns;
	if (!d.save)
		return false;
	if (r->saving) // one at a time
		end_save(r);
	r->saved = (struct ckpt_policy_step){.number = number, .temporary = !d.permanent};
	r->ends_ns = r->now_ns + r->save_ns;
	r->saving = true;
	return true;
}

// Up to `end`, from behind the latest step, by a process that has just begun.
static void process(struct run *r, int64_t end, bool preempted)
{
	int64_t number = r->count ? r->steps[r->count - 1].number + 1 : 0;

	r->now_ns += 60 * HISTORY_SECOND;
	r->clock_ns = r->now_ns;
	for (; number < end; number++, r->now_ns += r->step_ns)
		if (step(r, number, preempted) && preempted && number >= PREEMPTED_AT)
			break;
	if (r->saving && (r->ends_ns <= r->now_ns || preempted || end == STEPS))
		end_save(r); // it waits for that
	r->saving = false;
}

static char *play(const char *policy, int64_t step_ns, int64_t save_ns)
{
	static struct run r;
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	r = (struct run){.policy = policy_of(policy),
			 .step_ns = step_ns,
			 .save_ns = save_ns,
			 .now_ns = INT64_C(1700000000) * HISTORY_SECOND};
	process(&r, 700, false);
	process(&r, PREEMPTED_AT + 1, true);
	process(&r, 1601, false);
	process(&r, STEPS, false);
	for (size_t i = 0; i < r.count; i++)
		fprintf(f, "%lld%s ", (long long)r.steps[i].number, r.steps[i].temporary ? "t" : "");
	fclose(f);
	ckpt_policy_done(&r.policy);
	return text;
}

static void list(FILE *f, int first, int last, int every)
{
	for (int n = first; n <= last; n += every)
		fprintf(f, "%d ", n);
}

static void assert_end(const char *policy, double step_secs, double save_secs, void (*expect)(FILE *f))
{
	CLEANUP_FREE char *got = play(policy, (int64_t)(step_secs * 1e9), (int64_t)(save_secs * 1e9)), *want = NULL;
	size_t len;
	FILE *f = open_memstream(&want, &len);

	expect(f);
	fclose(f);
	ck_assert_msg(!strcmp(got, want), "%s:\n  %s\nnot\n  %s", policy, got, want);
}

// Every step.
static void by_orbax_v0(FILE *f)
{
	list(f, 0, 1999, 1);
}

static void last_three(FILE *f)
{
	list(f, 1997, 1999, 1);
}

START_TEST(orbax_v0)
{
	assert_end("{'preset':'orbax-v0'}", 1, 0, by_orbax_v0);
	assert_end("{'preset':'orbax-v0','keep':{'latest_n':{'n':3}}}", 1, 0.5, last_three);
}
END_TEST

// A save takes three steps and a half. Until the first is committed each step is an initial one, so that step 1 waits for step
// 0; then one in four is saved, from the first of each process on. The save of 697 is not over when the first one dies; that of
// 1300, for the preemption, waits for that of 1298.
static void by_orbax_v1(FILE *f)
{
	list(f, 0, 1, 1);
	list(f, 5, 693, 4);
	list(f, 694, 1298, 4);
	list(f, 1300, 1300, 1);
	list(f, 1301, 1597, 4);
	list(f, 1598, 1998, 4);
}

static void around_the_ends(FILE *f)
{
	list(f, 0, 0, 1);
	list(f, 698, 698, 4);
	list(f, 702, 702, 4);
	list(f, 1300, 1301, 1);
	list(f, 1998, 1998, 1);
}

START_TEST(orbax_v1)
{
	assert_end("{'preset':'orbax-v1'}", 1, 3.5, by_orbax_v1);
	assert_end("{'preset':'orbax-v1','keep':{'custom_steps':{'steps':[0,[697,702],[1299,1301],1600]}}}", 1, 3.5,
		   around_the_ends);
}
END_TEST

// The multiples of 500 for good, not 0; and 90 steps of ten seconds after each save, or the beginning of a process, a
// temporary one: ... 680, 771 861 951 1000, ... 1270, 1361 1451 1500 1590, 1681 1771 1861 1951. It knows of no preemption.
static void by_eformer(FILE *f)
{
	list(f, 500, 1500, 500);
	fprintf(f, "1951t ");
}

static void last_two_by_eformer(FILE *f)
{
	list(f, 1000, 1500, 500);
	fprintf(f, "1951t ");
}

static void the_newest(FILE *f)
{
	fprintf(f, "1951t ");
}

START_TEST(eformer)
{
	assert_end("{'preset':'eformer'}", 10, 0, by_eformer);
	assert_end("{'preset':'eformer','keep':{'latest_n':{'n':2}}}", 10, 0, last_two_by_eformer);
	assert_end("{'preset':'eformer','keep':{'latest_n':{'n':0}}}", 10, 0, the_newest);
}
END_TEST

// The first, and the one of the preemption.
static void by_maxtext(FILE *f)
{
	list(f, 0, 1300, 1300);
}

// Step 1 is an initial one, too, as step 0 is not committed yet.
static void by_slow_maxtext(FILE *f)
{
	list(f, 0, 1, 1);
	list(f, 1300, 1300, 1);
}

START_TEST(maxtext)
{
	assert_end("{'preset':'maxtext'}", 1, 0, by_maxtext);
	assert_end("{'preset':'maxtext'}", 1, 100, by_slow_maxtext);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy_run");
	TCase *tcase = tcase_create("policy_run");

	tcase_add_test(tcase, orbax_v0);
	tcase_add_test(tcase, orbax_v1);
	tcase_add_test(tcase, eformer);
	tcase_add_test(tcase, maxtext);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
