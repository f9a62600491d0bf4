// What /proc says of the process behind a request. A request carries the id of a thread, 0 where it is from another pid
// namespace. Everything here is a snapshot of something that may be gone: then the answer is "do not know".
// Threads: any. Reads small files of /proc.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// The process that a thread belongs to; 0: not known.
pid_t client_process(pid_t tid);
// What the program of the thread is called, as in /proc/TID/comm; false: not known.
#define CLIENT_COMM_BYTES 64
bool client_comm(pid_t tid, char *ret_comm);
// For how long at least the process of the thread runs, ns; -1: not known.
int64_t client_age_ns(pid_t tid);
// True when the thread is exiting because a signal killed its process: what it closes, the kernel closed for it.
bool client_was_killed(pid_t tid);
// True when the process of the thread has a descriptor that writes the file of this number. Looks at all that it has, which
// takes some microseconds each; false where it cannot look.
bool client_can_write(pid_t tid, uint64_t number);
// True when the file of this number is the standard output or error of the thread's process.
bool client_has_as_output(pid_t tid, uint64_t number);
// True when the system call of the thread, which waits for our answer, makes an entry of this name or opens it with O_CREAT: the
// last part of its path is the name, and no other part. It may then expect that there is none. False where it cannot look: it
// needs the rights of a debugger over the thread.
bool client_makes(pid_t tid, const char *name);
// True when a SIGKILL waits for the thread, which then only waits for our answer.
bool client_is_dying(pid_t tid);
