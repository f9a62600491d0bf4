// A survey: one look at all that is in a staged step, to say whether it could be complete. Two surveys with one stamp have seen
// the same files with the same sizes and times.
//
// Calling sequence: fill in, ckpt_survey_run(), read the results, ckpt_survey_done(). Ownership: the caller's memory.
// Threads: one per survey. Blocks on the disk: opens each file and reads a few blocks of it.
#pragma once

#include "core/step/step.h"

#include <stddef.h>

struct ckpt_survey {
	struct ckpt_step *step;
	int64_t attempt_ns; // files that were not written since belong to an earlier attempt; 0: there was none
	bool leases;        // take and drop a read lease on each file, which tells whether anybody can still write it

	// Results.
	uint64_t stamp;
	char **files; // their paths, sorted
	size_t file_count, file_cap;
	bool has_arrays;        // some file is array data
	bool has_known;         // some file is one that only checkpoints have
	bool has_beginning;     // some file is cut off, and by its name may be array data once it is whole
	bool has_earlier_array; // a whole one of the earlier attempt is
	bool has_later_file;    // some file was written in this attempt
	bool has_old_times;     // some file was given a time before the step began, as programs that copy do
	char *cut;              // a file that is not whole by its own format, or NULL
	char *busy;             // with leases: one that somebody can still write, or NULL
};

// 0; -ENOMEM; -ENOENT the step is gone; -errno of the disk. Files that go meanwhile are left out.
int ckpt_survey_run(struct ckpt_survey *s);
void ckpt_survey_done(struct ckpt_survey *s);
// The index of a file among the results, or -1.
ssize_t ckpt_survey_find(const struct ckpt_survey *s, const char *path);
