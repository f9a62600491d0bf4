#include "core/policy/preserve.h"

#include "core/base/clock.h"
#include "core/base/util.h"

#define SECOND_NS INT64_C(1000000000)

struct pass {
	const struct ckpt_policy_step **steps; // the permanent ones
	size_t count;
	int64_t now_ns;
	const char **why; // of each: the first policy that keeps it, or NULL
};

// What a sort makes of a step.
struct candidate {
	size_t at;
	double metric;
	int64_t target, off; // every_n_steps_closest: the multiple that it is nearest to, and how far it is from there
};

// Of what is kept, marked by true, the last so many.
static void keep_last(bool *kept, size_t count, int64_t most)
{
	for (size_t i = count; most != CKPT_POLICY_NULL && i-- > 0;) {
		kept[i] = kept[i] && most > 0;
		most -= kept[i];
	}
}

// --- Single policies: kept[i] is false before --------------------------------------------------------------------------

// Where the clock was set back it begins anew: the time from the one to the other is not known.
static void by_seconds(const struct pass *p, const struct ckpt_policy_node *node, bool *kept)
{
	int64_t last_ns = 0;

	for (size_t i = 0; i < p->count; i++) {
		int64_t since_ns = ckpt_time_between(last_ns, p->steps[i]->committed_ns);

		kept[i] = !i || since_ns < 0 || since_ns >= node->interval * SECOND_NS;
		if (kept[i])
			last_ns = p->steps[i]->committed_ns;
	}
}

static void by_steps(const struct pass *p, const struct ckpt_policy_node *node, bool *kept)
{
	int64_t last = 0;

	for (size_t i = 0; i < p->count; i++) {
		int64_t number = p->steps[i]->number;

		kept[i] = node->exact ? number % node->interval == 0 : !i || number - last >= node->interval;
		if (kept[i])
			last = number;
	}
	keep_last(kept, p->count, node->most);
}

// Half-way between two multiples it is the even one, as Python's round() has it.
static struct candidate nearest_multiple(int64_t number, int64_t interval, size_t at)
{
	int64_t k = number / interval, below = number % interval, above = interval - below;
	bool up = below > above || (below == above && k % 2);

	return (struct candidate){.at = at, .target = k + up, .off = up ? above : below};
}

// By target, the best of each first; of equals the later one.
static int compare_closeness(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->target != y->target)
		return x->target < y->target ? -1 : 1;
	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	return (x->at < y->at) - (x->at > y->at);
}

