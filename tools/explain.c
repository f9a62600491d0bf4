#include "tools/explain.h"

#include "core/base/util.h"
#include "core/policy/preserve.h"
#include "tools/output.h"

struct play {
	const struct ckpt_policy *policy;
	const struct ckpt_explain *e;
	json_t *rows;
	struct ckpt_policy_step *steps; // those that are there now
	struct ckpt_verdict *verdicts;  // and why, since the last save
	size_t count;
	uint64_t sequence; // of the last save
	int64_t now_ns, clock_ns;
	bool saving; // the last save goes on, until ends_ns
	struct ckpt_policy_step saved;
	int64_t ends_ns;
};

static void set(json_t *row, const char *key, json_t *value)
{
	if (json_object_set_new(row, key, value))
		ckpt_need(NULL);
}

// Steps of before have no row.
static void tell(struct play *p, const struct ckpt_policy_step *step, const struct ckpt_verdict *v)
{
	json_t *row = json_array_get(p->rows, (size_t)(step->number - p->e->first));

	if (step->number < p->e->first)
		return;
	set(row, "keep", json_boolean(v->keep));
	set(row, "why", ckpt_json_text(v->why));
}

// After each save those go that the policy does not keep.
static void retain(struct play *p)
{
	size_t n = 0;

	if (ckpt_preserve(p->policy, p->steps, p->count, p->now_ns, p->verdicts))
		ckpt_need(NULL);
	for (size_t i = 0; i < p->count; i++) {
		if (!p->verdicts[i].keep) {
			tell(p, &p->steps[i], &p->verdicts[i]);
			continue;
		}
		p->steps[n] = p->steps[i];
		p->verdicts[n++] = p->verdicts[i];
	}
	p->count = n;
}

static void end_save(struct play *p)
{
	p->saved.committed_ns = p->ends_ns;
	p->saved.sequence = ++p->sequence;
	p->steps[p->count++] = p->saved;
	p->saving = false;
	p->now_ns = MAX(p->now_ns, p->ends_ns);
	retain(p);
}

static void begin_save(struct play *p, int64_t step, bool permanent)
{
	// One save at a time: the run stands still until the one before is over.
	if (p->saving)
		end_save(p);
	p->saved = (struct ckpt_policy_step){.number = step, .temporary = !permanent};
	p->ends_ns = p->now_ns + p->e->save_ns;
	p->saving = true;
	if (p->ends_ns <= p->now_ns)
		end_save(p);
}

static void play_step(struct play *p, int64_t step)
{
	const struct ckpt_decide q = {.step = step,
				      .folder = p->e->folder,
				      .store = p->e->store,
				      .steps = p->steps,
				      .count = p->count,
				      .now_ns = p->now_ns,
				      .clock_ns = p->clock_ns,
				      .saving = p->saving,
				      .preempted_at = p->e->preempt_at};
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decision d = {0};
	int rc = ckpt_decide(p->policy, &q, &d, &why);
	double seconds = (double)(p->now_ns - p->e->begins_ns) / 1e9;
	json_t *row = ckpt_need(json_pack("{s:I, s:f, s:b, s:b, s:o, s:n, s:n, s:o}", "step", (json_int_t)step,
					  "seconds", seconds, "save", (int)d.save, "permanent", (int)d.permanent,
					  "policy", ckpt_json_text(d.by), "keep", "why", "error",
					  ckpt_json_text(rc ? why ? why : strerror(-rc) : NULL)));

	if (json_array_append_new(p->rows, row))
		ckpt_need(NULL);
	if (d.resets)
		p->clock_ns = p->now_ns;
	if (d.save)
		begin_save(p, step, d.permanent);
}

json_t *ckpt_explain(const struct ckpt_policy *policy, const struct ckpt_explain *e)
{
	size_t cap = e->count + (size_t)(e->last - e->first) + 1;
	struct play p = {.policy = policy,
			 .e = e,
			 .rows = ckpt_need(json_array()),
			 .steps = ckpt_need(ckpt_calloc(cap, sizeof(*p.steps))),
			 .verdicts = ckpt_need(ckpt_calloc(cap, sizeof(*p.verdicts))),
			 .now_ns = e->begins_ns,
			 .clock_ns = e->begins_ns};

	for (size_t i = 0; i < e->count; i++) {
		p.sequence = MAX(p.sequence, e->steps[i].sequence);
		if (e->steps[i].number < e->first)
			p.steps[p.count++] = e->steps[i];
	}
	for (int64_t step = e->first; step <= e->last; step++, p.now_ns += e->step_ns) {
		if (p.saving && p.ends_ns <= p.now_ns)
			end_save(&p);
		play_step(&p, step);
	}
	if (p.saving)
		end_save(&p);
	for (size_t i = 0; i < p.count; i++)
		tell(&p, &p.steps[i], &p.verdicts[i]);
	free(p.steps);
	free(p.verdicts);
	return p.rows;
}
