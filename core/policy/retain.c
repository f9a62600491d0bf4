#include "core/policy/retain.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/policy/policy_store.h"
#include "core/save/commit.h"
#include "core/save/delete.h"
#include "core/step/removal.h"
#include "core/step/store.h"

#define RETRY_NS (INT64_C(600) * 1000000000)

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

static bool wants_metrics(const struct ckpt_policy *p)
{
	return ckpt_policy_has(&p->keep, CKPT_POLICY_BEST_N);
}

// before: what was read of the steps a moment ago.
static int judge_all(struct ckpt_store *s, const struct ckpt_policy *p, int64_t now_ns,
		     const struct ckpt_history *before, struct ckpt_retain *ret_retain)
{
	CLEANUP_FREE struct ckpt_step_name *names = NULL;
	struct ckpt_retain r = {0};
	int rc = wants_metrics(p) ? ckpt_history_read_again(s, NULL, before, &r.history)
				  : ckpt_history_read(s, NULL, false, &r.history);

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

int ckpt_retain_judge(struct ckpt_store *s, const struct ckpt_policy *p, int64_t now_ns, struct ckpt_retain *ret_retain)
{
	return judge_all(s, p, now_ns, &(struct ckpt_history){0}, ret_retain);
}

// A record for each step is read before acts_lock is taken, so that deletions do not wait for that: under it only those are read
// again that have changed. What cannot be read says so then.
static void read_before(struct ckpt_store *s, struct ckpt_history *ret_history)
{
	CLEANUP_FREE char *why = NULL;
	struct ckpt_policy p;
	uint64_t seq;

	*ret_history = (struct ckpt_history){0};
	if (ckpt_policy_load(s, &p, &seq, &why))
		return;
	if (wants_metrics(&p))
		(void)ckpt_history_read(s, NULL, true, ret_history);
	ckpt_policy_done(&p);
}

void ckpt_retain_done(struct ckpt_retain *r)
{
	ckpt_history_done(&r->history);
	free(r->verdicts);
	*r = (struct ckpt_retain){0};
}

static void tell_retention(size_t count, uint64_t bytes)
{
	char size[CKPT_SIZE_MAX];

	if (count)
		ckpt_log(CKPT_LOG_INFO, "retention moved %zu step%s, %s to the trash", count, count == 1 ? "" : "s",
			 ckpt_size_text(bytes, size));
}

// --- At once ----------------------------------------------------------------------------------------------------------

static int delete_one_locked(const struct ckpt_retain *judged, struct ckpt_step *step)
{
	size_t i = 0;

	while (i < judged->history.count && judged->history.at[i] != step)
		i++;
	if (i == judged->history.count || judged->verdicts[i].keep)
		return -ESTALE;
	return ckpt_delete_behind_locked(step, judged->history.steps[i].temporary);
}

static int retain_by(struct ckpt_store *s, struct ckpt_step *const *steps, size_t count,
		     const struct ckpt_history *before, int *ret_results)
{
	LOCK_SCOPE(&s->acts_lock);
	CLEANUP_FREE char *why = NULL;
	struct ckpt_policy p = {0};
	struct ckpt_retain judged;
	uint64_t bytes = 0, seq;
	size_t gone = 0;
	int rc = ckpt_policy_load(s, &p, &seq, &why);

	if (!rc)
		rc = judge_all(s, &p, ckpt_sys.now_ns(), before, &judged);
	ckpt_policy_done(&p);
	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++) {
		ret_results[i] = delete_one_locked(&judged, steps[i]);
		gone += !ret_results[i];
		bytes += ret_results[i] ? 0 : ckpt_step_bytes(steps[i]);
	}
	tell_retention(gone, bytes);
	ckpt_retain_done(&judged);
	return 0;
}

int ckpt_retain(struct ckpt_store *s, struct ckpt_step *const *steps, size_t count, int *ret_results)
{
	struct ckpt_history before;
	int rc;

	read_before(s, &before);
	rc = retain_by(s, steps, count, &before, ret_results);
	ckpt_history_done(&before);
	return rc;
}

// --- Behind -----------------------------------------------------------------------------------------------------------

