// Faults in the system calls behind ckpt_sys, by number: fail or die at call n, n = 1, 2, 3 ... until none fires.
//
//	struct ckpt_sysfault fault = {.at = n, .error = -ENOSPC};
//	ckpt_sysfault_begin(&fault);
//	... the body ...
//	ckpt_sysfault_end(&fault);
//	if (fault.count < n) done;
//
// Counted are the calls that a disk or a full machine can fail: open, pread, pwrite, ftruncate, fsync, fdatasync, syncfs,
// mkdir, symlink, link, rename, unlink, fsetxattr, lease, clone, random. Over a power-loss disk (disk.h): begin the disk
// first, end it last. A call that fails does nothing, but for a torn pwrite. Calls of any thread count.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ckpt_sysfault {
	uint64_t at;            // 0: never
	int error;              // -errno of the call
	bool sticky;            // every call from at on fails
	bool torn;              // a pwrite that fails has written its first half
	bool changes_only;      // opens that create nothing, reads and random are neither counted nor failed
	void (*die)(void *arg); // instead of failing, called before the call is made; should not return
	void *arg;
	uint64_t count; // calls so far, written atomically
};

// The errors that a loop over calls tries, as kinds: EIO; and, at each call another of them, ENOSPC, EDQUOT, EMFILE, ENOMEM
// and EINTR. With CKPT_TEST_FULL=1 there are five of the second kind, so that each call has each error.
int ckpt_sysfault_kinds(void);
int ckpt_sysfault_error(int kind, uint64_t n); // -errno

void ckpt_sysfault_begin(struct ckpt_sysfault *fault);
void ckpt_sysfault_end(struct ckpt_sysfault *fault);

void ckpt_sysfault_kill(void *arg); // a .die that kills the process
// Waits for a child that was to die so at call n; false: it came to its end before.
bool ckpt_sysfault_killed(pid_t child, uint64_t n);
