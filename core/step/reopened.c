#include "core/step/reopened.h"

#include "core/base/util.h"
#include "core/step/store.h"

bool ckpt_reopen_is_orphan(struct ckpt_step *staged)
{
	return staged->base && __atomic_load_n(&staged->reopens, __ATOMIC_ACQUIRE) &&
	       ckpt_step_state(staged->base) != CKPT_STEP_COMMITTED;
}

int ckpt_reopen_manifest(struct ckpt_step *staged, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_manifest *began;

	ckpt_lock_take(&staged->lock);
	began = ckpt_reopen_of(staged)->began;
	if (began)
		*ret_manifest = ckpt_manifest_ref(began);
	ckpt_lock_drop(&staged->lock);
	return began ? 0 : ckpt_step_manifest(staged->base, ret_manifest);
}

void ckpt_reopen_set_began(struct ckpt_step *staged, struct ckpt_manifest *m)
{
	struct ckpt_manifest *before;

	if (m)
		ckpt_manifest_ref(m);
	ckpt_lock_take(&staged->lock);
	before = ckpt_reopen_of(staged)->began;
	ckpt_reopen_of(staged)->began = m;
	ckpt_lock_drop(&staged->lock);
	ckpt_manifest_unref(before);
}

static void reopen_done(void *step)
{
	struct ckpt_reopen *r = ckpt_reopen_of(step);

	for (size_t i = 0; i < r->had_count; i++)
		ckpt_step_unref(r->had[i]);
	free(r->had);
	ckpt_manifest_unref(r->began);
}

struct ckpt_part ckpt_reopen_part = {.bytes = sizeof(struct ckpt_reopen), .done = reopen_done};
