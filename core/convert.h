// A plain folder that becomes a step: its directory becomes a session, in one rename, and is committed as any staged step is.
//
// Until it is, the folder goes back when that fails, and at the next start when its daemon dies meanwhile.
// Threads: any. Blocks on the disk.
#pragma once

#include "core/step.h"

// Whether the folder dirfd/name can: -ENOTEMPTY: it holds steps. Walks what is below it.
int ckpt_convert_check(struct ckpt_store *s, int dirfd, const char *name);
// The folder dirfd/name of the plain tree, in the folder with this id, is a staged step of that name from now on, and for sure
// after ckpt_convert_sync(). -EEXIST there is a step of this name; -ENOTDIR, ... Nobody changes anything below it meanwhile.
int ckpt_convert_sync(struct ckpt_store *s, int dirfd);
int ckpt_convert(struct ckpt_store *s, int dirfd, const char *folder_id, const char *name, struct ckpt_step **ret_step);
// Its commit failed: it is a plain folder again, and the step GONE. -EEXIST: something else has the name by now, and the step
// stays staged; -EBUSY it is being committed.
int ckpt_convert_back(struct ckpt_step *step, int dirfd, const char *name);
// For the start: what was being turned into a step is a folder again, where it can be.
int ckpt_convert_settle(struct ckpt_store *s);
