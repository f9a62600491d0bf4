#include "core/should_save.h"

#include "core/history.h"
#include "core/limits.h"
#include "core/policy_store.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"

#define KEY "policy/decisions"

struct last_change {
	int64_t number, at_ns;
};

static int look_for_change(void *arg, struct ckpt_step *step)
{
	struct last_change *c = arg;
	LOCK_SCOPE(&step->lock);

	if (step->summary.number != c->number)
		return 0;
	c->at_ns = MAX(c->at_ns, step->summary.first_committed_ns);
	if (step->state == CKPT_STEP_DELETED)
		c->at_ns = MAX(c->at_ns, step->deleted_ns);
	return 0;
}

// When a step of this folder and number was last committed or deleted; INT64_MIN: never.
static int64_t last_change_ns(struct ckpt_store *s, const char *folder_id, int64_t number)
{
	struct last_change c = {number, INT64_MIN};
	LOCK_SCOPE(&s->lock);

	(void)ckpt_step_each_locked(s, folder_id, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED, look_for_change,
				    &c);
	return c.at_ns;
}

static void tell(const struct ckpt_decided_step *found, struct ckpt_decision *ret_decision)
{
	*ret_decision = (struct ckpt_decision){
		.save = found->save, .permanent = found->permanent, .by = *found->by ? found->by : NULL};
}

static int decide(struct ckpt_store *s, const struct ckpt_policy *p, const struct ckpt_decide *q,
		  struct ckpt_decision *ret_decision, char **ret_why)
{
	int rc = q->should_save ? 0 : ckpt_policy_check_programs(s, p, ret_why);

	return rc ? rc : ckpt_decide(p, q, ret_decision, ret_why);
}

static int answer(struct ckpt_store *s, const struct ckpt_policy *p, struct ckpt_decide *q,
		  struct ckpt_decided *decided, struct ckpt_decision *ret_decision, bool *ret_changed, char **ret_why)
{
	const struct ckpt_decided_step *found;
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_history history;
	int64_t latest;
	int rc = ckpt_history_read_run(s, false, folder_id, &history);

	if (rc)
		return rc;
	q->steps = history.steps;
	q->count = history.count;
	q->now_ns = ckpt_sys.now_ns();
	q->clock_ns = decided->clock_ns;
	latest = ckpt_decide_latest(q);
	found = ckpt_decided_find(decided, q->step, q->now_ns, last_change_ns(s, folder_id, q->step), latest);
	if (!found || (q->force && !found->permanent)) {
		rc = decide(s, p, q, ret_decision, ret_why);
		*ret_changed = !rc;
		if (!rc)
			found = ckpt_decided_add(decided, q->step, q->now_ns, latest, ret_decision);
	}
	if (!rc)
		tell(found, ret_decision);
	ckpt_history_done(&history);
	q->steps = NULL;
	q->count = 0;
	return rc;
}

int ckpt_should_save(struct ckpt_store *s, struct ckpt_decide *q, struct ckpt_decided *decided,
		     struct ckpt_decision *ret_decision, bool *ret_changed, char **ret_why)
{
	char etag[CKPT_ETAG_MAX];
	struct ckpt_policy policy;
	int rc = ckpt_policy_load(s, &policy, etag, ret_why);

	*ret_changed = false;
	if (rc)
		return rc;
	ckpt_decided_under(decided, etag);
	rc = answer(s, &policy, q, decided, ret_decision, ret_changed, ret_why);
	ckpt_policy_done(&policy);
	return rc;
}

// What cannot be used of it says nothing.
static int read_decided(struct ckpt_store *s, struct ckpt_decided *ret, char ret_etag[CKPT_ETAG_MAX])
{
	CLEANUP_FREE void *text = NULL;
	struct ckpt_object object = {.etag = ""};
	size_t len = 0;
	int rc = ckpt_backend_get_all(s->backend, KEY, CKPT_CAS_BYTES_MAX, &text, &len, &object);

	if (rc == -EFBIG)
		rc = ckpt_backend_head(s->backend, KEY, &object);
	memcpy(ret_etag, object.etag, CKPT_ETAG_MAX);
	return rc && rc != -ENOENT ? rc : ckpt_decided_parse(text ? text : "", len, ckpt_sys.now_ns(), ret);
}

int ckpt_should_save_at_rest(struct ckpt_store *s, struct ckpt_decide *q, struct ckpt_decided *decided,
			     struct ckpt_decision *ret_decision, char **ret_why)
{
	CLEANUP_FREE char *text = NULL;
	char etag[CKPT_ETAG_MAX];
	bool changed;
	int rc;

	*ret_why = NULL;
	rc = read_decided(s, decided, etag);
	if (!rc)
		rc = ckpt_should_save(s, q, decided, ret_decision, &changed, ret_why);
	if (rc || !changed)
		return rc;
	text = ckpt_decided_text(decided);
	return text ? ckpt_policy_put_object(s->backend, KEY, etag, text) : -ENOMEM;
}

const char *ckpt_should_save_hint(int error)
{
	switch (error) {
	case -EBADMSG:
		return "`ckptfs policy set` replaces it";
	case -EPERM:
		return "take that right away (chmod go-w, chown), and see what `ckptfs policy show` says";
	default:
		return NULL;
	}
}
