// Calls that take the place of those behind ckpt_sys, while threads of a store run.
//
//	real_fsync = ckpt_hooks.fsync;
//	ckpt_hook_set(fsync, failing_fsync);
//	... the body ...
//	ckpt_hook_set(fsync, real_fsync);
//
// A program that names ckpt_hooks has entries in ckpt_sys, from before main() on, that call what ckpt_hooks holds. ckpt_sys itself
// is never changed: a thread of a store reads it at any time. A thread may still be within the former call when a hook is set.
// Threads: one at a time sets hooks and copies the table.
#pragma once

#include "core/base/sys.h"

extern struct ckpt_sys ckpt_hooks; // at first the calls of the machine

#define ckpt_hook_set(name, function) __atomic_store_n(&ckpt_hooks.name, function, __ATOMIC_SEQ_CST)

// Puts a copy of the table back, entry by entry.
void ckpt_hooks_restore(const struct ckpt_sys *copy);
