#include "core/step/saved.h"

int64_t ckpt_saved_ns_locked(const struct ckpt_step *step)
{
	return ckpt_saved_of(step)->saved.version && ckpt_saved_of(step)->saved.version == step->version->is.version
		       ? ckpt_saved_of(step)->saved.ns
		       : CKPT_TIMESTAMP_NONE;
}

struct ckpt_part ckpt_saved_part = {.bytes = sizeof(struct ckpt_saved)};
