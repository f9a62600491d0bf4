// Manifests of committed steps in memory, the newest use first.
//
// Invariant: they are at most CACHE_BYTES, but for those that somebody holds; the oldest use goes first. A step's manifest
// pointer is guarded by store->lock, as the list is.
#include "core/step/step.h"

#include "core/step/store.h"

#include <string.h>

#define CACHE_BYTES (32u << 20)

static void unlink_locked(struct ckpt_manifest_cache *cache, struct ckpt_step *step)
{
	if (step->lru_prev)
		step->lru_prev->lru_next = step->lru_next;
	else if (cache->newest == step)
		cache->newest = step->lru_next;
	else
		return;
	if (step->lru_next)
		step->lru_next->lru_prev = step->lru_prev;
	else
		cache->oldest = step->lru_prev;
	step->lru_next = step->lru_prev = NULL;
	cache->bytes -= ckpt_manifest_bytes(step->manifest);
}

void ckpt_step_forget_manifest_locked(struct ckpt_step *step)
{
	unlink_locked(ckpt_step_manifests_locked(step->store), step);
}

static void push_locked(struct ckpt_manifest_cache *cache, struct ckpt_step *step)
{
	step->lru_next = cache->newest;
	if (cache->newest)
		cache->newest->lru_prev = step;
	cache->newest = step;
	if (!cache->oldest)
		cache->oldest = step;
	cache->bytes += ckpt_manifest_bytes(step->manifest);
}

void ckpt_step_keep_manifest(struct ckpt_step *step, struct ckpt_manifest *m)
{
	struct ckpt_manifest_cache *cache = ckpt_step_manifests_locked(step->store);

	LOCK_SCOPE(&step->store->lock);
	unlink_locked(cache, step);
	ckpt_manifest_unref(step->manifest);
	step->manifest = ckpt_manifest_ref(m);
	push_locked(cache, step);
	while (cache->bytes > CACHE_BYTES && cache->oldest != step) {
		struct ckpt_step *oldest = cache->oldest;

		unlink_locked(cache, oldest);
		ckpt_manifest_unref(oldest->manifest);
		oldest->manifest = NULL;
	}
}

// A new version may have another one than what was kept, or read, a moment ago.
static bool is_current_locked(struct ckpt_step *step, const struct ckpt_manifest *m)
{
	LOCK_SCOPE(&step->lock);

	return !memcmp(ckpt_manifest_sha256(m), step->version->is.manifest_sha256, CKPT_SHA256_LEN);
}

static struct ckpt_manifest *cached_manifest(struct ckpt_step *step)
{
	struct ckpt_manifest_cache *cache = ckpt_step_manifests_locked(step->store);

	LOCK_SCOPE(&step->store->lock);
	if (!step->manifest || !is_current_locked(step, step->manifest))
		return NULL;
	if (cache->newest != step) {
		unlink_locked(cache, step);
		push_locked(cache, step);
	}
	return ckpt_manifest_ref(step->manifest);
}

int ckpt_step_manifest(struct ckpt_step *step, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_manifest *m = cached_manifest(step);
	int rc;

	if (m) {
		*ret_manifest = m;
		return 0;
	}
	rc = ckpt_step_read_current(step, &m);
	if (rc)
		return rc;
	ckpt_step_keep_manifest(step, m); // a stale one is not believed when it is asked for
	*ret_manifest = m;
	return 0;
}
