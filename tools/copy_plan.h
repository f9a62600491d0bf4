// The plan of `ckptfs copy`: for each step of the source, what the destination has of it.
//
// An unfinished copy is a session of the destination that says of which version of which step it is one: its directory has the extended
// attribute CKPT_COPY_XATTR. Whoever copies holds a lock (flock(2)) on that directory, so that no other copy takes the session up meanwhile.
// Calling sequence: ckpt_copy_plan_make(), _done(). Ownership: the plan holds references to the steps of the source, whose store stays open.
// Threads: one. Blocks on the disk, and where files without a seal are compared. Failures are said on stderr, once.
#pragma once

#include "tools/selection.h"

#define CKPT_COPY_XATTR CKPT_OWN_XATTRS "copy"

enum ckpt_copy_what {
	CKPT_COPY_MISSING,
	CKPT_COPY_SAME,   // it has the step, with the same files
	CKPT_COPY_OTHER,  // it has a step of the name, with others
	CKPT_COPY_UNKNOWN // that cannot be said: told
};

struct ckpt_copy_row {
	struct ckpt_step *step;
	struct ckpt_version *version; // that is copied
	char *name;                   // from the root of either store
	enum ckpt_copy_what what;
	char *there;   // SAME: the session of it at the destination
	bool pins;     // SAME: it is pinned here and not there
	char *mark;    // the value of CKPT_COPY_XATTR of a copy of it
	char *resumes; // an unfinished copy of it, begun since the machine started, or NULL: its session
	bool left;     // and that is left over
	char *stale;   // one that was begun before that, or NULL
};

struct ckpt_copy_plan {
	struct ckpt_copy_row *rows; // in the order of their commits
	size_t count;
};

// dst NULL: it has nothing. A manifest that cannot be read makes a row UNKNOWN. 0 or an exit status.
int ckpt_copy_plan_make(const struct ckpt_listing *src, const struct ckpt_selection *chosen, const char *dst,
			struct ckpt_copy_plan *ret_plan);
void ckpt_copy_plan_done(struct ckpt_copy_plan *plan);
