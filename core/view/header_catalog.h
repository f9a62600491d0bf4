// The catalog of a version, from the headers of its files, encoded for its manifest.
//
// Formats are read in a thread of their own (step_arrays.h), for which the caller waits.
//
// Ownership: results are the caller's. Threads: any. Blocks on the disk or the store.
#pragma once

#include "core/step/step.h"

struct ckpt_header_catalog {
	bool (*go_on)(
		void *arg,
		uint64_t bytes); // now and then, with 0 bytes, from the other thread; false: -EINTR. NULL: on and on
	void *arg;
	bool behind; // that thread gives way to all other work of the machine
};

// Malloc'ed (core/array/catalog_encode.h). NULL: the manifest has it, it would be too large, or there are no arrays.
// 0; -EINTR; -ENOMEM; what reading files says.
int ckpt_header_catalog_make(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_header_catalog *how,
			     void **ret_bytes, size_t *ret_len);
