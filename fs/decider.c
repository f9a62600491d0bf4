#include "fs/decider.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/should_save.h"
#include "core/step/errlog.h"
#include "fs/fs.h"

#include <inttypes.h>
#include <stdio.h>

struct decider {
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	int64_t preempted_at;
	uint64_t rounds; // decisions begun; the last one
	bool busy;       // is still being made, by who has `decided` for himself meanwhile,
	int64_t step;    // is about this step
	bool force, answered;
	char run[PATH_MAX];
	uint64_t failed_round; // the last one that failed; 0: none,
	int failure;           // and how
	char *why;
	struct ckpt_decided decided;
	bool changed_any;          // of it, by this mount
	struct ckpt_decided known; // what was decided when the last turn ended
};

struct decider *decider_new(struct ckpt_store *s)
{
	struct decider *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	ckpt_lock_init(&d->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&d->changed, NULL);
	if (!s->writable || ckpt_should_save_load(s, &d->decided))
		ckpt_decided_init(&d->decided, ckpt_sys.now_ns()); // no step is lost by that
	d->preempted_at = d->decided.preempted_at;
	d->decided.preempted_at = -1;
	if (d->preempted_at >= 0) // it is ours, and ends with us; on a full disk later
		(void)ckpt_should_save_preempt_at_rest(s, -1);
	d->known = d->decided;
	return d;
}

void decider_end(struct decider *d, struct ckpt_store *s)
{
	if (!d)
		return;
	if (d->changed_any) // on a full disk the next one decides anew
		(void)ckpt_should_save_keep(s, &d->decided);
	free(d->why);
	pthread_cond_destroy(&d->changed);
	ckpt_lock_done(&d->lock);
	free(d);
}

void decider_preempt(struct decider *d, int64_t at_step)
{
	LOCK_SCOPE(&d->lock);

	d->preempted_at = at_step;
}

int64_t decider_preempted_at(struct decider *d)
{
	LOCK_SCOPE(&d->lock);

	return d->preempted_at;
}

static char *copy_of(const char *text)
{
	return text ? strdup(text) : NULL;
}

static void tell(struct ckpt_fs *fs, const struct ckpt_decide *q, int rc, const char *why)
{
	char subject[CKPT_NAME_MAX + 1];

	snprintf(subject, sizeof(subject), "should_save/%.200s%s%" PRId64, q->run ? q->run : "", q->run ? "/" : "",
		 q->step);
	ckpt_errlog_add(fs->store->errlog, subject, rc, ckpt_should_save_hint(rc),
			"cannot decide whether to save the step: %s", why ? why : strerror(-rc));
}

// That none is named is something else than that it is in the root.
static const char *run_of(const struct ckpt_decide *q)
{
	return q->run ? q->run : "/";
}

// Until it is our turn: 0, or how the decision that we waited for has failed.
static int take_turn_locked(struct decider *d, const struct ckpt_decide *q, char **ret_why)
{
	bool same = d->busy && d->step == q->step && d->force == q->force && d->answered == q->answered &&
		    !strcmp(d->run, run_of(q));
	uint64_t awaited = same ? d->rounds : 0;
	int64_t end_ns = ckpt_sys.mono_ns() + CKPT_DECIDED_PATIENCE_NS;

	while (d->busy && ckpt_sys.mono_ns() < end_ns)
		ckpt_lock_wait_ns(&d->changed, &d->lock, end_ns - ckpt_sys.mono_ns());
	if (awaited && d->failed_round == awaited) {
		*ret_why = copy_of(d->why);
		return d->failure;
	}
	if (d->busy)
		return -EBUSY;
	if (!q->go_on(q->arg))
		return -EINTR;
	d->busy = true;
	d->step = q->step;
	d->force = q->force;
	d->answered = q->answered;
	snprintf(d->run, sizeof(d->run), "%s", run_of(q));
	d->rounds++;
	return 0;
}

static void end_turn(struct decider *d, int rc, const char *why)
{
	LOCK_SCOPE(&d->lock);

	d->busy = false;
	d->known = d->decided;
	if (rc) {
		d->failed_round = d->rounds;
		d->failure = rc;
		free(d->why);
		d->why = copy_of(why);
	}
	pthread_cond_broadcast(&d->changed);
}

static bool goes_on(void *arg)
{
	const struct ckpt_fs *fs = arg;

	return !__atomic_load_n(&fs->ending, __ATOMIC_ACQUIRE);
}

int decider_ask(struct ckpt_fs *fs, struct ckpt_decide *q, struct ckpt_decided_step *ret_answer, char **ret_why)
{
	struct decider *d = fs->decider;
	bool changed;
	int rc;

	*ret_why = NULL;
	if (fs->mount->readonly) {
		*ret_answer = (struct ckpt_decided_step){.step = q->step, .by = CKPT_DECIDED_READ_ONLY};
		return 0;
	}
	q->go_on = goes_on;
	q->arg = fs;
	ckpt_lock_take(&d->lock);
	rc = take_turn_locked(d, q, ret_why);
	q->preempted_at = d->preempted_at;
	ckpt_lock_drop(&d->lock);
	if (rc == -EBUSY) {
		*ret_why = copy_of("the decisions of other callers take too long");
		tell(fs, q, rc, *ret_why);
	}
	if (rc)
		return rc;
	rc = ckpt_should_save_by(fs->store, q, &d->decided, ret_answer, &changed,
				 ret_why); // `decided` is ours: it is our turn
	d->changed_any |= changed;
	if (rc)
		tell(fs, q, rc, *ret_why);
	end_turn(d, rc, *ret_why);
	return rc;
}

void decider_known(void *decider, struct ckpt_decided *ret)
{
	struct decider *d = decider;
	LOCK_SCOPE(&d->lock);

	*ret = d->known;
}

char *decider_json(const struct ckpt_decided_step *answer)
{
	json_t *json = json_pack("{s:b, s:b, s:s?}", "save", (int)answer->save, "permanent", (int)answer->permanent,
				 "policy", *answer->by ? answer->by : NULL);
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL, *line = NULL;

	json_decref(json);
	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}
