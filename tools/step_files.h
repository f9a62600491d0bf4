// The files of a step, copied into a directory: with owners (as root), modes, times, extended attributes, hard links, symlinks and
// empty folders, by reflink where the disk can. Files in packs are read ahead, wherever the packs are.
//
// An earlier copy of the same version that was cut off goes on: `resumes`. A file gets its time of change last. So a file of the right size, mode
// and time is whole, and is not copied again; all others are. This does not hold across a power cut: then the caller starts from nothing.
// Threads: one. Blocks on the disk and the store.
#pragma once

#include "core/step/step.h"

struct ckpt_step_files {
	struct ckpt_step *step;   // borrowed, as is
	struct ckpt_manifest *m;  // of one of its versions
	bool resumes;             // the directory has what such a copy left; else it is empty
	const volatile int *stop; // not 0: end with -EINTR
	void (*progress)(uint64_t bytes);
	// Results. A file with hard links counts once.
	uint64_t files, bytes;
	uint64_t copied_bytes; // of those that were not there
	char *blamed;          // the path that made it fail, malloc'ed, or NULL
};

// 0; -EINTR; -EIO a file is damaged or gone; -errno. The directory gets the attributes of the step's own.
int ckpt_step_files_copy(struct ckpt_step_files *f, int dirfd);
