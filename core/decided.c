#include "core/decided.h"

#include "core/clock.h"
#include "core/json.h"
#include "core/util.h"

#include <stdio.h>

void ckpt_decided_init(struct ckpt_decided *d, int64_t now_ns)
{
	*d = (struct ckpt_decided){.clock_ns = now_ns};
}

void ckpt_decided_under(struct ckpt_decided *d, const char *policy)
{
	if (!strcmp(d->policy, policy))
		return;
	snprintf(d->policy, sizeof(d->policy), "%s", policy);
	d->count = 0;
}

const struct ckpt_decided_step *ckpt_decided_find(const struct ckpt_decided *d, int64_t step, int64_t now_ns,
						  int64_t changed_ns, int64_t latest)
{
	for (size_t i = d->count; i-- > 0;) {
		const struct ckpt_decided_step *found = &d->steps[i];

		if (found->step != step)
			continue;
		// A clock that was set back makes no decision last longer.
		if (now_ns < found->at_ns || ckpt_time_between(found->at_ns, now_ns) >= CKPT_DECIDED_NS)
			return NULL;
		return changed_ns >= found->at_ns || latest < found->latest ? NULL : found;
	}
	return NULL;
}

static void drop(struct ckpt_decided *d, size_t i)
{
	memmove(&d->steps[i], &d->steps[i + 1], (d->count - i - 1) * sizeof(*d->steps));
	d->count--;
}

const struct ckpt_decided_step *ckpt_decided_add(struct ckpt_decided *d, int64_t step, int64_t now_ns, int64_t latest,
						 const struct ckpt_decision *decision)
{
	struct ckpt_decided_step *added;

	for (size_t i = d->count; i-- > 0;)
		if (d->steps[i].step == step)
			drop(d, i);
	if (d->count == CKPT_DECIDED_MAX)
		drop(d, 0);
	added = &d->steps[d->count++];
	*added = (struct ckpt_decided_step){.step = step,
					    .at_ns = now_ns,
					    .latest = latest,
					    .save = decision->save,
					    .permanent = decision->permanent};
	snprintf(added->by, sizeof(added->by), "%s", decision->by ? decision->by : "");
	if (decision->resets)
		d->clock_ns = now_ns;
	return added;
}

// --- As JSON ----------------------------------------------------------------------------------------------------------

char *ckpt_decided_text(const struct ckpt_decided *d)
{
	json_t *steps;

	ckpt_json_begin();
	steps = json_array();
	for (size_t i = 0; i < d->count; i++) {
		const struct ckpt_decided_step *s = &d->steps[i];

		json_array_append_new(steps,
				      json_pack("{s:I, s:I, s:I, s:b, s:b, s:s}", "step", (json_int_t)s->step, "at_ns",
						(json_int_t)s->at_ns, "latest", (json_int_t)s->latest, "save",
						(int)s->save, "permanent", (int)s->permanent, "by", s->by));
	}
	return ckpt_json_dump(json_pack("{s:I, s:s, s:o}", "clock_ns", (json_int_t)d->clock_ns, "policy", d->policy,
					"decisions", steps),
			      JSON_COMPACT | JSON_SORT_KEYS);
}

static int take_step(const json_t *json, struct ckpt_decided *d)
{
	json_int_t step, at_ns, latest;
	struct ckpt_decided_step *taken;
	int save, permanent;
	const char *by;

	if (d->count == CKPT_DECIDED_MAX ||
	    json_unpack((json_t *)json, "{s:I, s:I, s:I, s:b, s:b, s:s}", "step", &step, "at_ns", &at_ns, "latest",
			&latest, "save", &save, "permanent", &permanent, "by", &by) ||
	    strlen(by) > CKPT_DECIDED_BY_MAX)
		return -EINVAL;
	taken = &d->steps[d->count++];
	*taken = (struct ckpt_decided_step){
		.step = step, .at_ns = at_ns, .latest = latest, .save = save, .permanent = permanent};
	strcpy(taken->by, by);
	return 0;
}

int ckpt_decided_parse(const char *text, size_t len, int64_t now_ns, struct ckpt_decided *ret)
{
	const char *policy = "";
	json_int_t clock_ns;
	json_t *root, *item;
	size_t i;
	int rc = ckpt_json_load(text, len, JSON_REJECT_DUPLICATES, NULL, &root);

	ckpt_decided_init(ret, now_ns);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	if (json_unpack(root, "{s:I, s?s}", "clock_ns", &clock_ns, "policy", &policy) ||
	    strlen(policy) >= CKPT_ETAG_MAX)
		rc = -EINVAL;
	else
		ckpt_decided_under(ret, policy);
	json_array_foreach(json_object_get(root, "decisions"), i, item)
	{
		if (!rc)
			rc = take_step(item, ret);
	}
	if (rc)
		ckpt_decided_init(ret, now_ns);
	else
		ret->clock_ns = MIN((int64_t)clock_ns, now_ns);
	json_decref(root);
	return 0;
}
