// The commit: a staged step becomes a version that is listed, durable and immutable, in one atomic act.
//
// Order (PROTOCOL.md 2.2): wait for writers; scan the tree, with a read lease on every file; write out what is dirty;
// write the manifest when it is large; put copies of what leftovers hold in place; put the record (the commit point);
// answer; index behind.
// Any failure leaves the step STAGED with its data untouched, says why in the error log, and can be tried again.
// Threads: any; attempts on one step join the one that runs. Blocks for as long as the disk takes.
#pragma once

#include "core/step/step.h"

// Guarded by step->lock.
struct ckpt_attempts {
	uint64_t attempts, attempts_done; // commits begun and ended
	uint32_t attempt_version;         // the version that the last one was or is to be
	int commit_result;                // of the last one
	struct ckpt_step *left_out;       // of the last one, where its outcome is unknown; of the attempt that runs
};
CKPT_PART(struct ckpt_step, struct ckpt_attempts, ckpt_attempts)

// Commits since the store was opened; guarded by store->lock.
struct ckpt_commits {
	struct {
		bool any;
		char name[CKPT_NAME_MAX + 1];
		int64_t at_ns, at_mono_ns;
		double seconds;
	} last_commit;
	uint64_t commits, commits_failed;
	double commit_seconds;
};
CKPT_PART(struct ckpt_store, struct ckpt_commits, ckpt_commits)

struct ckpt_commit {
	const char *folder_id, *name; // what it is called from then on; NULL: as it is
	const char *event;            // "marker", "rename", "verb"
	const char *profile;          // "generic", "orbax", ...
	const char *metadata;         // validated JSON text or NULL
	int64_t writers_ns;           // how long to wait for open writers
	bool keeps_metadata; // of the version that it reopened, which nobody says anew; it stays temporary, too
	bool keeps_place;    // in the order of commits: it is an edit of the version that it reopened
	bool leaves_late;    // but not for those of late files (stage.h): each is added at its close (amend.h)
	const int64_t *
		unless_touched_ns; // not NULL: nothing is done, or said, where the step was touched since (step.h), or has a writer
	bool (*abandoned)(void *arg); // asked every 100 ms: true ends the wait with -EINTR, the commit goes on
	void *abandoned_arg;
};

// 0: committed and durable. -EEXIST the name has a step; -EBUSY a writer is at work, or a commit under another name;
// -EROFS it was committed under another name; -EIO a write was lost, or the
// outcome is unknown (the log says which); -EINTR abandoned; -ENOSPC, -EDQUOT, -ENOMEM ...; -ESTALE the step is gone; -EAGAIN it
// was touched.
int ckpt_commit(struct ckpt_step *step, const struct ckpt_commit *how);
