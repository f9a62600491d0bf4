#include "core/step/behind.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/store.h"

#define AGAIN_NS INT64_C(1000000000) // until a step is tried again that is being changed
#define SPELL_NS INT64_C(4000000)    // a reader reads at least so long before it looks around
#define SAVE_SHARE 8                 // of a reader's time: what it takes while a save runs
#define GIVE_WAY 15                  // times as long as it waited for a processor it leaves them to others,
#define REST_MAX_NS INT64_C(1000000000)
#define NAP_NS INT64_C(20000000) // so long at once, to hear of its end

struct ckpt_behind {
	struct ckpt_store *store;
	ckpt_behind_turn *turn;
	void *arg;
	pthread_t thread;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	bool woken; // guarded by lock
	bool hurries;
	bool has_thread;
	bool stop; // set under lock; atomic
};

// --- How fast -----------------------------------------------------------------------------------------------------------

bool ckpt_behind_stops(const struct ckpt_behind *behind)
{
	return __atomic_load_n(&behind->stop, __ATOMIC_RELAXED);
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

static bool save_runs(const struct ckpt_behind *b)
{
	return ckpt_jobs_saving(b->store->jobs) > 0;
}

static void rest(const struct ckpt_behind *b, int64_t now_ns)
{
	int64_t for_others_ns = now_ns + (b->hurries ? 0 : rest_ns(ckpt_sys.waited_ns())),
		for_saves_ns = now_ns + MIN((now_ns - spell.began_ns) * (SAVE_SHARE - 1), REST_MAX_NS);

	while (!ckpt_behind_stops(b)) {
		int64_t until_ns = save_runs(b) ? MAX(for_others_ns, for_saves_ns) : for_others_ns;

		now_ns = ckpt_sys.mono_ns();
		if (now_ns >= until_ns)
			return;
		ckpt_sys.sleep_ns(MIN(until_ns - now_ns, NAP_NS));
	}
}

bool ckpt_behind_go_on(void *behind, uint64_t bytes __attribute__((unused)))
{
	const struct ckpt_behind *b = behind;
	int64_t now_ns = ckpt_sys.mono_ns();

	if (spell.began_ns && now_ns - spell.began_ns < SPELL_NS)
		return !ckpt_behind_stops(b);
	if (spell.began_ns)
		rest(b, now_ns);
	spell.waited_ns = ckpt_sys.waited_ns();
	spell.began_ns = ckpt_sys.mono_ns();
	return !ckpt_behind_stops(b);
}

// A file that cannot be read, or a step that is too large to say it all, will be no other until the step is.
int64_t ckpt_behind_again_ns(int error)
{
	return error == -EBUSY || error == -ESTALE || error == -ENODATA ? ckpt_sys.mono_ns() + AGAIN_NS
	       : error == -EIO || error == -EBADMSG || error == -E2BIG  ? INT64_MAX
									: ckpt_sys.mono_ns() + CKPT_BEHIND_LATER_NS;
}

// --- The thread ---------------------------------------------------------------------------------------------------------

static void wait_until(struct ckpt_behind *b, int64_t at_ns)
{
	LOCK_SCOPE(&b->lock);

	if (!ckpt_behind_stops(b) && !b->woken)
		ckpt_lock_wait_ns(&b->changed, &b->lock, at_ns - ckpt_sys.mono_ns());
	b->woken = false;
}

int64_t ckpt_behind_turn_once(struct ckpt_behind *b)
{
	spell.began_ns = 0; // it has waited since the last one
	return b->turn(b->arg, b);
}

static void *behind_thread(void *arg)
{
	struct ckpt_behind *b = arg;

	while (!ckpt_behind_stops(b)) {
		int64_t next_ns = ckpt_behind_turn_once(b);

		if (next_ns)
			wait_until(b, next_ns);
	}
	return NULL;
}

void ckpt_behind_hurry(struct ckpt_behind *b)
{
	b->hurries = true;
}

int ckpt_behind_new_without_thread(struct ckpt_store *s, ckpt_behind_turn *turn, void *arg,
				   struct ckpt_behind **ret_behind)
{
	struct ckpt_behind *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->store = s;
	b->turn = turn;
	b->arg = arg;
	ckpt_lock_init(&b->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&b->changed, NULL);
	*ret_behind = b;
	return 0;
}

int ckpt_behind_new(struct ckpt_store *s, ckpt_behind_turn *turn, void *arg, struct ckpt_behind **ret_behind)
{
	struct ckpt_behind *b;
	int rc = ckpt_behind_new_without_thread(s, turn, arg, &b);

	if (rc)
		return rc;
	b->has_thread = true; // before it runs
	if (pthread_create(&b->thread, NULL, behind_thread, b)) {
		ckpt_behind_free(b);
		return -EAGAIN;
	}
	*ret_behind = b;
	return 0;
}

void ckpt_behind_wake(struct ckpt_behind *b)
{
	LOCK_SCOPE(&b->lock);

	b->woken = true;
	pthread_cond_signal(&b->changed);
}

void ckpt_behind_stop(struct ckpt_behind *b)
{
	bool runs;

	if (!b)
		return;
	ckpt_lock_take(&b->lock);
	runs = b->has_thread && !ckpt_behind_stops(b);
	__atomic_store_n(&b->stop, true, __ATOMIC_RELAXED);
	pthread_cond_signal(&b->changed);
	ckpt_lock_drop(&b->lock);
	if (runs)
		pthread_join(b->thread, NULL);
}

void ckpt_behind_free(struct ckpt_behind *b)
{
	if (!b)
		return;
	pthread_cond_destroy(&b->changed);
	ckpt_lock_done(&b->lock);
	free(b);
}
