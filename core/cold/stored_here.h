// The space that a version takes on this node: its files that lie raw here, and the chunks of all others.
//
// Ownership: manifests are borrowed for the call. Threads: any. All block on the disk, which says what is raw. Errors: -ENOMEM.
#pragma once

#include "core/record/name.h"
#include "core/step/step.h"

// The bytes of its raw files, of hard links one.
uint64_t ckpt_stored_raw(const struct ckpt_step *step, const struct ckpt_manifest *m);
// The same, and the chunks of its other files, with what those need.
int ckpt_stored_version(const struct ckpt_step *step, const struct ckpt_manifest *m, uint64_t *ret_raw,
			uint64_t *ret_packed);
#define CKPT_STORED_XATTR CKPT_OWN_XATTRS "stored_bytes" // by which clients see it: in decimal
// Of one file.
int ckpt_stored_file(const struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
		     uint64_t *ret_bytes);
