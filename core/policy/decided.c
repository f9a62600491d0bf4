#include "core/policy/decided.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/util.h"

#include <stdio.h>

void ckpt_decided_init(struct ckpt_decided *d, int64_t now_ns)
{
	*d = (struct ckpt_decided){.preempted_at = -1};
	(void)ckpt_decided_clock(d, "", now_ns);
}

// Of the runs that were asked for longest ago the clock is forgotten.
static int64_t *clock_of(struct ckpt_decided *d, const char *folder_id, int64_t now_ns)
{
	int64_t clock_ns = now_ns;
	size_t i = 0;

	while (i < d->run_count && strcmp(d->runs[i].folder_id, folder_id))
		i++;
	if (i < d->run_count)
		clock_ns = d->runs[i].clock_ns;
	else if (d->run_count == CKPT_DECIDED_RUNS_MAX)
		i = 0;
	else
		d->run_count++;
	memmove(&d->runs[i], &d->runs[i + 1], (d->run_count - i - 1) * sizeof(*d->runs));
	i = d->run_count - 1;
	snprintf(d->runs[i].folder_id, sizeof(d->runs[i].folder_id), "%s", folder_id);
	d->runs[i].clock_ns = clock_ns;
	return &d->runs[i].clock_ns;
}

int64_t ckpt_decided_clock(struct ckpt_decided *d, const char *folder_id, int64_t now_ns)
{
	return *clock_of(d, folder_id, now_ns);
}

void ckpt_decided_restart(struct ckpt_decided *d, int64_t now_ns)
{
	for (size_t i = 0; i < d->run_count; i++)
		d->runs[i].clock_ns = now_ns;
}

void ckpt_decided_under(struct ckpt_decided *d, uint64_t policy)
{
	if (d->policy == policy)
		return;
	d->policy = policy;
	d->count = 0;
}