// What is in no listing for now would be missing in the judgement of the others.
static int anybody_changes(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list_stored(s, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++) {
		if (ckpt_step_state(steps[i]) == CKPT_STEP_COMMITTED &&
		    (ckpt_step_is_reopened(steps[i]) || ckpt_removal_any(steps[i])))
			rc = -EBUSY;
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

// When the newest step of its folder was committed. Under acts_lock nothing moves elsewhere.
static int64_t newest_ns(const struct ckpt_history *h, size_t i)
{
	size_t newest = h->count - 1;

	while (strcmp(h->at[newest]->folder_id, h->at[i]->folder_id))
		newest--;
	return h->steps[newest].committed_ns;
}

// For how long it is known that the newest of the step's folder is committed. Where the clock was set back since, the last
// commit of this process is what there was at most.
static int64_t since_newest(const struct ckpt_history *h, size_t i, int64_t now_ns)
{
	struct ckpt_store *s = h->at[i]->store;
	int64_t since_ns = ckpt_time_between(newest_ns(h, i), now_ns);
	LOCK_SCOPE(&s->lock);

	if (since_ns >= 0)
		return since_ns;
	return ckpt_commits_of(s)->last_commit.any ? ckpt_sys.mono_ns() - ckpt_commits_of(s)->last_commit.at_mono_ns
						   : INT64_MAX;
}

struct round {
	struct ckpt_step *gone[CKPT_RETAIN_MAX]; // references
	size_t count;
	uint64_t bytes; // of those
	int64_t again_ns;
};

static void delete_dropped_locked(const struct ckpt_retain *judged, int64_t now_ns, int64_t over_ns,
				  struct round *round)
{
	for (size_t i = 0; i < judged->history.count && round->count < CKPT_RETAIN_MAX; i++) {
		struct ckpt_step *step = judged->history.at[i];
		int64_t over_since_ns;
		int rc;

		if (judged->verdicts[i].keep || judged->history.steps[i].temporary)
			continue;
		over_since_ns = since_newest(&judged->history, i, now_ns);
		if (over_since_ns < over_ns) {
			round->again_ns = MIN(round->again_ns, over_ns - over_since_ns);
			continue;
		}
		rc = ckpt_delete_behind_locked(step, false);
		if (!rc) {
			round->gone[round->count++] = ckpt_step_ref(step);
			round->bytes += ckpt_step_bytes(step);
		} else if (rc != -ESTALE)
			round->again_ns = MIN(round->again_ns, RETRY_NS);
	}
}

// By the policy that is in force now: another may have been set since the last round.
static int delete_some(struct ckpt_store *s, int64_t over_ns, const struct ckpt_history *before, struct round *round,
		       char **ret_why)
{
	LOCK_SCOPE(&s->acts_lock);
	int64_t now_ns = ckpt_sys.now_ns();
	struct ckpt_policy p = {0};
	struct ckpt_retain judged = {0};
	uint64_t seq;
	int rc = ckpt_policy_load(s, &p, &seq, ret_why);

	if (!rc && !ckpt_policy_has(&p.keep, CKPT_POLICY_PRESERVE_ALL)) {
		rc = anybody_changes(s);
		if (!rc)
			rc = judge_all(s, &p, now_ns, before, &judged);
	}
	if (!rc)
		delete_dropped_locked(&judged, now_ns, over_ns, round);
	ckpt_retain_done(&judged);
	ckpt_policy_done(&p);
	return rc;
}

static int delete_all(struct ckpt_store *s, int64_t over_ns, const bool *stop, int64_t *ret_again_ns, char **ret_why)
{
	struct ckpt_history before;
	struct round round;
	int rc;

	read_before(s, &before);
	do {
		round = (struct round){.again_ns = INT64_MAX};
		rc = delete_some(s, over_ns, &before, &round, ret_why);
		tell_retention(round.count, round.bytes);
		for (size_t i = 0; i < round.count; i++) {
			if (s->calls.gone)
				s->calls.gone(s->calls.gone_arg, round.gone[i]);
			ckpt_step_unref(round.gone[i]);
		}
	} while (!rc && round.count == CKPT_RETAIN_MAX && !(stop && __atomic_load_n(stop, __ATOMIC_RELAXED)));
	ckpt_history_done(&before);
	*ret_again_ns = round.again_ns;
	return rc;
}

int64_t ckpt_retain_behind(struct ckpt_store *s, int64_t over_ns, const bool *stop, bool *told)
{
	CLEANUP_FREE char *why = NULL;
	int64_t again_ns;
	int rc = delete_all(s, over_ns, stop, &again_ns, &why);

	if (rc == -EBUSY)
		return RETRY_NS;
	if (rc && !*told)
		ckpt_errlog_add(s->errlog, "policy", rc, "`ckptfs retain` says what is wrong",
				"the policy cannot be applied, so it deletes nothing: %s", why ? why : strerror(-rc));
	*told = rc;
	return rc ? RETRY_NS : again_ns;
}
