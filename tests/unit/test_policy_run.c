// Runs of 2,000 steps under a test clock: the process dies before step 700 and before 1601, and is told at step 1300 that it
// is to end, which it does once that step's save is over, if it makes one. Each time it goes on behind the latest step that
// was committed. Which steps are there at the end follows from the rules of the system that the preset is of; it is written
// down here as a list, which knows nothing of policies.
//
// Each run is played twice: by the policies alone, and with a store that is asked, saved into, and left by retention with what
// stays.
#include "tests/support/fixture.h"
#include "tests/support/history.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/policy_store.h"
#include "core/policy/retain.h"
#include "core/policy/should_save.h"
#include "core/policy/temporary.h"

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
	// With a store (s of fixture.h).
	bool stored;
	struct ckpt_step *staged; // what is under way
	struct ckpt_decided decided;
};

static int64_t store_now_ns; // atomic

static int64_t store_now(void)
{
	return __atomic_load_n(&store_now_ns, __ATOMIC_RELAXED);
}

// What a mount does behind, done to its end.
static void retain_in_store(struct run *r)
{
	bool stop = false, told = false;

	__atomic_store_n(&store_now_ns, r->now_ns, __ATOMIC_RELAXED);
	while (ckpt_temporary_expire(s, 0, &stop) != INT64_MAX || ckpt_retain_behind(s, 0, &stop, &told) != INT64_MAX)
		ck_assert(!told);
}

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
	r->saving = false;
	if (r->stored) {
		__atomic_store_n(&store_now_ns, r->ends_ns, __ATOMIC_RELAXED);
		ck_ok(ckpt_staged_commit(r->staged, 5000000, r->saved.temporary ? "{\"temporary\":true}" : NULL));
		ckpt_step_unref(TAKE_PTR(r->staged));
		retain_in_store(r);
		return;
	}
	ck_assert_uint_lt(r->count, STEPS);
	r->steps[r->count++] = r->saved;
	retain(r);
}

static void begin_save(struct run *r, int64_t number, bool temporary)
{
	char name[32];

	r->saved = (struct ckpt_policy_step){.number = number, .temporary = temporary};
	r->ends_ns = r->now_ns + r->save_ns;
	r->saving = true;
	if (!r->stored)
		return;
	snprintf(name, sizeof(name), "%lld", (long long)number);
	r->staged = ckpt_staged_begin(s, name);
	close(ckpt_staged_put(r->staged, "model.bin", name));
}

static void ask_store(struct run *r, struct ckpt_decide *q, struct ckpt_decision *ret)
{
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decided_step d;
	bool changed;

	__atomic_store_n(&store_now_ns, r->now_ns, __ATOMIC_RELAXED);
	ck_ok(ckpt_should_save_by(s, q, &r->decided, &d, &changed, &why));
	*ret = (struct ckpt_decision){.save = d.save, .permanent = d.permanent}; // the store keeps the clock
}

static bool step_is_saved(struct run *r, int64_t number, bool preempted)
{
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decision d;

	if (r->saving && r->ends_ns <= r->now_ns)
		end_save(r);
	struct ckpt_decide q = {.step = number,
				.steps = r->steps,
				.count = r->count,
				.now_ns = r->now_ns,
				.clock_ns = r->clock_ns,
				.saving = r->saving,
				.preempted_at = preempted ? PREEMPTED_AT : -1};
	if (r->stored)
		ask_store(r, &q, &d);
	else
		ck_ok(ckpt_decide(&r->policy, &q, &d, &why));
	if (d.resets)
		r->clock_ns = r->now_ns;
	if (!d.save)
		return false;
	if (r->saving) // one at a time
		end_save(r);
	begin_save(r, number, !d.permanent);
	return true;
}

static void read_store(struct run *r)
{
	struct ckpt_history h;

	ck_ok(ckpt_history_read(s, "", false, &h));
	ck_assert_uint_le(h.count, STEPS);
	for (size_t i = 0; i < h.count; i++)
		r->steps[i] = h.steps[i];
	r->count = h.count;
	ckpt_history_done(&h);
}

// Up to `end`, from behind the latest step, by a process that has just begun.
static void process(struct run *r, int64_t end, bool preempted)
{
	int64_t number;

	r->now_ns += 60 * HISTORY_SECOND;
	r->clock_ns = r->now_ns;
	if (r->stored) {
		ckpt_fixture_reopen();
		read_store(r);
		__atomic_store_n(&store_now_ns, r->now_ns, __ATOMIC_RELAXED);
		ck_ok(ckpt_should_save_load(s, &r->decided));
	}
	number = r->count ? r->steps[r->count - 1].number + 1 : 0;
	for (; number < end; number++, r->now_ns += r->step_ns)
		if (step_is_saved(r, number, preempted) && preempted && number >= PREEMPTED_AT)
			break;
	if (r->saving && (r->ends_ns <= r->now_ns || preempted || end == STEPS))
		end_save(r); // it waits for that
	r->saving = false;
	if (r->stored && preempted) // who dies keeps nothing
		ck_ok(ckpt_should_save_keep(s, &r->decided));
	if (r->staged) // what a process had begun that died
		ckpt_step_unref(TAKE_PTR(r->staged));
}

static char *play(const char *policy, int64_t step_ns, int64_t save_ns, bool stored)
{
	static struct run r;
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	r = (struct run){.policy = policy_of(policy),
			 .step_ns = step_ns,
			 .save_ns = save_ns,
			 .now_ns = INT64_C(1700000000) * HISTORY_SECOND,
			 .stored = stored};
	if (stored) {
		__atomic_store_n(&store_now_ns, r.now_ns, __ATOMIC_RELAXED);
		ckpt_hook_set(now_ns, store_now);
		ckpt_fixture_open();
		ck_ok(ckpt_policy_set(s, &r.policy));
	}
	process(&r, 700, false);
	process(&r, PREEMPTED_AT + 1, true);
	process(&r, 1601, false);
	process(&r, STEPS, false);
	if (stored) {
		read_store(&r);
		ckpt_fixture_close();
	}
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
	CLEANUP_FREE char *want = NULL;
	size_t len;
	FILE *f = open_memstream(&want, &len);

	expect(f);
	fclose(f);
	for (int stored = 0; stored < 2; stored++) {
		CLEANUP_FREE char *got = play(policy, (int64_t)(step_secs * 1e9), (int64_t)(save_secs * 1e9), stored);

		ck_assert_msg(!strcmp(got, want), "%s%s:\n  %s\nnot\n  %s", policy, stored ? ", in a store" : "", got,
			      want);
	}
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
