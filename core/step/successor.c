#include "core/step/successor.h"

#include "core/base/util.h"
#include "core/step/reopened.h"
#include "core/step/staging.h"
#include "core/step/store.h"

// --- Finding ------------------------------------------------------------------------------------------------------------

bool ckpt_successor_is(const struct ckpt_step *a, const struct ckpt_step *b)
{
	return a->born.dir_ino == b->born.dir_ino && a->born.sequence == b->born.sequence;
}

static bool is_listed_edit(struct ckpt_step *step, const struct ckpt_step *of)
{
	return step != of && ckpt_step_state(step) == CKPT_STEP_COMMITTED && ckpt_successor_is(step, of);
}

static bool has_same_name(const struct ckpt_step *a, const struct ckpt_step *b)
{
	return !strcmp(a->name, b->name) && !strcmp(a->folder_id, b->folder_id);
}

// One that was had back from the trash is the same directory, too: the name tells them apart.
static struct ckpt_step *find_in(struct ckpt_step *const *steps, size_t count, const struct ckpt_step *step)
{
	struct ckpt_step *found = NULL;

	for (size_t i = 0; i < count; i++)
		if (is_listed_edit(steps[i], step) && (!found || has_same_name(steps[i], step)))
			found = steps[i];
	return found;
}

struct ckpt_step *ckpt_successor_find(struct ckpt_step *step)
{
	struct ckpt_step **steps, *found;
	size_t count;

	if (ckpt_step_list_stored(step->store, &steps, &count))
		return NULL;
	ckpt_lock_take(&step->store->lock); // for the names
	found = find_in(steps, count, step);
	if (found)
		ckpt_step_ref(found);
	ckpt_lock_drop(&step->store->lock);
	ckpt_step_list_free(steps, count);
	return found;
}

// --- Following ----------------------------------------------------------------------------------------------------------

static bool may_change_place_locked(struct ckpt_step *staged)
{
	LOCK_SCOPE(&staged->lock);

	return staged->state == CKPT_STEP_STAGED && !ckpt_staging_of(staged)->outcome_unknown;
}

static void take_name_locked(struct ckpt_step *staged, const struct ckpt_step *base)
{
	memcpy(staged->folder_id, base->folder_id, sizeof(staged->folder_id));
	memcpy(staged->name, base->name, sizeof(staged->name));
	memcpy(staged->key, base->key, sizeof(staged->key));
}

// A reader of the staged one may be reading its base: that stays as long as it does.
static void take_place_locked(struct ckpt_step *staged, struct ckpt_step *to)
{
	struct ckpt_reopen *r = ckpt_reopen_of(staged);
	struct ckpt_step *base = staged->base;

	ckpt_step_unref(__atomic_exchange_n(&base->reopened, NULL, __ATOMIC_ACQ_REL)); // not the last: the caller's
	if (!r->from)
		__atomic_store_n(&r->from, base, __ATOMIC_RELEASE);
	r->had[r->had_count++] = base; // the reference that it had
	__atomic_store_n(&staged->base, ckpt_step_ref(to), __ATOMIC_RELEASE);
	__atomic_store_n(&to->reopened, ckpt_step_ref(staged), __ATOMIC_RELEASE);
	take_name_locked(staged, to);
}

static int follow_one(struct ckpt_step *base, struct ckpt_step *staged, struct ckpt_step *to)
{
	struct ckpt_reopen *r = ckpt_reopen_of(staged);
	int rc = ckpt_grow((void **)&r->had, &r->had_cap, r->had_count + 1, sizeof(struct ckpt_step *));
	LOCK_SCOPE(&base->store->lock);

	if (rc || base->reopened != staged || !may_change_place_locked(staged))
		return rc ? rc : base->reopened == staged;
	if (to && !ckpt_step_is_reopened(to))
		take_place_locked(staged, to);
	else if (ckpt_step_state(base) == CKPT_STEP_COMMITTED)
		take_name_locked(staged, base);
	return 0;
}

static bool is_elsewhere(struct ckpt_step *base, const struct ckpt_step *staged)
{
	LOCK_SCOPE(&base->store->lock);

	return !has_same_name(base, staged);
}

static int follow(struct ckpt_step *base, struct ckpt_step *staged)
{
	struct ckpt_step *to = NULL;
	int rc = 0;

	if (ckpt_reopen_of(staged)->fresh)
		return 0;
	if (ckpt_step_state(base) == CKPT_STEP_DELETED)
		to = ckpt_successor_find(base);
	if (to || is_elsewhere(base, staged))
		rc = follow_one(base, staged, to);
	ckpt_step_unref(to);
	return rc;
}

int ckpt_successor_follow(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list_stored(s, &steps, &count), any = 0;

	if (rc)
		return rc;
	for (size_t i = 0; i < count && rc >= 0; i++) {
		struct ckpt_step *staged = ckpt_step_now(ckpt_step_ref(steps[i]));

		if (staged != steps[i])
			rc = follow(steps[i], staged);
		any |= rc > 0;
		ckpt_step_unref(staged);
	}
	ckpt_step_list_free(steps, count);
	return rc < 0 ? rc : any;
}
