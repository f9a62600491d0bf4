#include "backends/backoff.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#define FIRST_NS INT64_C(50000000)
#define LONGEST_NS INT64_C(5000000000)
#define LOOK_NS INT64_C(50000000) // at until->cancelled
#define COST 5                    // of a request that is made again, in those that are not
#define SAVED_MAX (100 * COST)
#define SAVED_FIRST (10 * COST)

struct ckpt_backoff {
	unsigned saved; // atomic
};

int ckpt_backoff_new(struct ckpt_backoff **ret_backoff)
{
	struct ckpt_backoff *b = malloc(sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->saved = SAVED_FIRST;
	*ret_backoff = b;
	return 0;
}

void ckpt_backoff_free(struct ckpt_backoff *b)
{
	free(b);
}

struct ckpt_try ckpt_backoff_begin(struct ckpt_backoff *b, const struct ckpt_until *until, int64_t ns)
{
	unsigned saved = __atomic_load_n(&b->saved, __ATOMIC_RELAXED);

	while (saved < SAVED_MAX &&
	       !__atomic_compare_exchange_n(&b->saved, &saved, saved + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return (struct ckpt_try){.until = until, .deadline_ns = ckpt_sys.mono_ns() + ns};
}

static bool spend(struct ckpt_backoff *b)
{
	unsigned saved = __atomic_load_n(&b->saved, __ATOMIC_RELAXED);

	while (saved >= COST &&
	       !__atomic_compare_exchange_n(&b->saved, &saved, saved - COST, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return saved >= COST;
}

static bool is_cancelled(const struct ckpt_until *until)
{
	return until && until->cancelled && __atomic_load_n(until->cancelled, __ATOMIC_RELAXED);
}

int ckpt_backoff_wait(struct ckpt_backoff *b, struct ckpt_try *t)
{
	int64_t most = MIN(FIRST_NS << MIN(t->count, 16u), LONGEST_NS), now_ns = ckpt_sys.mono_ns(), left_ns, step_ns;
	uint64_t random;

	if (ckpt_sys.random(&random, sizeof(random)) < 0)
		random = (uint64_t)now_ns;
	left_ns = (int64_t)(random % (uint64_t)most);
	if (is_cancelled(t->until))
		return -ECANCELED;
	if (left_ns >= t->deadline_ns - now_ns ||
	    (t->until && t->until->deadline_ns && left_ns >= t->until->deadline_ns - now_ns) || !spend(b))
		return -EBUSY;
	t->count++;
	for (; left_ns > 0; left_ns -= step_ns) {
		step_ns = t->until && t->until->cancelled ? MIN(left_ns, LOOK_NS) : left_ns;
		ckpt_sys.sleep_ns(step_ns);
		if (is_cancelled(t->until))
			return -ECANCELED;
	}
	return 0;
}
