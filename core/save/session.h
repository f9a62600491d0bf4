// The directory of a step's raw files. A step that another node has saved has none here, until a file of it is to lie here, too.
//
// Threads: any. Blocks on the disk.
#pragma once

#define CKPT_PULLED_XATTR "user.ckptfs.pulled" // of such a directory: not all files have to be in it

#include "core/step/step.h"

// sessions/UUID, opened; made first, with the directories of the step's version, where the step came from a remote and has none. -errno.
int ckpt_session_open(struct ckpt_step *step);
