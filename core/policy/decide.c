#include "core/policy/decide.h"

#include "core/base/clock.h"
#include "core/base/run.h"
#include "core/base/util.h"
#include "core/record/name.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#define SECOND_NS INT64_C(1000000000)

struct tree {
	const struct ckpt_decide *q;
	const char *by;
	char *why; // of the first policy that failed
};

__attribute__((format(printf, 2, 3))) static void say(char **ret_why, const char *format, ...)
{
	va_list ap;

	if (*ret_why)
		return;
	va_start(ap, format);
	if (vasprintf(ret_why, format, ap) < 0)
		*ret_why = NULL;
	va_end(ap);
}

static const struct ckpt_policy_step *newest(const struct ckpt_decide *q)
{
	return q->count ? &q->steps[q->count - 1] : NULL;
}

int64_t ckpt_decide_latest(const struct ckpt_decide *q)
{
	int64_t number = -1;

	for (size_t i = 0; i < q->count; i++)
		number = MAX(number, q->steps[i].number);
	return number;
}

size_t ckpt_decide_saved_last(const struct ckpt_policy_step *steps, size_t count)
{
	size_t last = count ? count - 1 : 0;

	for (size_t i = 0; i < count; i++)
		if (steps[i].sequence > steps[last].sequence)
			last = i;
	return last;
}

// --- Single policies --------------------------------------------------------------------------------------------------

static bool by_step_intervals(const struct ckpt_policy_node *node, int64_t step)
{
	for (size_t i = 0; i < node->interval_count; i++) {
		const struct ckpt_policy_interval *row = &node->intervals[i];

		if (row->until == CKPT_POLICY_NULL || row->until >= step)
			return step % row->every == 0;
	}
	return false;
}

// A time of the future is the mistake of a clock, and nothing to wait for.
static bool is_over(int64_t since_ns, int64_t now_ns, int64_t seconds)
{
	int64_t ns = ckpt_time_between(since_ns, now_ns);

	return ns < 0 || ns >= seconds * SECOND_NS;
}

static bool by_continuous(const struct ckpt_policy_node *node, const struct ckpt_decide *q)
{
	if (q->saving)
		return false;
	if (!q->count || node->interval == CKPT_POLICY_NULL)
		return true;
	return is_over(newest(q)->committed_ns, q->now_ns, node->interval);
}

// Any save sets its clock, permanent ones too.
static bool by_time_interval(const struct ckpt_policy_node *node, const struct ckpt_decide *q)
{
	int64_t since_ns = q->clock_ns;

	if (q->count && newest(q)->committed_ns <= q->now_ns)
		since_ns = MAX(since_ns, newest(q)->committed_ns);
	return is_over(since_ns, q->now_ns, node->interval);
}

#define EXEC_VARIABLES 7 // and the two that are paths
#define EXEC_VARIABLE_MAX 64

static void make_variables(const struct ckpt_decide *q, char text[EXEC_VARIABLES][EXEC_VARIABLE_MAX])
{
	char now[CKPT_TIME_LEN + 1], latest[CKPT_TIME_LEN + 1] = "";
	bool preempted = q->preempted_at >= 0 && q->step >= q->preempted_at;

	ckpt_time_format(q->now_ns, now);
	if (q->count)
		ckpt_time_format(newest(q)->committed_ns, latest);
	snprintf(text[0], EXEC_VARIABLE_MAX, "CKPT_STEP=%" PRId64, q->step);
	snprintf(text[1], EXEC_VARIABLE_MAX, "CKPT_NOW=%s", now);
	snprintf(text[2], EXEC_VARIABLE_MAX, "CKPT_SAVING=%d", q->saving);
	snprintf(text[3], EXEC_VARIABLE_MAX, "CKPT_PREEMPTED=%d", preempted);
	snprintf(text[4], EXEC_VARIABLE_MAX, "CKPT_STEPS=%zu", q->count);
	snprintf(text[5], EXEC_VARIABLE_MAX, "CKPT_LATEST_STEP=");
	if (q->count)
		snprintf(text[5], EXEC_VARIABLE_MAX, "CKPT_LATEST_STEP=%" PRId64, newest(q)->number);
	snprintf(text[6], EXEC_VARIABLE_MAX, "CKPT_LATEST_TIME=%s", latest);
}

// malloc'ed; NULL: no memory.
static char *path_variable(const char *name, const char *path)
{
	char *text;

	return asprintf(&text, "%s=%s", name, path ? path : "") < 0 ? NULL : text;
}

// The program says yes by 0, no by 1; all else is a failure.
static int by_exec(const struct ckpt_policy_node *node, struct tree *t)
{
	char text[EXEC_VARIABLES][EXEC_VARIABLE_MAX];
	CLEANUP_FREE char *folder = path_variable("CKPT_RUN", t->q->folder);
	CLEANUP_FREE char *store = path_variable("CKPT_STORE", t->q->store);
	const char *env[EXEC_VARIABLES + 3] = {0}, *program = node->command[0];
	const struct ckpt_run run = {.argv = (const char *const *)node->command,
				     .env = env,
				     .timeout_ns = node->interval * SECOND_NS,
				     .go_on = t->q->go_on,
				     .arg = t->q->arg};
	CLEANUP_FREE char *last = NULL;
	struct ckpt_ran ran;
	int rc;

	if (!folder || !store)
		return -ENOMEM;
	make_variables(t->q, text);
	for (size_t i = 0; i < EXEC_VARIABLES; i++)
		env[i] = text[i];
	env[EXEC_VARIABLES] = folder;
	env[EXEC_VARIABLES + 1] = store;
	rc = ckpt_run(&run, &ran);
	if (rc == -ETIMEDOUT)
		say(&t->why, "exec: %s did not end within %" PRId64 " s, and was ended", program, node->interval);
	else if (rc == -EINTR)
		say(&t->why, "exec: %s was ended: no caller waits for it any more", program);
	else if (rc)
		say(&t->why, "exec: %s could not be run: %s", program, strerror(-rc));
	if (rc)
		return rc;
	if (ran.status <= 1)
		return ran.status ? CKPT_DECIDE_NO : CKPT_DECIDE_PERMANENT;
	last = ckpt_name_clean(ckpt_run_last_line(&ran));
	if (ran.status > 128)
		say(&t->why, "exec: %s was ended by signal %d (%s)", program, ran.status - 128,
		    strsignal(ran.status - 128));
	else
		say(&t->why, "exec: %s ended with status %d, which is neither 0 (yes) nor 1 (no)%s%s", program,
		    ran.status, last && *last ? ": " : "", last ? last : "");
	return -EIO;
}

