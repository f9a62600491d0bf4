// A new step of a store, which a verb fills past any mount and commits: asked of the process that has the store mounted, which needs
// no byte of it, or here.
//
// Calling sequence: all that is wanted is set; ckpt_stop_begin() (stop.h); ckpt_new_step_make(); ckpt_stop_end(); the caller frees reply.
// Threads: one. Blocks on the disk, and on that process. Failures are said on stderr, once.
#pragma once

#include "core/base/uuid.h"

#include <jansson.h>
#include <stdbool.h>

struct ckpt_new_step {
	const char *store, *name;    // a path from the root of the mount
	bool force;                  // over a step of the name
	bool makes_folders;          // those on the way to the name
	const char *metadata;        // canonical, or NULL
	const char *profile, *event; // of its record; NULL: "generic", "verb"
	bool pinned;
	bool stays_when_stopped; // a session that a signal cut off is kept; else it is dropped, as after any failure
	// An unfinished session that is filled further, or NULL. left: nobody has it staged.
	const char *resumes;
	bool left;
	// Fills the session's directory. 0; -EINTR, or an exit status, said.
	int (*fill)(void *arg, int dirfd);
	void *arg;
	// Results: of what was committed.
	char session[CKPT_UUID_LEN + 1];
	json_t *reply; // of the mount; NULL: at rest
};

// 0: it is committed. -EINTR; an exit status.
int ckpt_new_step_make(struct ckpt_new_step *n);
// The same between ckpt_stop_begin() and ckpt_stop_end(); then it waits for the step as the store does (arrival.h), and frees reply.
int ckpt_new_step_run(struct ckpt_new_step *n);
