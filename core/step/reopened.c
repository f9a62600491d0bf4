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

int ckpt_reopen_conflicts(struct ckpt_step *staged, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_manifest *m = NULL;
	int rc = staged->base ? ckpt_reopen_manifest(staged, &m) : 0;

	if (!rc && m && !ckpt_manifest_has_conflicts(m)) {
		ckpt_manifest_unref(m);
		m = NULL;
	}
	if (!rc)
		*ret_manifest = m;
	return rc;
}

bool ckpt_reopen_is_conflict(struct ckpt_step *staged, const char *path)
{
	struct ckpt_manifest *m = NULL;
	struct ckpt_entry e = {0};
	uint32_t index;

	if (ckpt_reopen_conflicts(staged, &m) || !m)
		return false;
	if (!ckpt_manifest_lookup(m, path, &index))
		ckpt_manifest_entry(m, index, &e);
	ckpt_manifest_unref(m);
	return e.conflict;
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
