// Names within a committed step: a file, symlink or directory gets another name, or a file a second one. Each is a version of the
// step (amend.h), durable when the call returns. No byte moves: raw files stay where they are, and the manifest says so.
//
// Paths are those in the step. Threads: any. Blocks on the disk.
#pragma once

#include "core/step/step.h"

struct ckpt_names {
	const char *from, *to;
	bool replaces; // a rename: what has the name may be replaced
};

// What was marked as removed before (remove.h) is removed by a version of its own first. 0; -ENOENT, -EEXIST, -ENOTDIR, -EISDIR,
// -ENOTEMPTY, -EINVAL as rename(2); -EMEDIUMTYPE: one of the two files that meet under the name holds array data, which is no edit;
// -ESTALE the step is not committed any more; -EBUSY it is reopened, or being removed; -EIO the outcome is unknown, asking again gives
// the final answer; ... What nobody can foresee is in the error log.
int ckpt_amend_move(struct ckpt_step *step, const struct ckpt_names *names);
// A hard link, as link(2) makes it. Errors as above; -EPERM: it is a directory.
int ckpt_amend_link_to(struct ckpt_step *step, const struct ckpt_names *names);

// Whether a file of the step is array data (array/data.h): 1, 0, -errno.
int ckpt_amend_is_array(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index);
