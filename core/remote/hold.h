// A HOLD for a step whose push takes long: what it has put is not taken for garbage meanwhile (REMOTE.md G2).
//
// Without one nothing is lost either: what was condemned is put again under other names (push.c). But a push that takes longer than the grace time of
// a collection would begin again and again.
// Threads: one, that pushes. Blocks on the network: _append.
#pragma once

#include "core/log/log.h"
#include "core/record/manifest.h"

#define CKPT_HOLD_NS (INT64_C(6) * 3600 * 1000000000) // a quarter of the usual grace time

// The step that was tried last. Zeroed: none was.
struct ckpt_hold {
	char step[CKPT_UUID_LEN + 1];
	int64_t due_ns;
};

// The time at which a HOLD for this step is due, monotonic: some hours after its push has begun, or since the last one.
int64_t ckpt_hold_due(struct ckpt_hold *h, const char *step);
// Appends one that names all packs of the manifest, and that itself where it is an object. 0: the log goes on behind it. Else as of ckpt_log_append(). -ENOMEM.
int ckpt_hold_append(struct ckpt_hold *h, struct ckpt_log *log, const char *node, const struct ckpt_manifest *m,
		     bool is_object);
