// For remove.c and remove_end.c: the marks of a step, and whose they are. All of it is guarded by step->lock.
#pragma once

#include "core/base/process.h"
#include "core/record/manifest.h"

#define REMOVERS_MAX 16 // processes that remove from one step at once; those beyond are one
#define MINUTE_NS INT64_C(60000000000)

struct ckpt_remover {
	struct ckpt_process *process; // a reference; NULL: not known
	bool used;
	bool recursive; // it had the step's own directory open: it is taken for the beginning of rm -r
	uint32_t marks;
	int64_t first_ns, last_ns; // of the marks, monotonic
	int64_t stopped_ns;        // it is stopped since; 0: it is not
};

struct ckpt_removal {
	struct ckpt_manifest *m;     // whose entries are marked; a reference
	struct ckpt_removal *before; // those of the version before, for whoever still reads it; NULL
	bool over;                   // no mark of it is to end any more: they are a version
	bool whole;                  // the step is being deleted: nothing is left of it
	uint32_t marks;
	struct ckpt_remover by[REMOVERS_MAX];
	uint8_t marked[]; // by entry: 0, or 1 + the index of who has marked it
};

// The same marks for the current version's manifest m. False: no memory, and nothing has changed.
bool ckpt_removal_rebase_locked(struct ckpt_step *step, struct ckpt_manifest *m);
// There are marks that are to end. NULL: there are none.
static inline struct ckpt_removal *ckpt_removal_active_locked(struct ckpt_step *step)
{
	return step->removal && !step->removal->over ? step->removal : NULL;
}
bool ckpt_removal_is_of(const struct ckpt_removal *r, const struct ckpt_manifest *m);
// This process has the step's own directory open, or with since_ns not INT64_MAX: had it open at some time since then. Takes step->lock.
bool ckpt_removal_has_open(struct ckpt_step *step, const struct ckpt_process *process, int64_t since_ns);
void ckpt_removal_watch(struct ckpt_step *step); // until its marks have ended; by a thread of its own