static int by_closeness(const struct pass *p, const struct ckpt_policy_node *node, bool *kept)
{
	CLEANUP_FREE struct candidate *c = ckpt_calloc(p->count + 1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	for (size_t i = 0; i < p->count; i++)
		c[i] = nearest_multiple(p->steps[i]->number, node->interval, i);
	qsort(c, p->count, sizeof(*c), compare_closeness);
	for (size_t i = 0; i < p->count; i++)
		if (!i || c[i].target != c[i - 1].target)
			kept[c[i].at] = true;
	if (p->count)
		kept[p->count - 1] = true;
	keep_last(kept, p->count, node->most);
	return 0;
}

static bool metric_of(const struct ckpt_policy_step *step, const char *name, double *ret_metric)
{
	const json_t *value = json_object_get(step->metrics, name);

	*ret_metric = json_number_value(value);
	return json_is_number(value);
}

// The best last; of equals the later one.
static int compare_metrics(const void *a, const void *b, void *arg)
{
	const struct candidate *x = a, *y = b;
	bool reverse = *(const bool *)arg;

	if (x->metric != y->metric)
		return (x->metric < y->metric) != reverse ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

static int by_metric(const struct pass *p, const struct ckpt_policy_node *node, bool *kept)
{
	CLEANUP_FREE struct candidate *c = ckpt_calloc(p->count + 1, sizeof(*c));
	bool all = node->most == CKPT_POLICY_NULL || (uint64_t)node->most >= p->count, reverse = node->reverse;
	size_t n = 0;

	if (!c)
		return -ENOMEM;
	for (size_t i = 0; i < p->count; i++) {
		bool measured = metric_of(p->steps[i], node->metric, &c[n].metric);

		kept[i] = all || (!measured && node->unmeasured && node->most);
		c[n].at = i;
		n += measured;
	}
	qsort_r(c, n, sizeof(*c), compare_metrics, &reverse);
	for (size_t i = 0; i < n && !all && (int64_t)i < node->most; i++)
		kept[c[n - 1 - i].at] = true;
	return 0;
}

// All from the first on that is young enough.
static void by_duration(const struct pass *p, const struct ckpt_policy_node *node, bool *kept)
{
	bool young = false;

	for (size_t i = 0; i < p->count; i++) {
		young |= ckpt_time_between(p->steps[i]->committed_ns, p->now_ns) <= node->interval * SECOND_NS;
		kept[i] = young;
	}
}

static int ask_one(const struct pass *p, const struct ckpt_policy_node *node, bool *kept)
{
	switch (node->kind) {
	case CKPT_POLICY_PRESERVE_ALL:
		memset(kept, true, p->count);
		return 0;
	case CKPT_POLICY_LATEST_N:
		memset(kept, true, p->count);
		keep_last(kept, p->count, node->most);
		return 0;
	case CKPT_POLICY_EVERY_N_SECONDS:
		by_seconds(p, node, kept);
		return 0;
	case CKPT_POLICY_EVERY_N_STEPS:
		by_steps(p, node, kept);
		return 0;
	case CKPT_POLICY_EVERY_N_STEPS_CLOSEST:
		return by_closeness(p, node, kept);
	case CKPT_POLICY_CUSTOM_STEPS:
		for (size_t i = 0; i < p->count; i++)
			kept[i] = ckpt_policy_in_ranges(node, p->steps[i]->number);
		return 0;
	case CKPT_POLICY_BEST_N:
		return by_metric(p, node, kept);
	case CKPT_POLICY_LATEST_DURATION:
		by_duration(p, node, kept);
		return 0;
	default:
		return 0; // of `save`: the document does not have it here
	}
}

// --- All --------------------------------------------------------------------------------------------------------------

static int ask(const struct pass *p, const struct ckpt_policy_node *node)
{
	CLEANUP_FREE bool *kept = NULL;
	int rc = 0;

	for (size_t i = 0; i < node->below_count && !rc; i++)
		rc = ask(p, &node->below[i]);
	if (node->kind == CKPT_POLICY_ANY)
		return rc;
	kept = ckpt_calloc(p->count + 1, sizeof(*kept));
	rc = kept ? ask_one(p, node, kept) : -ENOMEM;
	for (size_t i = 0; i < p->count && !rc; i++)
		if (kept[i] && !p->why[i])
			p->why[i] = ckpt_policy_word(node->kind);
	return rc;
}

static struct ckpt_verdict judge(const struct ckpt_policy_step *step, bool newest, const char *why)
{
	bool keep = why || newest || step->pinned;

	if (why)
		return (struct ckpt_verdict){keep, why};
	if (keep)
		return (struct ckpt_verdict){keep, newest ? "the newest" : "pinned"};
	return (struct ckpt_verdict){keep, step->temporary ? "temporary, and not the newest" : "no policy keeps it"};
}

int ckpt_preserve(const struct ckpt_policy *policy, const struct ckpt_policy_step *steps, size_t count, int64_t now_ns,
		  struct ckpt_verdict *ret_verdicts)
{
	CLEANUP_FREE const struct ckpt_policy_step **permanent = ckpt_calloc(count + 1, sizeof(*permanent));
	CLEANUP_FREE const char **why = ckpt_calloc(count + 1, sizeof(*why));
	struct pass p = {.steps = permanent, .now_ns = now_ns, .why = why};
	size_t next = 0, last = ckpt_decide_saved_last(steps, count);
	int rc;

	if (!permanent || !why)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (!steps[i].temporary)
			permanent[p.count++] = &steps[i];
	rc = ask(&p, &policy->keep);
	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		ret_verdicts[i] =
			judge(&steps[i], i == count - 1 || i == last, steps[i].temporary ? NULL : why[next++]);
	return 0;
}
