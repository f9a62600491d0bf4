// The time at which a step was saved, by its own word (timestamp.h looks it up).
#pragma once

#include "core/step/step.h"

#define CKPT_TIMESTAMP_NONE INT64_MIN         // it says nothing: there is no such file, or nothing of the name in it
#define CKPT_TIMESTAMP_OLDEST (INT64_MIN + 1) // it cannot be read: before all others

// Guarded by step->lock.
struct ckpt_saved {
	struct {
		uint32_t version; // 0: nobody has looked yet
		int64_t ns;
	} saved; // when that version was saved, by its own word
};
CKPT_PART(struct ckpt_step, struct ckpt_saved, ckpt_saved)

// Of the current version, as it was found; under step->lock.
int64_t ckpt_saved_ns_locked(const struct ckpt_step *step);
