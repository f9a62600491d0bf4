// The end of a mount, which takes five seconds at most. What hangs then is left behind and said: it is what a crash
// would leave, and the next mount finds each step either committed or kept under .ckptfs/staged.
//
// Calling sequence: end_begin() when the mount shall end or has ended; end_disconnect() when no more requests are
// served; end_closing() before the store is closed; end_done(). Without end_done() in time the process ends by itself.
// Ownership: fs is borrowed until end_done(). Threads: any; there is one mount in a process.
#pragma once

#include "fs/fs.h"

// From now on there are five seconds. Calls after the first change nothing.
void end_begin(struct ckpt_fs *fs);
bool end_has_begun(void);
// Cuts the connection to the kernel, if it is still there: whoever waits for an answer gets an error.
void end_disconnect(struct ckpt_fs *fs);
// Commits staged steps that are whole (ckpt_store_complete()), and waits for the commits that run.
void end_closing(struct ckpt_fs *fs);
void end_done(void);

// How long the end waits for what clients wait for, before it lets them go.
#define END_PATIENCE_NS INT64_C(4000000000)
