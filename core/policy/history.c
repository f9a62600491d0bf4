#include "core/policy/history.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/step/removal.h"
#include "core/step/store.h"

struct entry {
	struct ckpt_policy_step seen;
	struct ckpt_step *step;
	uint32_t version;
	bool changed;   // since its first commit, so that its sequence may be that of a later one
	bool went_back; // by the clock, before that
	uint64_t came;  // the sequence of its first commit, as far as that is known
};

// What is being removed is about to be none; what is reopened is committed all the while.
static bool look_at(struct ckpt_step *step, const char *folder_id, struct entry *ret)
{
	struct ckpt_step_name name;

	ckpt_step_name(step, &name);
	if ((folder_id && strcmp(name.folder_id, folder_id)) || ckpt_removal_hides(step))
		return false;
	LOCK_SCOPE(&step->lock);

	*ret = (struct entry){
		.seen = {.number = step->version->is.number,
			 .committed_ns = step->born.first_committed_ns,
			 .sequence = step->born.sequence,
			 .temporary = step->version->is.temporary,
			 .pinned = step->version->is.pinned},
		.step = step,
		.version = step->version->is.version,
		.changed = step->version->is.committed_ns != step->born.first_committed_ns,
		.went_back = step->version->is.committed_ns < step->born.first_committed_ns,
		.came = step->born.sequence,
	};
	return step->state == CKPT_STEP_COMMITTED && step->version->is.number >= 0;
}

