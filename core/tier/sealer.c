#include "core/tier/sealer.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/behind.h"
#include "core/step/store.h"
#include "core/tier/seal.h"

#define AGAIN_NS INT64_C(1000000000) // until it looks again when there was no memory to, or another seals a step

struct ckpt_sealer {
	struct ckpt_store *store;
	struct ckpt_behind *behind;
};

// --- Which steps --------------------------------------------------------------------------------------------------------

// All that are to be sealed now, in the order of their commits: what is committed meanwhile comes later in any case.
struct turn {
	struct candidate {
		struct ckpt_step *step; // a reference
		uint64_t sequence;
	} * steps;
	size_t count, cap;
	int64_t now_ns;
	int64_t next_ns; // when to look again, at the latest
};

static bool is_taken(struct ckpt_step *step)
{
	return __atomic_load_n(&ckpt_sealing_of(step)->taken, __ATOMIC_RELAXED);
}

static int choose_locked(void *arg, struct ckpt_step *step)
{
	struct turn *t = arg;
	LOCK_SCOPE(&step->lock);
	int rc;

	if (step->version->is.sealed)
		return 0;
	if (is_taken(step)) {
		t->next_ns = MIN(t->next_ns, t->now_ns + AGAIN_NS);
		return 0;
	}
	if (ckpt_sealing_of(step)->seal_failed == step->version->is.version &&
	    ckpt_sealing_of(step)->seal_after_ns > t->now_ns) {
		t->next_ns = MIN(t->next_ns, ckpt_sealing_of(step)->seal_after_ns);
		return 0;
	}
	rc = ckpt_grow((void **)&t->steps, &t->cap, t->count + 1, sizeof(*t->steps));
	if (!rc)
		t->steps[t->count++] = (struct candidate){ckpt_step_ref(step), step->born.sequence};
	return rc;
}

static int by_sequence(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static struct turn choose(struct ckpt_store *s)
{
	struct turn t = {.now_ns = ckpt_sys.mono_ns()};
	int rc;

	// What is reopened or being removed is in no list, and comes back without a word.
	t.next_ns = t.now_ns + CKPT_BEHIND_LATER_NS;
	ckpt_lock_take(&s->lock);
	rc = ckpt_step_each_locked(s, NULL, 1u << CKPT_STEP_COMMITTED, choose_locked, &t);
	ckpt_lock_drop(&s->lock);
	if (rc) // there was no memory for all of them
		t.next_ns = t.now_ns + AGAIN_NS;
	if (t.count)
		qsort(t.steps, t.count, sizeof(*t.steps), by_sequence);
	return t;
}

// --- The thread ---------------------------------------------------------------------------------------------------------

struct sealing {
	struct ckpt_behind *behind;
	struct ckpt_step *step;
};

static bool go_on(void *arg, uint64_t bytes)
{
	const struct sealing *sealing = arg;

	return !is_taken(sealing->step) && ckpt_behind_go_on(sealing->behind, bytes);
}

static void seal(struct ckpt_behind *behind, struct ckpt_step *step)
{
	struct sealing sealing = {behind, step};
	const struct ckpt_seal_how how = {.go_on = go_on, .arg = &sealing, .behind = true};
	int rc = ckpt_seal(step, &how);

	if (!rc || rc == -EINTR)
		return;
	LOCK_SCOPE(&step->lock);
	ckpt_sealing_of(step)->seal_failed = step->version->is.version;
	ckpt_sealing_of(step)->seal_after_ns = ckpt_behind_again_ns(rc);
}

static int64_t turn(void *arg, struct ckpt_behind *behind)
{
	struct ckpt_sealer *sealer = arg;
	struct turn t = choose(sealer->store);

	for (size_t i = 0; i < t.count; i++) {
		if (!ckpt_behind_stops(behind))
			seal(behind, t.steps[i].step);
		ckpt_step_unref(t.steps[i].step);
	}
	free(t.steps);
	return t.count ? 0 : t.next_ns;
}

int ckpt_sealer_new(struct ckpt_store *s, struct ckpt_sealer **ret_sealer)
{
	struct ckpt_sealer *sealer = calloc(1, sizeof(*sealer));
	int rc;

	if (!sealer)
		return -ENOMEM;
	sealer->store = s;
	rc = ckpt_behind_new(s, turn, sealer, &sealer->behind);
	if (rc)
		free(sealer);
	else
		*ret_sealer = sealer;
	return rc;
}

void ckpt_sealer_wake(struct ckpt_sealer *sealer)
{
	if (sealer)
		ckpt_behind_wake(sealer->behind);
}

void ckpt_sealer_stop(struct ckpt_sealer *sealer)
{
	if (sealer)
		ckpt_behind_stop(sealer->behind);
}

void ckpt_sealer_free(struct ckpt_sealer *sealer)
{
	if (!sealer)
		return;
	ckpt_behind_free(sealer->behind);
	free(sealer);
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

void ckpt_sealer_pending(struct ckpt_sealer *sealer, uint64_t *ret_files, uint64_t *ret_bytes)
{
	struct pending p = {0};

	if (sealer) {
		LOCK_SCOPE(&sealer->store->lock);

		ckpt_step_each_locked(sealer->store, NULL, 1u << CKPT_STEP_COMMITTED, add_pending_locked, &p);
	}
	*ret_files = p.files;
	*ret_bytes = p.bytes;
}

struct ckpt_part ckpt_sealing_part = {.bytes = sizeof(struct ckpt_sealing)};

struct ckpt_part ckpt_sealer_part = {.bytes = sizeof(struct ckpt_sealer *)};
