#include "core/policy/temporary.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/save/version.h"
#include "core/step/store.h"

#define RETRY_NS (INT64_C(600) * 1000000000)

// --- Permanent ----------------------------------------------------------------------------------------------------------

// The metadata still say what the marker said.
int ckpt_promote(struct ckpt_step *step)
{
	return ckpt_version_flag(step, CKPT_FLAG_TEMPORARY, false, "made permanent");
}

// --- Over ---------------------------------------------------------------------------------------------------------------

// When it came: a late change of a step makes its commit the latest, but the step no newer.
struct moment {
	uint64_t sequence;
	int64_t first_committed_ns;
};

struct candidate {
	struct ckpt_step *step; // in the list's reference
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	struct moment came;
	int64_t committed_ns;
	bool temporary;
};

static bool is_after(const struct moment *x, const struct moment *y)
{
	return x->sequence > y->sequence && x->first_committed_ns > y->first_committed_ns;
}

static struct moment moment_locked(const struct ckpt_step *step)
{
	return (struct moment){step->born.sequence, step->born.first_committed_ns};
}

static void look_at(struct candidate *c, struct ckpt_step *step)
{
	struct ckpt_step_name name;

	ckpt_step_name(step, &name);
	memcpy(c->folder_id, name.folder_id, sizeof(c->folder_id));
	c->step = step;
	LOCK_SCOPE(&step->lock);
	c->came = moment_locked(step);
	c->committed_ns = step->version->is.committed_ns;
	c->temporary = step->version->is.temporary && !step->version->is.pinned;
}

static int by_folder_newest_first(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	int order = strcmp(x->folder_id, y->folder_id);

	return order ? order : (x->came.sequence < y->came.sequence) - (x->came.sequence > y->came.sequence);
}

static int is_newer(void *arg, struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);
	struct moment came = moment_locked(step);

	return is_after(&came, arg);
}

static bool is_over(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->lock);
	struct moment came;

	ckpt_lock_take(&step->lock);
	came = moment_locked(step);
	ckpt_lock_drop(&step->lock);
	return ckpt_step_each_locked(step->store, step->folder_id, 1u << CKPT_STEP_COMMITTED, is_newer, &came);
}

// Who deletes, reopens or undeletes meanwhile waits, so that what was looked at stays so.
static int delete_one(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->acts_lock);

	return is_over(step) ? ckpt_delete_behind_locked(step, true) : -ESTALE;
}

static int end_one(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	int rc = delete_one(step);

	if (!rc && s->calls.gone)
		s->calls.gone(s->calls.gone_arg, step);
	return rc == -ESTALE ? 0 : rc;
}

// The one by which it is over, the oldest of such; NULL: it is not.
static const struct candidate *successor(const struct candidate *at, size_t i)
{
	for (size_t j = i; j-- && !strcmp(at[j].folder_id, at[i].folder_id);)
		if (is_after(&at[j].came, &at[i].came))
			return &at[j];
	return NULL;
}

static int64_t end_each(const struct candidate *at, size_t count, int64_t over_ns, const bool *stop)
{
	int64_t now_ns = ckpt_sys.now_ns(), again_ns = INT64_MAX;

	for (size_t i = 0; i < count && !(stop && __atomic_load_n(stop, __ATOMIC_RELAXED)); i++) {
		const struct candidate *next = at[i].temporary ? successor(at, i) : NULL;
		int64_t is_over_ns;

		if (!next)
			continue;
		is_over_ns = ckpt_time_between(next->committed_ns, now_ns); // below 0: the clock was set
		if (is_over_ns >= 0 && is_over_ns < over_ns)
			again_ns = MIN(again_ns, over_ns - is_over_ns);
		else if (end_one(at[i].step))
			again_ns = MIN(again_ns, RETRY_NS);
	}
	return again_ns;
}

int64_t ckpt_temporary_expire(struct ckpt_store *s, int64_t over_ns, const bool *stop)
{
	CLEANUP_FREE struct candidate *at = NULL;
	int64_t again_ns = RETRY_NS;
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		return RETRY_NS;
	at = ckpt_calloc(count + 1, sizeof(*at));
	if (at) {
		for (size_t i = 0; i < count; i++)
			look_at(&at[i], steps[i]);
		qsort(at, count, sizeof(*at), by_folder_newest_first);
		again_ns = end_each(at, count, over_ns, stop);
	}
	ckpt_step_list_free(steps, count);
	return again_ns;
}
