// The raw files of what is in packs go, and no other: by the version that is current, and durable, while the lock of all acts is held.
#include "core/commit/amending.h"
#include "core/tier/cool.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/store/store.h"

#include <fcntl.h>

#define BATCH 1024                       // files, under the lock for which clients wait
#define LARGE_BYTES (UINT64_C(16) << 20) // the disk takes its time to free such a file:
#define HELD 64                          // it is held so that this is done after the lock, of so many at once

struct sweep {
	struct ckpt_step *step;
	uint8_t sha256[CKPT_SHA256_LEN]; // of the manifest by which it goes
	uint32_t at;                     // in it
	bool ended;
	int held[HELD];
	size_t held_count;
};

static void drop_raw(struct sweep *w, struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	int fd = w->step->store->sessions_fd, held;
	char path[CKPT_RAW_PATH_MAX];

	if (ckpt_step_raw_path(w->step, m, e->index, path, sizeof(path)))
		return;
	held = e->bytes >= LARGE_BYTES ? ckpt_sys.open(fd, path, O_PATH, 0) : -1;
	if (held >= 0)
		w->held[w->held_count++] = held;
	(void)ckpt_sys.unlink(fd, path, 0); // what is left goes with the session
}

static void drop_batch(struct sweep *w, struct ckpt_manifest *m)
{
	uint32_t count = ckpt_manifest_count(m), left = BATCH;

	for (; w->at < count && left && w->held_count < HELD; w->at++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, w->at, &e);
		if (e.content != CKPT_CONTENT_CHUNKS)
			continue;
		drop_raw(w, m, &e);
		left--;
	}
	w->ended = w->at == count;
	if (!w->ended)
		return;
	LOCK_SCOPE(&w->step->lock);
	ckpt_raws_of(w->step)->raws_gone = true;
}

// What warming brings back meanwhile is no part of the version that is current then. Under acts_lock, so that it is that one.
static void sweep_some(struct sweep *w)
{
	LOCK_SCOPE(&w->step->store->acts_lock);
	struct ckpt_manifest *m;

	w->ended = true;
	// A warming whose outcome is unknown may have made them.
	if (ckpt_amending_settle_locked(w->step) || ckpt_step_state(w->step) != CKPT_STEP_COMMITTED ||
	    ckpt_step_manifest(w->step, &m))
		return;
	if (memcmp(w->sha256, ckpt_manifest_sha256(m), sizeof(w->sha256)))
		w->at = 0;
	memcpy(w->sha256, ckpt_manifest_sha256(m), sizeof(w->sha256));
	drop_batch(w, m);
	ckpt_manifest_unref(m);
}

static bool are_raws_gone(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return ckpt_raws_of(step)->raws_gone;
}

void ckpt_cool_sweep(struct ckpt_step *step, bool (*go_on)(void *arg, uint64_t bytes), void *arg)
{
	struct sweep w = {.step = step};

	if (are_raws_gone(step))
		return;
	while (!w.ended && (!go_on || go_on(arg, 0))) {
		sweep_some(&w);
		while (w.held_count)
			ckpt_sys.close(w.held[--w.held_count]);
	}
}

void ckpt_cool_raws_left(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	ckpt_raws_of(step)->raws_gone = false;
}

struct ckpt_part ckpt_raws_part = {.bytes = sizeof(struct ckpt_raws)};
