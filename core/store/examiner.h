// The job that looks into sealed steps: what is found in their arrays (core/view/examine.h) becomes part of their metadata, and their catalog, if
// the seal made none, part of their manifest, as a version of its own (core/save/examined.h). That version has the same files, so that it is not looked at again.
//
// It looks at steps in the order of their commits, those that have no findings yet. A step is looked at by the node that made its files, while all of their
// bytes are here: nothing is read from a remote. Trouble is a line in the error log.
// It gives way to saves, and to all else that the machine does. No commit waits for it, and a failure changes nothing.
// It holds nothing that a crash would lose: a step without findings is looked at again. One without arrays gets none; it is looked at once in the life of a
// mount.
//
// Threads: any. Its turn ends within 64 Ki elements, or the headers of a step.
#pragma once

#include "core/base/part.h"
#include "core/record/manifest.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_job;
struct ckpt_step;
struct ckpt_store;

struct ckpt_examiner {
	struct ckpt_job *job; // of a mount that seals and has findings, atomic; else NULL
	// Since the mount, atomic.
	uint64_t looked;       // steps
	uint64_t with_trouble; // of these
};
CKPT_PART(struct ckpt_store, struct ckpt_examiner, ckpt_examiner)

// Guarded by step->lock.
struct ckpt_examining {
	uint32_t version;  // that needs no look (any more); 0: none
	uint32_t files;    // the version that made those files, where these were looked at; 0: none
	int64_t after_ns;  // when to try again, monotonic
	uint32_t after_of; // the version that could not be looked at
};
CKPT_PART(struct ckpt_step, struct ckpt_examining, ckpt_examining)

int ckpt_examiner_start(struct ckpt_store *s); // 0, -ENOMEM, -EAGAIN

// True: all bytes of a version of a step are on this node. Blocks on the disk.
bool ckpt_examiner_is_here(struct ckpt_step *step, const struct ckpt_manifest *m);
