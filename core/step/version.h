// A version of a step, as the log says it: immutable and counted. Whoever has a reference reads it without a lock, whatever becomes of the step.
//
// Ownership: a step holds its current one (step.h). Threads: any. Nothing blocks, but for memory.
#pragma once

#include "core/record/record.h"

struct ckpt_version {
	int refs; // atomic
	struct ckpt_summary is;
};

// That of a step which was never committed: all zero, and never freed.
extern struct ckpt_version ckpt_version_none;

// With one reference. NULL: no memory. With a spare one (malloc'ed, or NULL), which is used where there is no memory, and made again once there
// is, it never fails, and waits if need be: what the log says has happened, and the step has to show it.
struct ckpt_version *ckpt_version_new(const struct ckpt_summary *is, struct ckpt_version **spare);
struct ckpt_version *ckpt_version_ref(struct ckpt_version *v);
void ckpt_version_unref(struct ckpt_version *v); // NULL is fine

static inline void ckpt_version_cleanup(struct ckpt_version **v)
{
	ckpt_version_unref(*v);
}
#define CLEANUP_VERSION __attribute__((cleanup(ckpt_version_cleanup)))
