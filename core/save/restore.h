// The files of an earlier version of a committed step, as its next version.
// Threads: any. Blocks on the disk.
#pragma once

#include "core/step/step.h"

// All else, its metadata and its place in the order of commits, stays. -ENOENT: it has no such version; -ESTALE: the step is not committed (any
// more); -ENODATA some of its bytes are gone; -EALREADY these are its files; -EBUSY it is reopened; -EIO the outcome is unknown, asking again gives the final answer; -ENOSPC ... Failures are in the
// error log.
int ckpt_restore_files(struct ckpt_step *step, uint32_t version);
// The same of a version that can be opened (older.h): -ESTALE: it has expired; -EBUSY: the step is being removed.
int ckpt_restore(struct ckpt_step *step, uint32_t version);
// What to do about a failure; NULL: nothing better is known than what goes for the error anywhere.
const char *ckpt_restore_hint(int error);
