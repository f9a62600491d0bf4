// Raw files of what is in packs are removed, and no other: by the version that is current, and durable, while the lock of all acts is
// held.
#include "core/tier/cool.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/amending.h"
#include "core/step/store.h"

#include <fcntl.h>

#define BATCH 1024                       // files, under the lock for which clients wait
#define LARGE_BYTES (UINT64_C(16) << 20) // the disk takes its time to free such a file:
#define HELD 64                          // it is held so that this is done after the lock, of so many at once

struct sweep {
	const struct ckpt_sweep *of;
	struct ckpt_tier_done *done;
	uint8_t sha256[CKPT_SHA256_LEN]; // of the manifest by which it goes
	uint32_t at;                     // in it
	bool ended;
	int held[HELD];
	size_t held_count;
};

static void drop_raw(struct sweep *w, struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	int fd = w->of->step->store->sessions_fd, held;
	char path[CKPT_RAW_PATH_MAX];

	if (ckpt_step_raw_path(w->of->step, m, e->index, path, sizeof(path)))
		return;
	held = e->bytes >= LARGE_BYTES ? ckpt_sys.open(fd, path, O_PATH, 0) : -1;
	if (held >= 0)
		w->held[w->held_count++] = held;
	if (ckpt_sys.unlink(fd, path, 0) || ckpt_manifest_first_link(m, e->index) != e->index)
		return; // what is left goes with the session
	w->done->files++;
	w->done->bytes += e->bytes;
}

static void drop_batch(struct sweep *w, struct ckpt_manifest *m)
{
	uint32_t count = ckpt_manifest_count(m), left = BATCH;

	for (; w->at < count && left && w->held_count < HELD; w->at++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, w->at, &e);
		if (e.content != CKPT_CONTENT_CHUNKS || !w->of->goes(w->of->arg, m, e.index))
			continue;
		drop_raw(w, m, &e);
		left--;
	}
	w->ended = w->at == count;
	if (!w->ended)
		return;
	ckpt_warm_end(w->of->step);
	ckpt_raws_left(w->of->step, false);
}

// A step that reopened this one knows its files by the raw files, which stay as long as it is open.
static int may_sweep(const struct ckpt_sweep *of)
{
	int rc = ckpt_amending_settle_locked(of->step);
	enum ckpt_step_state state = ckpt_step_state(of->step);

	if (!rc && state != CKPT_STEP_COMMITTED && !(of->of_deleted && state == CKPT_STEP_DELETED))
		rc = -ESTALE;
	if (!rc && (ckpt_step_is_reopened(of->step) || (of->how->keeps_warm && ckpt_warm_left_ns(of->step))))
		rc = -EBUSY;
	return rc;
}

// Under acts_lock, so that the version is still the current one, and no warming is between.
static int sweep_some(struct sweep *w)
{
	LOCK_SCOPE(&w->of->step->store->acts_lock);
	struct ckpt_manifest *m;
	int rc = may_sweep(w->of);

	if (!rc)
		rc = ckpt_step_manifest(w->of->step, &m);
	if (rc)
		return rc;
	if (memcmp(w->sha256, ckpt_manifest_sha256(m), sizeof(w->sha256)))
		w->at = 0;
	memcpy(w->sha256, ckpt_manifest_sha256(m), sizeof(w->sha256));
	drop_batch(w, m);
	ckpt_manifest_unref(m);
	return 0;
}

int ckpt_cool_sweep(const struct ckpt_sweep *of, struct ckpt_tier_done *done)
{
	struct sweep w = {.of = of, .done = done};
	int rc = 0;

	while (!rc && !w.ended) {
		rc = of->how->go_on && !of->how->go_on(of->how->arg, 0) ? -EINTR : sweep_some(&w);
		while (w.held_count)
			ckpt_sys.close(w.held[--w.held_count]);
	}
	return rc;
}
