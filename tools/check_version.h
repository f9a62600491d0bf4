// Whether the files of an older version of a step can be read, wherever their bytes are by now.
//
// Threads: one. Blocks on the disk for as long as the files take to be read.
#pragma once

#include "core/record/manifest.h"
#include "core/step/step.h"

struct ckpt_check_version {
	bool read_data; // every byte is read, and compared where the file is sealed
	void (*bad)(void *arg, const char *path, const char *problem);
	void (*progress)(void *arg, uint64_t done); // bytes, or files
	void *arg;
	uint64_t files, bytes, unsealed; // so far
};

void ckpt_check_version(struct ckpt_step *step, struct ckpt_manifest *m, struct ckpt_check_version *check);
