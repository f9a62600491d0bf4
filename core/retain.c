#include "core/retain.h"

#include "core/store.h"
#include "core/util.h"

// The steps of one folder, one behind the other.
struct part {
	struct ckpt_policy_step *steps;
	struct ckpt_verdict *verdicts;
	size_t *at; // where each is in the history
	size_t count;
};

static int part_new(size_t count, struct part *ret)
{
	*ret = (struct part){.steps = ckpt_calloc(count + 1, sizeof(*ret->steps)),
			     .verdicts = ckpt_calloc(count + 1, sizeof(*ret->verdicts)),
			     .at = ckpt_calloc(count + 1, sizeof(*ret->at))};
	return ret->steps && ret->verdicts && ret->at ? 0 : -ENOMEM;
}

static void part_done(struct part *part)
{
	free(part->steps);
	free(part->verdicts);
	free(part->at);
}

// Those of the folder that the first of them is in, which has no verdict yet.
static void take_folder(const struct ckpt_retain *r, size_t first, const struct ckpt_step_name *names,
			struct part *part)
{
	part->count = 0;
	for (size_t i = first; i < r->history.count; i++)
		if (!strcmp(names[i].folder_id, names[first].folder_id)) {
			part->steps[part->count] = r->history.steps[i];
			part->at[part->count++] = i;
		}
}

static int judge(struct ckpt_retain *r, const struct ckpt_policy *p, int64_t now_ns, const struct ckpt_step_name *names)
{
	struct part part CLEANUP(part_done);
	int rc = part_new(r->history.count, &part);

	for (size_t i = 0; i < r->history.count && !rc; i++) {
		if (r->verdicts[i].why)
			continue;
		take_folder(r, i, names, &part);
		rc = ckpt_preserve(p, part.steps, part.count, now_ns, part.verdicts);
		for (size_t j = 0; j < part.count && !rc; j++)
			r->verdicts[part.at[j]] = part.verdicts[j];
	}
	return rc;
}

int ckpt_retain_judge(struct ckpt_store *s, const struct ckpt_policy *p, int64_t now_ns, struct ckpt_retain *ret_retain)
{
	CLEANUP_FREE struct ckpt_step_name *names = NULL;
	struct ckpt_retain r = {0};
	int rc = ckpt_history_read(s, NULL, ckpt_policy_has(&p->keep, CKPT_POLICY_BEST_N), &r.history);

	if (rc)
		return rc;
	r.verdicts = ckpt_calloc(r.history.count + 1, sizeof(*r.verdicts));
	names = ckpt_calloc(r.history.count + 1, sizeof(*names));
	for (size_t i = 0; names && i < r.history.count; i++)
		ckpt_step_name(r.history.at[i], &names[i]);
	rc = r.verdicts && names ? judge(&r, p, now_ns, names) : -ENOMEM;
	if (rc)
		ckpt_retain_done(&r);
	else
		*ret_retain = r;
	return rc;
}

void ckpt_retain_done(struct ckpt_retain *r)
{
	ckpt_history_done(&r->history);
	free(r->verdicts);
	*r = (struct ckpt_retain){0};
}
