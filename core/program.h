// Runs a program of the user's and waits for it, for so long and no longer. No shell is asked: the command is a path and its
// arguments.
//
// It has a process group of its own, which is killed when its time is over; what it writes goes to our stderr, and it has
// nothing to read. Its environment is ours and what is given. It has no file of ours open, no signal blocked or ignored.
// Threads: any. Blocks until it has ended, and for timeout_ns at most.
#pragma once

#include <stdint.h>

// 0: it has ended, with *ret_status as waitpid(2) has it. -ETIMEDOUT: it was killed; else it could not be run: -ENOENT,
// -EACCES, -ENOMEM ... command ends with NULL, as does extra: NAME=VALUE each, which win over what the environment has.
int ckpt_program_run(char *const *command, const char *const *extra, int64_t timeout_ns, int *ret_status);
