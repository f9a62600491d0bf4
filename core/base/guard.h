// Runs a function in a child process, so that what kills it (SIGBUS on a bad page, an abort in a library, an endless
// loop) does not kill us.
#pragma once

// Runs fn(arg) in a forked child and returns what it returned (0 or -errno); -EBADMSG when it died or took more than
// seconds; -ENOMEM without a child. fn sees a copy of this process with one thread, and without its descriptors but the
// standard ones: it must not write to anything shared but what it is for, and take no lock that another thread may hold.
// Blocks until the child has ended.
typedef int ckpt_guard_fn(void *arg);
int ckpt_guard_run(ckpt_guard_fn *fn, void *arg, unsigned int seconds);
