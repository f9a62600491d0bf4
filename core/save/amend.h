// Amends: what is added to a committed step, or taken from it, after its commit. Each is a new version of the step with the
// same session; what it adds stands in the session's directory, where no version of before names it. No version changes.
//
// Paths are those in the step. Threads: any. Blocks on the disk where said.
#pragma once

#include "core/step/step.h"

// An edit of the step, by another node, has its place (core/step/successor.h): its pending files are those of that. The acts below find that
// by themselves. Under store->acts_lock. Blocks on the disk.
void ckpt_amend_hand_on(struct ckpt_step *step, struct ckpt_step *to);
// A pending file is part of the step, or what stands in the session's directory at path: a file, symlink or empty directory, durable
// when it returns 0. -EEXIST there is one; -ESTALE the step is not committed any more; -EIO a write was lost or the outcome is unknown,
// asking again gives the final answer; ... Failures are in the error log. Blocks on the disk.
int ckpt_amend_add(struct ckpt_step *step, const char *path);
int ckpt_amend_add_raw(struct ckpt_step *step, const char *path,
		       const char *raw); // the same of what stands at raw there
// The same where a file or symlink with this name may be, which the new one takes the place of. Nobody asks what either holds.
int ckpt_amend_add_over(struct ckpt_step *step, const char *path, const char *raw);
// The same for a file that has other bytes from now on: they are in the session's directory under raw, and the version of before
// keeps the old. It keeps its inode number.
int ckpt_amend_replace(struct ckpt_step *step, const char *path, const char *raw);
// The entry at path, with all below it, is not part of the step any more; the version of before still has it. Errors as above,
// and -ENOENT; -EPERM the step is pinned; -EINVAL for the step itself. Blocks on the disk.
int ckpt_amend_remove(struct ckpt_step *step, const char *path);

// Several files of a step at once, in one version.
struct ckpt_amend_change {
	const char *path; // a file, or a directory where it is removed
	const char *
		raw; // it has these bytes, in the session's directory, from now on, and keeps its attributes; NULL: it is removed
	// As the caller has seen it: another file there is -ESTALE.
	uint64_t ino, bytes;
	int64_t mtime_s;
	uint32_t mtime_ns;
};
// Errors as of _remove, and -ENODATA: the step would have no file.
int ckpt_amend_change_all(struct ckpt_step *step, const struct ckpt_amend_change *changes, size_t count);
