// The changes of a reopened step (reopen.h): how its files differ from those of the version that it began as.
//
// Calling sequence: ckpt_changes_look(), while nobody changes the step; the results are plain data.
// Ownership: the caller's struct. Threads: any. Blocks on the disk: stats each file of the version, and reads the first bytes of
// those that are other files now.
// Errors: -EIO, -EMFILE, -ENOMEM ...: it cannot be said. A file that is gone from both is no error.
#pragma once

#include "core/step/step.h"

struct ckpt_changes {
	bool rewritten; // array data of the version was written over, cut short or replaced
	bool all_anew;  // and so was each file of it that holds array data
	bool cut_off;   // a file that was written since ends before its own format says so
	char path[512]; // of that file, or else of one with array data that is as before, for people; may be cut
};

int ckpt_changes_look(struct ckpt_step *step, struct ckpt_changes *ret_changes);
