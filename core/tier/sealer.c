#include "core/tier/sealer.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/store.h"
#include "core/tier/seal.h"

#define AGAIN_NS INT64_C(1000000000) // until it looks again when there was no memory to, or another seals a step

// --- Which steps --------------------------------------------------------------------------------------------------------

// All that are to be sealed now, in the order of their commits: what is committed meanwhile comes later in any case.
struct turn {
	struct ckpt_step **steps; // in the order of their commits
	size_t count;
	int64_t now_ns;
	int64_t next_ns; // when to look again, at the latest
};

static bool is_taken(struct ckpt_step *step)
{
	return __atomic_load_n(&ckpt_sealing_of(step)->taken, __ATOMIC_RELAXED);
}

static bool wants_locked(void *arg, struct ckpt_step *step)
{
	struct turn *t = arg;
	LOCK_SCOPE(&step->lock);

	if (step->version->is.sealed)
		return false;
	if (is_taken(step)) {
		t->next_ns = MIN(t->next_ns, t->now_ns + AGAIN_NS);
		return false;
	}
	if (ckpt_sealing_of(step)->seal_failed == step->version->is.version &&
	    ckpt_sealing_of(step)->seal_after_ns > t->now_ns) {
		t->next_ns = MIN(t->next_ns, ckpt_sealing_of(step)->seal_after_ns);
		return false;
	}
	return true;
}

static struct turn choose(struct ckpt_store *s)
{
	struct turn t = {.now_ns = ckpt_sys.mono_ns()};
	int rc;

	// What is reopened or being removed is in no list, and comes back without a word.
	t.next_ns = t.now_ns + CKPT_JOB_LATER_NS;
	rc = ckpt_step_choose(s, NULL, 1u << CKPT_STEP_COMMITTED, wants_locked, &t, &t.steps, &t.count);
	if (rc) // there was no memory for all of them
		t.next_ns = t.now_ns + AGAIN_NS;
	return t;
}

// --- The job ----------------------------------------------------------------------------------------------------------

struct sealing {
	struct ckpt_job *job;
	struct ckpt_step *step;
};

static bool go_on(void *arg, uint64_t bytes)
{
	const struct sealing *sealing = arg;

	return !is_taken(sealing->step) && ckpt_job_go_on(sealing->job, bytes);
}

static void seal(struct ckpt_job *job, struct ckpt_step *step)
{
	struct sealing sealing = {job, step};
	const struct ckpt_seal_how how = {.go_on = go_on, .arg = &sealing, .behind = true};
	int rc = ckpt_seal(step, &how);

	if (!rc || rc == -EINTR)
		return;
	LOCK_SCOPE(&step->lock);
	ckpt_sealing_of(step)->seal_failed = step->version->is.version;
	ckpt_sealing_of(step)->seal_after_ns = ckpt_job_again_ns(rc);
}

static int64_t turn(void *store, struct ckpt_job *job)
{
	struct turn t = choose(store);

	for (size_t i = 0; i < t.count; i++) {
		if (!ckpt_job_stops(job))
			seal(job, t.steps[i]);
		ckpt_step_unref(t.steps[i]);
	}
	free(t.steps);
	return t.count ? 0 : t.next_ns;
}

int ckpt_sealer_start(struct ckpt_store *s)
{
	return ckpt_job_new(s->jobs, &(struct ckpt_job_of){"seal", CKPT_JOB_GIVES_WAY, turn, s, false},
			    ckpt_sealer_of(s));
}

struct pending {
	uint64_t files, bytes;
};

static int add_pending_locked(void *arg, struct ckpt_step *step)
{
	struct pending *p = arg;
	LOCK_SCOPE(&step->lock);

	if (!step->version->is.sealed && (ckpt_sealing_of(step)->seal_failed != step->version->is.version ||
					  ckpt_sealing_of(step)->seal_after_ns != INT64_MAX)) {
		p->files += step->version->is.files;
		p->bytes += step->version->is.bytes;
	}
	return 0;
}

void ckpt_sealer_pending(struct ckpt_store *s, uint64_t *ret_files, uint64_t *ret_bytes)
{
	struct pending p = {0};

	if (*ckpt_sealer_of(s)) {
		LOCK_SCOPE(&s->lock);

		ckpt_step_each_locked(s, NULL, 1u << CKPT_STEP_COMMITTED, add_pending_locked, &p);
	}
	*ret_files = p.files;
	*ret_bytes = p.bytes;
}

struct ckpt_part ckpt_sealing_part = {.bytes = sizeof(struct ckpt_sealing)};

struct ckpt_part ckpt_sealer_part = {.bytes = sizeof(struct ckpt_job *)};