static int by_time(const void *a, const void *b)
{
	const struct ckpt_policy_step *x = &((const struct entry *)a)->seen, *y = &((const struct entry *)b)->seen;

	if (x->committed_ns != y->committed_ns)
		return x->committed_ns < y->committed_ns ? -1 : 1;
	return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static int by_first_commit(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->came != y->came ? (x->came > y->came) - (x->came < y->came) : by_time(a, b);
}

// The sequence of the version whose commit was the step's first, out of its record; 0: it is gone.
static uint64_t first_sequence(const struct entry *e)
{
	uint64_t sequence = 0;

	for (uint32_t version = e->version; version && !sequence; version--) {
		struct ckpt_record r;

		if (ckpt_step_record(e->step, version, &r))
			return 0;
		if (r.summary.committed_ns == r.summary.first_committed_ns)
			sequence = r.summary.sequence;
		ckpt_record_done(&r);
	}
	return sequence;
}

// A late change of a step makes its commit the last, but the step no newer: the times of first commits say so, unless the clock was
// set back in between. Where times and sequences differ, the records say which of both it was; without its record a step stays
// where its time has it.
static void sort(struct entry *entries, size_t count)
{
	uint64_t least = UINT64_MAX; // of those behind

	qsort(entries, count, sizeof(*entries), by_time);
	for (size_t i = count; i-- > 0;) {
		struct entry *e = &entries[i];
		uint64_t first = e->changed && (e->went_back || e->came > least) ? first_sequence(e) : e->came;

		e->came = first ? first : least;
		least = MIN(least, e->came);
	}
	qsort(entries, count, sizeof(*entries), by_first_commit);
}

static int read_metrics(struct ckpt_step *step, uint32_t version, const json_t **ret_metrics)
{
	struct ckpt_record record;
	json_t *metadata = NULL;
	int rc = ckpt_step_record(step, version, &record);

	if (rc)
		return rc;
	rc = record.metadata ? ckpt_json_load(record.metadata, strlen(record.metadata), 0, NULL, &metadata) : 0;
	*ret_metrics = json_incref(json_object_get(metadata, "metrics"));
	json_decref(metadata);
	ckpt_record_done(&record);
	return rc == -EINVAL ? -EBADMSG : rc;
}

// What was read before, by its step.
struct known {
	const struct ckpt_step *step;
	uint32_t version;
	const json_t *metrics; // borrowed
};

struct knowledge {
	bool metrics; // are wanted
	struct known *at;
	size_t count;
};

static int by_step(const void *a, const void *b)
{
	const struct known *x = a, *y = b;

	return (x->step > y->step) - (x->step < y->step);
}

static int know(const struct ckpt_history *before, struct knowledge *ret)
{
	ret->at = ckpt_calloc(before->count + 1, sizeof(*ret->at));
	if (!ret->at)
		return -ENOMEM;
	for (; ret->count < before->count; ret->count++)
		ret->at[ret->count] = (struct known){before->at[ret->count], before->versions[ret->count],
						     before->steps[ret->count].metrics};
	qsort(ret->at, ret->count, sizeof(*ret->at), by_step);
	return 0;
}

static int find_metrics(const struct knowledge *k, const struct entry *e, const json_t **ret_metrics)
{
	const struct known key = {.step = e->step};
	const struct known *found = k->count ? bsearch(&key, k->at, k->count, sizeof(key), by_step) : NULL;

	if (!found || found->version != e->version)
		return read_metrics(e->step, e->version, ret_metrics);
	*ret_metrics = json_incref((json_t *)found->metrics);
	return 0;
}

static int fill(struct ckpt_history *h, const struct entry *entries, size_t count, const struct knowledge *k)
{
	int rc = 0;

	h->steps = ckpt_calloc(count + 1, sizeof(*h->steps));
	h->at = ckpt_calloc(count + 1, sizeof(*h->at));
	h->versions = ckpt_calloc(count + 1, sizeof(*h->versions));
	if (!h->steps || !h->at || !h->versions)
		return -ENOMEM;
	for (; h->count < count && !rc; h->count++) {
		const struct entry *e = &entries[h->count];

		h->steps[h->count] = e->seen;
		h->at[h->count] = ckpt_step_ref(e->step);
		h->versions[h->count] = e->version;
		if (k->metrics)
			rc = find_metrics(k, e, &h->steps[h->count].metrics);
	}
	return rc;
}

static int read_all(struct ckpt_store *s, const char *folder_id, const struct knowledge *k,
		    struct ckpt_history *ret_history)
{
	CLEANUP_FREE struct entry *entries = NULL;
	struct ckpt_history h = {0};
	struct ckpt_step **steps;
	size_t listed, count = 0;
	int rc = ckpt_step_list_stored(s, &steps, &listed);

	if (rc)
		return rc;
	entries = ckpt_calloc(listed + 1, sizeof(*entries));
	for (size_t i = 0; entries && i < listed; i++)
		count += look_at(steps[i], folder_id, &entries[count]);
	if (entries)
		sort(entries, count);
	rc = entries ? fill(&h, entries, count, k) : -ENOMEM;
	ckpt_step_list_free(steps, listed);
	if (rc)
		ckpt_history_done(&h);
	else
		*ret_history = h;
	return rc;
}

int ckpt_history_read(struct ckpt_store *s, const char *folder_id, bool metrics, struct ckpt_history *ret_history)
{
	return read_all(s, folder_id, &(struct knowledge){.metrics = metrics}, ret_history);
}

int ckpt_history_read_again(struct ckpt_store *s, const char *folder_id, const struct ckpt_history *before,
			    struct ckpt_history *ret_history)
{
	struct knowledge k = {.metrics = true};
	int rc = know(before, &k);

	if (!rc)
		rc = read_all(s, folder_id, &k, ret_history);
	free(k.at);
	return rc;
}

// "" where there are no steps.
static int one_folder(const struct ckpt_history *h, char *ret_folder_id)
{
	struct ckpt_step_name name;

	*ret_folder_id = '\0';
	for (size_t i = 0; i < h->count; i++) {
		ckpt_step_name(h->at[i], &name);
		if (i && strcmp(name.folder_id, ret_folder_id))
			return -EMLINK;
		strcpy(ret_folder_id, name.folder_id);
	}
	return 0;
}

int ckpt_history_read_run(struct ckpt_store *s, bool metrics, char *ret_folder_id, struct ckpt_history *ret_history)
{
	struct ckpt_history h;
	int rc = ckpt_history_read(s, "", metrics, &h);

	if (!rc && !h.count) {
		ckpt_history_done(&h);
		rc = ckpt_history_read(s, NULL, metrics, &h);
	}
	if (rc)
		return rc;
	rc = one_folder(&h, ret_folder_id);
	if (rc)
		ckpt_history_done(&h);
	else
		*ret_history = h;
	return rc;
}

void ckpt_history_done(struct ckpt_history *h)
{
	for (size_t i = 0; i < h->count; i++) {
		json_decref((json_t *)h->steps[i].metrics);
		ckpt_step_unref(h->at[i]);
	}
	free(h->steps);
	free(h->at);
	free(h->versions);
	*h = (struct ckpt_history){0};
}
