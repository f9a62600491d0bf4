// Words to the kernel about names that have changed without its asking.
//
// The kernel waits for the lock of the folder, which who renames, makes or removes something in it holds until that is answered. With
// durability=remote or work_limit such an answer may wait for the thread that reads the remote's log, which tells the kernel of names: it must not wait
// for the answer. So it waits for a moment only, in which the kernel mostly has done it; the rest happens later.
// Threads: any. Blocks: without that setting until the kernel has done it.
#pragma once

#include "core/step/store.h"

#include <fuse_lowlevel.h>

// It is to look the name in the folder with this number up again.
void tell_name(const struct ckpt_store *s, struct fuse_session *se, fuse_ino_t dir, const char *name);
// After the last one, once the connection has ended: waits until nothing is left to be told.
void tell_drain(void);