const struct ckpt_decided_step *ckpt_decided_find(const struct ckpt_decided *d, const char *folder_id, int64_t step,
						  int64_t now_ns, int64_t changed_ns, int64_t latest)
{
	for (size_t i = d->count; i-- > 0;) {
		const struct ckpt_decided_step *found = &d->steps[i];

		if (found->step != step || strcmp(found->folder_id, folder_id))
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

const struct ckpt_decided_step *ckpt_decided_add(struct ckpt_decided *d, const char *folder_id, int64_t step,
						 int64_t now_ns, int64_t latest, const struct ckpt_decision *decision)
{
	struct ckpt_decided_step *added;

	for (size_t i = d->count; i-- > 0;)
		if (d->steps[i].step == step && !strcmp(d->steps[i].folder_id, folder_id))
			drop(d, i);
	if (d->count == CKPT_DECIDED_MAX)
		drop(d, 0);
	added = &d->steps[d->count++];
	*added = (struct ckpt_decided_step){.step = step,
					    .at_ns = now_ns,
					    .latest = latest,
					    .save = decision->save,
					    .permanent = decision->permanent};
	snprintf(added->folder_id, sizeof(added->folder_id), "%s", folder_id);
	snprintf(added->by, sizeof(added->by), "%s", decision->by ? decision->by : "");
	if (decision->resets)
		*clock_of(d, folder_id, now_ns) = now_ns;
	return added;
}

// --- As JSON ----------------------------------------------------------------------------------------------------------

char *ckpt_decided_text(const struct ckpt_decided *d)
{
	json_t *steps, *runs;

	ckpt_json_begin();
	steps = json_array();
	runs = json_array();
	for (size_t i = 0; i < d->count; i++) {
		const struct ckpt_decided_step *s = &d->steps[i];

		json_array_append_new(steps, json_pack("{s:s, s:I, s:I, s:I, s:b, s:b, s:s}", "folder", s->folder_id,
						       "step", (json_int_t)s->step, "at_ns", (json_int_t)s->at_ns,
						       "latest", (json_int_t)s->latest, "save", (int)s->save,
						       "permanent", (int)s->permanent, "by", s->by));
	}
	for (size_t i = 0; i < d->run_count; i++)
		json_array_append_new(runs, json_pack("{s:s, s:I}", "folder", d->runs[i].folder_id, "clock_ns",
						      (json_int_t)d->runs[i].clock_ns));
	return ckpt_json_dump(json_pack("{s:o, s:I, s:o, s:I}", "runs", runs, "policy", (json_int_t)d->policy,
					"decisions", steps, "preempted_at", (json_int_t)d->preempted_at),
			      JSON_COMPACT | JSON_SORT_KEYS);
}

static bool is_folder(const char *id)
{
	return !*id || (strlen(id) == CKPT_FOLDER_ID_LEN && ckpt_name_is_folder_id(id));
}

static bool is_word(const char *by)
{
	return !by[strspn(by, "abcdefghijklmnopqrstuvwxyz_")];
}

static int take_run(const json_t *json, int64_t now_ns, struct ckpt_decided *d)
{
	const char *folder_id;
	json_int_t clock_ns;

	if (json_unpack((json_t *)json, "{s:s, s:I}", "folder", &folder_id, "clock_ns", &clock_ns) ||
	    !is_folder(folder_id))
		return -EINVAL;
	*clock_of(d, folder_id, now_ns) = MIN((int64_t)clock_ns, now_ns);
	return 0;
}

static int take_step(const json_t *json, struct ckpt_decided *d)
{
	json_int_t step, at_ns, latest;
	struct ckpt_decided_step *taken;
	const char *by, *folder_id;
	int save, permanent;

	if (d->count == CKPT_DECIDED_MAX ||
	    json_unpack((json_t *)json, "{s:s, s:I, s:I, s:I, s:b, s:b, s:s}", "folder", &folder_id, "step", &step,
			"at_ns", &at_ns, "latest", &latest, "save", &save, "permanent", &permanent, "by", &by) ||
	    strlen(by) > CKPT_DECIDED_BY_MAX || !is_word(by) || !is_folder(folder_id))
		return -EINVAL;
	taken = &d->steps[d->count++];
	*taken = (struct ckpt_decided_step){
		.step = step, .at_ns = at_ns, .latest = latest, .save = save, .permanent = permanent};
	strcpy(taken->folder_id, folder_id);
	strcpy(taken->by, by);
	return 0;
}

// Absent: none.
static int take_preemption(const json_t *json, struct ckpt_decided *d)
{
	if (!json)
		return 0;
	if (!json_is_integer(json) || json_integer_value(json) < -1)
		return -EINVAL;
	d->preempted_at = json_integer_value(json);
	return 0;
}

static int take_all(const json_t *root, int64_t now_ns, struct ckpt_decided *ret)
{
	const json_t *runs = json_object_get(root, "runs"), *steps = json_object_get(root, "decisions");
	const json_t *policy = json_object_get(root, "policy");
	json_t *item;
	size_t i;
	int rc = json_is_integer(policy) && json_integer_value(policy) >= 0 && json_is_array(runs) &&
				 json_is_array(steps)
			 ? 0
			 : -EINVAL;

	if (!rc) {
		ckpt_decided_under(ret, (uint64_t)json_integer_value(policy));
		rc = take_preemption(json_object_get(root, "preempted_at"), ret);
	}
	json_array_foreach(runs, i, item)
	{
		if (!rc)
			rc = take_run(item, now_ns, ret);
	}
	json_array_foreach(steps, i, item)
	{
		if (!rc)
			rc = take_step(item, ret);
	}
	return rc;
}

int ckpt_decided_parse(const char *text, size_t len, int64_t now_ns, struct ckpt_decided *ret)
{
	json_t *root;
	int rc = ckpt_json_load(text, len, JSON_REJECT_DUPLICATES, NULL, &root);

	ckpt_decided_init(ret, now_ns);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	if (take_all(root, now_ns, ret))
		ckpt_decided_init(ret, now_ns);
	json_decref(root);
	return 0;
}
