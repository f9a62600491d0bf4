// Findings about the arrays of a committed step become part of it, as a new version with the same files, for all nodes: findings in its
// metadata, and the catalog in its manifest.
//
// Threads: any. Takes store->acts_lock. Blocks on the disk.
#pragma once

#include "core/step/step.h"

struct ckpt_examined_of {
	const struct ckpt_manifest *m; // of these files
	const char *findings;          // an object as JSON (core/view/examine.h)
	const void *catalog;           // encoded (core/array/catalog_encode.h); NULL: none, or m has it
	size_t catalog_len;
};
// Clients see no change: the version has the time and the event of the one before. -ESTALE: it has another manifest by now; -EBUSY: it is being removed
// or changed; -EFBIG: its metadata have no room for the findings; -EIO, ... Nothing is said in the error log.
int ckpt_version_examined(struct ckpt_step *step, const struct ckpt_examined_of *found);