// --- The tree ---------------------------------------------------------------------------------------------------------

static int ask(const struct ckpt_policy_node *node, struct tree *t);

static int ask_any(const struct ckpt_policy_node *node, struct tree *t)
{
	int best = CKPT_DECIDE_NO, failed = 0;
	const char *by = NULL;

	for (size_t i = 0; i < node->below_count && best < CKPT_DECIDE_PERMANENT; i++) {
		int answer = ask(&node->below[i], t);

		if (answer < 0 && !failed)
			failed = answer;
		if (answer > best) {
			best = answer;
			by = t->by;
		}
	}
	t->by = by;
	return best < CKPT_DECIDE_PERMANENT && failed ? failed : best;
}

static int ask_all(const struct ckpt_policy_node *node, struct tree *t)
{
	int least = CKPT_DECIDE_PERMANENT, failed = 0;

	for (size_t i = 0; i < node->below_count && least; i++) {
		int answer = ask(&node->below[i], t);

		if (answer < 0 && !failed)
			failed = answer;
		if (answer >= 0)
			least = MIN(least, answer);
	}
	t->by = ckpt_policy_word(CKPT_POLICY_ALL);
	return least && failed ? failed : least;
}

static int ask(const struct ckpt_policy_node *node, struct tree *t)
{
	const struct ckpt_decide *q = t->q;
	bool yes = false;
	int answer;

	switch (node->kind) {
	case CKPT_POLICY_ANY:
		return ask_any(node, t);
	case CKPT_POLICY_ALL:
		return ask_all(node, t);
	case CKPT_POLICY_EXEC:
		t->by = ckpt_policy_word(node->kind);
		return by_exec(node, t);
	case CKPT_POLICY_NOT:
		answer = ask(node->below, t);
		if (answer < 0)
			return answer;
		yes = answer == CKPT_DECIDE_NO;
		break;
	case CKPT_POLICY_FIXED_INTERVAL:
		yes = q->step % node->interval == 0;
		break;
	case CKPT_POLICY_SPECIFIC_STEPS:
		yes = ckpt_policy_in_ranges(node, q->step);
		break;
	case CKPT_POLICY_CONTINUOUS:
		yes = by_continuous(node, q);
		break;
	case CKPT_POLICY_INITIAL:
		yes = !q->count;
		break;
	case CKPT_POLICY_PREEMPTION:
		yes = q->preempted_at >= 0 && q->step >= q->preempted_at;
		break;
	case CKPT_POLICY_STEP_INTERVALS:
		yes = by_step_intervals(node, q->step);
		break;
	case CKPT_POLICY_TIME_INTERVAL:
		t->by = ckpt_policy_word(node->kind);
		return by_time_interval(node, q) ? CKPT_DECIDE_TEMPORARY : CKPT_DECIDE_NO;
	default:
		break; // of `keep`: the document does not have it here
	}
	t->by = ckpt_policy_word(node->kind);
	return yes ? CKPT_DECIDE_PERMANENT : CKPT_DECIDE_NO;
}

static int ask_policies(const struct ckpt_policy *p, struct tree *t)
{
	if (!t->q->answered)
		return ask(&p->save, t);
	t->by = "callback";
	return (int)t->q->answer;
}

// The one that the rules compare with: the highest, as Orbax does, or the one that was saved last, as eFormer does.
static int64_t latest_of(const struct ckpt_policy *p, const struct ckpt_decide *q)
{
	if (p->only_after_latest || !q->count)
		return ckpt_decide_latest(q);
	return q->steps[ckpt_decide_saved_last(q->steps, q->count)].number;
}

int ckpt_decide(const struct ckpt_policy *p, const struct ckpt_decide *q, struct ckpt_decision *ret_decision,
		char **ret_why)
{
	struct ckpt_decision d = {0};
	struct tree t = {.q = q};
	int64_t latest = latest_of(p, q);
	int answer = CKPT_DECIDE_NO;

	*ret_why = NULL;
	if (q->force) {
		answer = CKPT_DECIDE_PERMANENT;
		t.by = "force";
	} else if (p->skip_zero && !q->step) {
		d.resets = true;
		t.by = "skip_zero";
	} else if (p->only_after_latest && latest > q->step) {
		t.by = "latest_step";
	} else if (p->skip_duplicate && latest == q->step) {
		t.by = "skip_duplicate";
	} else {
		answer = ask_policies(p, &t);
		if (answer == CKPT_DECIDE_NO)
			t.by = NULL;
	}
	if (answer < 0) {
		*ret_why = t.why;
		return answer;
	}
	free(t.why);
	d.save = answer != CKPT_DECIDE_NO;
	d.permanent = answer == CKPT_DECIDE_PERMANENT;
	d.resets |= d.save;
	d.by = t.by;
	*ret_decision = d;
	return 0;
}
