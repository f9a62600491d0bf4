#include "core/sealer.h"

#include "core/lock.h"
#include "core/seal.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"

#define AGAIN_NS INT64_C(1000000000)   // until a step is tried again that is being changed
#define LATER_NS INT64_C(600000000000) // or for which there was no memory, no room, ...
#define SPELL_NS INT64_C(4000000)      // a reader reads at least so long before it looks around
#define SAVE_SHARE 8                   // of a reader's time: what it takes while a save runs
#define GIVE_WAY 15                    // times as long as it waited for a processor it leaves them to others,
#define REST_MAX_NS INT64_C(1000000000)
#define NAP_NS INT64_C(20000000) // so long at once, to hear of its end

struct ckpt_sealer {
	struct ckpt_store *store;
	pthread_t thread;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	bool woken;     // guarded by lock
	bool stop;      // set under lock; atomic
	bool save_runs; // at the last look; atomic
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

static int choose_locked(void *arg, struct ckpt_step *step)
{
	struct turn *t = arg;
	LOCK_SCOPE(&step->lock);
	int rc;

	if (step->summary.sealed)
		return 0;
	if (step->seal_failed == step->summary.version && step->seal_after_ns > t->now_ns) {
		t->next_ns = MIN(t->next_ns, step->seal_after_ns);
		return 0;
	}
	rc = ckpt_grow((void **)&t->steps, &t->cap, t->count + 1, sizeof(*t->steps));
	if (!rc)
		t->steps[t->count++] = (struct candidate){ckpt_step_ref(step), step->summary.sequence};
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
	t.next_ns = t.now_ns + LATER_NS;
	ckpt_lock_take(&s->lock);
	rc = ckpt_step_each_locked(s, NULL, 1u << CKPT_STEP_COMMITTED, choose_locked, &t);
	ckpt_lock_drop(&s->lock);
	if (rc) // there was no memory for all of them
		t.next_ns = t.now_ns + AGAIN_NS;
	if (t.count)
		qsort(t.steps, t.count, sizeof(*t.steps), by_sequence);
	return t;
}

// --- How fast -----------------------------------------------------------------------------------------------------------

static int writes_locked(void *arg __attribute__((unused)), struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->state == CKPT_STEP_COMMITTING || step->writers;
}

static void look_for_saves(void *arg)
{
	struct ckpt_sealer *sealer = arg;
	LOCK_SCOPE(&sealer->store->lock);
	int runs = ckpt_step_each_locked(sealer->store, NULL, 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING,
					 writes_locked, NULL);

	__atomic_store_n(&sealer->save_runs, runs, __ATOMIC_RELAXED);
}

static bool stops(const struct ckpt_sealer *sealer)
{
	return __atomic_load_n(&sealer->stop, __ATOMIC_RELAXED);
}

// Of a reader, since it last looked around.
static _Thread_local struct {
	int64_t began_ns; // 0: it is new
	int64_t waited_ns;
} spell;

// The kernel prefers all others to a reader only among those who share its group: the processes of a session have a group of
// their own (sched_autogroup), and so has a service or a container. Against others it has a fair half, as anybody. But whoever
// takes the processor from others waits for it just as they do. So it leaves the processors alone GIVE_WAY times as long as it
// had to wait: where all are busy it takes a sixteenth of the half, where one is idle it never waits. (A limit on what a
// container may use of them makes it wait, too.)
static int64_t rest_ns(int64_t waited_ns)
{
	return MIN(MAX(waited_ns - spell.waited_ns, 0), REST_MAX_NS / GIVE_WAY) * GIVE_WAY;
}

static void rest(const struct ckpt_sealer *sealer, int64_t now_ns)
{
	int64_t for_others_ns = now_ns + rest_ns(ckpt_sys.waited_ns()),
		for_saves_ns = now_ns + (now_ns - spell.began_ns) * (SAVE_SHARE - 1);

	while (!stops(sealer)) {
		int64_t until_ns = __atomic_load_n(&sealer->save_runs, __ATOMIC_RELAXED)
					   ? MAX(for_others_ns, for_saves_ns)
					   : for_others_ns;

		now_ns = ckpt_sys.mono_ns();
		if (now_ns >= until_ns)
			return;
		ckpt_sys.sleep_ns(MIN(until_ns - now_ns, NAP_NS));
	}
}

static bool go_on(void *arg, uint64_t bytes __attribute__((unused)))
{
	const struct ckpt_sealer *sealer = arg;
	int64_t now_ns = ckpt_sys.mono_ns();

	if (spell.began_ns && now_ns - spell.began_ns < SPELL_NS)
		return !stops(sealer);
	if (spell.began_ns)
		rest(sealer, now_ns);
	spell.waited_ns = ckpt_sys.waited_ns();
	spell.began_ns = ckpt_sys.mono_ns();
	return !stops(sealer);
}

// --- The thread ---------------------------------------------------------------------------------------------------------

// A file that cannot be read, or a step that is too large to say it all, will be no other until the step is.
static int64_t again_ns(int error)
{
	return error == -EBUSY                                         ? ckpt_sys.mono_ns() + AGAIN_NS
	       : error == -EIO || error == -EBADMSG || error == -E2BIG ? INT64_MAX
								       : ckpt_sys.mono_ns() + LATER_NS;
}

static void seal(struct ckpt_sealer *sealer, struct ckpt_step *step)
{
	const struct ckpt_seal_how how = {.go_on = go_on, .meanwhile = look_for_saves, .arg = sealer};
	int rc = ckpt_seal(step, &how);

	if (!rc || rc == -EINTR)
		return;
	LOCK_SCOPE(&step->lock);
	step->seal_failed = step->summary.version;
	step->seal_after_ns = again_ns(rc);
}

static void wait_until(struct ckpt_sealer *sealer, int64_t at_ns)
{
	LOCK_SCOPE(&sealer->lock);

	if (!stops(sealer) && !sealer->woken)
		ckpt_lock_wait_ns(&sealer->changed, &sealer->lock, at_ns - ckpt_sys.mono_ns());
	sealer->woken = false;
}

static void *sealer_thread(void *arg)
{
	struct ckpt_sealer *sealer = arg;

	while (!stops(sealer)) {
		struct turn t = choose(sealer->store);

		for (size_t i = 0; i < t.count; i++) {
			if (!stops(sealer))
				seal(sealer, t.steps[i].step);
			ckpt_step_unref(t.steps[i].step);
		}
		if (!t.count)
			wait_until(sealer, t.next_ns);
		free(t.steps);
	}
	return NULL;
}

int ckpt_sealer_new(struct ckpt_store *s, struct ckpt_sealer **ret_sealer)
{
	struct ckpt_sealer *sealer = calloc(1, sizeof(*sealer));

	if (!sealer)
		return -ENOMEM;
	sealer->store = s;
	ckpt_lock_init(&sealer->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&sealer->changed, NULL);
	if (pthread_create(&sealer->thread, NULL, sealer_thread, sealer)) {
		free(sealer);
		return -EAGAIN;
	}
	*ret_sealer = sealer;
	return 0;
}

void ckpt_sealer_wake(struct ckpt_store *s)
{
	struct ckpt_sealer *sealer = __atomic_load_n(&s->sealer, __ATOMIC_ACQUIRE);

	if (!sealer)
		return;
	LOCK_SCOPE(&sealer->lock);

	sealer->woken = true;
	pthread_cond_signal(&sealer->changed);
}

void ckpt_sealer_stop(struct ckpt_sealer *sealer)
{
	bool runs;

	if (!sealer)
		return;
	ckpt_lock_take(&sealer->lock);
	runs = !stops(sealer);
	__atomic_store_n(&sealer->stop, true, __ATOMIC_RELAXED);
	pthread_cond_signal(&sealer->changed);
	ckpt_lock_drop(&sealer->lock);
	if (runs)
		pthread_join(sealer->thread, NULL);
}

void ckpt_sealer_free(struct ckpt_sealer *sealer)
{
	if (!sealer)
		return;
	pthread_cond_destroy(&sealer->changed);
	ckpt_lock_done(&sealer->lock);
	free(sealer);
}

struct pending {
	uint64_t files, bytes;
};

static int add_pending_locked(void *arg, struct ckpt_step *step)
{
	struct pending *p = arg;
	LOCK_SCOPE(&step->lock);

	if (!step->summary.sealed && (step->seal_failed != step->summary.version || step->seal_after_ns != INT64_MAX)) {
		p->files += step->summary.files;
		p->bytes += step->summary.bytes;
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
