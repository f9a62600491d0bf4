// The marks of what is being removed from a committed step (remove.h), and whose they are. All of it is guarded by step->lock.
// Threads: any. Nothing blocks.
#pragma once

#include "core/base/process.h"
#include "core/record/manifest.h"
#include "core/step/step.h"

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
	int64_t over_ns;             // since then, monotonic
	bool whole;                  // the step is being deleted: nothing is left of it
	uint32_t marks;
	struct ckpt_remover by[REMOVERS_MAX];
	uint8_t marked[]; // by entry: 0, or 1 + the index of who has marked it
};

#define CKPT_TOP_DIRS_KEPT 8

struct ckpt_removing {
	struct ckpt_removal *removal; // marks, or NULL; set under step->lock, read without
	bool watched;                 // and a thread sees to their end
	struct {
		uint32_t version; // 0: none
		uint8_t is[CKPT_SHA256_LEN];
		int64_t ns;
	} removed; // the version before the last removal, the manifest that this one made, and when, monotonic
	struct ckpt_top_dir *top_dirs; // open handles of the step's own directory (remove.h)
	struct ckpt_top_dir_closed {
		pid_t tid;
		int64_t closed_ns;             // monotonic; 0: none
	} top_dirs_closed[CKPT_TOP_DIRS_KEPT]; // the last of them that were closed
	unsigned top_dirs_count;
};
CKPT_PART(struct ckpt_step, struct ckpt_removing, ckpt_removing)

// The same marks for the current version's manifest m. False: no memory, and nothing has changed.
bool ckpt_removal_rebase_locked(struct ckpt_step *step, struct ckpt_manifest *m);
void ckpt_removal_over_locked(struct ckpt_removal *r);
// There are marks that are to end. NULL: there are none.
static inline struct ckpt_removal *ckpt_removal_active_locked(struct ckpt_step *step)
{
	struct ckpt_removal *r = ckpt_removing_of(step)->removal;

	return r && !r->over ? r : NULL;
}
bool ckpt_removal_is_of(const struct ckpt_removal *r, const struct ckpt_manifest *m);
// This process has the step's own directory open, or with since_ns not INT64_MAX: had it open at some time since then. Takes step->lock.
bool ckpt_removal_has_open(struct ckpt_step *step, const struct ckpt_process *process, int64_t since_ns);

// The step's own directory is open: kept by whoever serves the handle, linked into its step until _closed.
struct ckpt_top_dir {
	struct ckpt_top_dir *next, *prev;
	struct ckpt_step *step; // NULL: not linked
	pid_t tid;              // of the opener, 0 unknown
	int64_t opened_ns;      // monotonic
};
void ckpt_removal_dir_opened(struct ckpt_step *step, struct ckpt_top_dir *d, pid_t tid);
void ckpt_removal_dir_closed(struct ckpt_top_dir *d); // not linked is fine
// The thread adds or renames something in the step: it is not removing it.
void ckpt_removal_dir_forget(struct ckpt_step *step, pid_t tid);

// Entry index of m, which may be of a version before, is removed.
bool ckpt_removal_has(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index);
// The same of what stands at path in the current version.
bool ckpt_removal_has_path(struct ckpt_step *step, const char *path);
// Whether anything of it is marked; and whether it is being removed as a whole, and so in no listing.
bool ckpt_removal_any(struct ckpt_step *step);
bool ckpt_removal_hides(struct ckpt_step *step);
// The marked entries are there again, or not (any more) in what has the step's place.
void ckpt_removal_forget(struct ckpt_step *step);
void ckpt_removal_forget_locked(struct ckpt_step *step); // under step->lock
// The step's next version has the manifest `is`: marks go on, by their paths. same: it has the same files, whatever their attributes.
void ckpt_removal_carry(struct ckpt_step *step, const struct ckpt_manifest *was, struct ckpt_manifest *is, bool same);

// For remove.c: the maker of a mark.
struct ckpt_removal_maker {
	struct ckpt_process *process;
	bool recursive;
};
int ckpt_removal_mark_locked(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e,
			     const struct ckpt_removal_maker *maker);
// The step is being deleted: from here on nothing of it is seen. -ENOTEMPTY something is left in it.
int ckpt_removal_hide_all(struct ckpt_step *step);
bool ckpt_removal_is_known(struct ckpt_step *step, const struct ckpt_removal_maker *maker); // it has marks already
