// States of the job:
//
//   RESTS    until the newest CONDEMN is a day old
//   IS_DUE   it is, and a random time passes
//   COMES_BACK   for what it has condemned itself, or has put elsewhere, which is pushed by then
#include "core/remote/collector.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/collect.h"
#include "core/remote/near.h"
#include "core/state/condemned.h"
#include "core/step/errlog.h"

#include <stdio.h>

#define SECOND_NS INT64_C(1000000000)

const struct ckpt_collector_pace ckpt_collector_pace = {.first_ns = 300 * SECOND_NS,
							.period_ns = 24 * 3600 * SECOND_NS,
							.spread_ns = 3600 * SECOND_NS,
							.retry_ns = 3600 * SECOND_NS,
							.grace_ns = CKPT_COLLECT_GRACE_NS,
							.delay_ns = CKPT_COLLECT_DELAY_NS,
							.repack_bytes = CKPT_COLLECT_REPACK_BYTES};

enum state { RESTS, IS_DUE, COMES_BACK };

struct ckpt_collector {
	struct ckpt_store *store;
	struct ckpt_collector_pace pace;
	enum state state;
	int64_t next_ns; // monotonic
	struct ckpt_job *job;
	char told[CKPT_COLLECT_WHY_MAX];
	bool damage_told;
};

static int look_at_last(void *arg, const struct ckpt_state *state)
{
	uint64_t seq = ckpt_state_last_condemn(state);

	*(uint64_t *)arg = seq ? seq : MIN(ckpt_state_remote(state).seq, UINT64_C(1));
	return 0;
}

// Since the newest CONDEMN, or, if there is none, since the first entry. -ENOENT: there is none of these.
static int age(const struct ckpt_collector *c, int64_t *ret_age_ns)
{
	char key[CKPT_LOG_KEY_MAX];
	struct ckpt_object entry;
	uint64_t seq;
	int rc;

	(void)ckpt_journal_look(c->store->journal, look_at_last, &seq);
	if (!seq)
		return -ENOENT;
	ckpt_log_key(seq, key);
	rc = ckpt_objects_head(ckpt_near_there(c->store->objects), key, &entry);
	if (!rc)
		*ret_age_ns = ckpt_sys.now_ns() - entry.mtime_ns;
	return rc;
}

static int64_t random_ns(int64_t most_ns)
{
	uint64_t n = 0;

	(void)ckpt_sys.random(&n, sizeof(n));
	return most_ns ? (int64_t)(n % (uint64_t)most_ns) : 0;
}

static bool goes_on(void *job, uint64_t bytes __attribute__((unused)))
{
	return ckpt_job_go_on(job, 0);
}

static void tell(struct ckpt_collector *c, int rc, const struct ckpt_collect_done *done)
{
	const char *why = *done->why ? done->why : strerror(-rc);

	if (rc && strcmp(c->told, rc == -EPERM ? "more than half" : why))
		ckpt_errlog_add(c->store->errlog, "gc", rc, ckpt_collect_hint(rc),
				"garbage was not removed from the bucket: %s", why);
	snprintf(c->told, sizeof(c->told), "%s", rc == -EPERM ? "more than half" : rc ? why : "");
}

// The time until the next look, from now on.
static int64_t collect(struct ckpt_collector *c, struct ckpt_job *job)
{
	const struct ckpt_collect_how how = {
		.grace_ns = c->pace.grace_ns,
		.delay_ns = c->pace.delay_ns,
		.repack = {.bytes_max = c->pace.repack_bytes, .gently = true, .quiet = c->damage_told},
		.leaves_word = c->state == IS_DUE,
		.go_on = goes_on,
		.arg = job};
	struct ckpt_collect_done done;
	int rc = ckpt_collect(c->store, &how, &done);

	c->state = RESTS;
	if (rc == -EINTR)
		return 0;
	tell(c, rc, &done);
	if (rc)
		return rc == -EACCES || rc == -EPERM ? c->pace.period_ns : c->pace.retry_ns;
	c->damage_told |= done.damaged > 0;
	if (!done.waiting.objects && !done.repacked.objects)
		return c->pace.period_ns; // whatever this node's clock says of the entry
	c->state = COMES_BACK;
	return done.waiting.objects ? done.waiting_ns : c->pace.retry_ns;
}

static int64_t look(struct ckpt_collector *c, struct ckpt_job *job)
{
	int64_t age_ns;
	int rc = age(c, &age_ns);

	if (rc)
		return rc == -ENOENT ? c->pace.period_ns
				     : c->pace.retry_ns; // the thread that pushes tells that it is away
	if (age_ns < c->pace.period_ns) {
		c->state = RESTS;
		return MIN(c->pace.period_ns - age_ns, c->pace.period_ns);
	}
	if (c->state == IS_DUE)
		return collect(c, job);
	c->state = IS_DUE;
	return random_ns(c->pace.spread_ns);
}

static int64_t turn(void *arg, struct ckpt_job *job)
{
	struct ckpt_collector *c = arg;
	int64_t wait_ns;

	if (ckpt_sys.mono_ns() < c->next_ns)
		return c->next_ns;
	wait_ns = c->state == COMES_BACK ? collect(c, job) : look(c, job);
	c->next_ns = ckpt_sys.mono_ns() + wait_ns;
	return c->next_ns;
}

int ckpt_collector_new(struct ckpt_store *s, const struct ckpt_collector_pace *pace,
		       struct ckpt_collector **ret_collector)
{
	struct ckpt_collector *c = ckpt_calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->store = s;
	c->pace = *pace;
	c->next_ns = ckpt_sys.mono_ns() + pace->first_ns;
	rc = ckpt_job_new(s->jobs, &(struct ckpt_job_of){"collect", CKPT_JOB_GIVES_WAY, turn, c, false}, &c->job);
	if (rc) {
		free(c);
		return rc;
	}
	*ret_collector = c;
	return 0;
}

void ckpt_collector_stop(struct ckpt_collector *c)
{
	if (c)
		ckpt_job_stop(c->job);
}

void ckpt_collector_free(struct ckpt_collector *c)
{
	free(c);
}

struct ckpt_part ckpt_collector_part = {.bytes = sizeof(struct ckpt_collector *)};
