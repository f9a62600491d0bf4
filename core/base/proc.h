// The small files of /proc/PID: how they are read, and the two forms that they have. A thread has the same files as a process.
// Everything here is a snapshot of something that may be gone: then there is no answer.
//
// /proc/TID/stat must not be read before a FLUSH of a process in execve(2) is answered: execve closes descriptors while it
// holds a lock that this file waits for. /proc/TID/status and statm take no such lock.
// Threads: any. No disk is read.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CKPT_PROC_STATUS_MAX 4096 // bytes that hold all of /proc/TID/status that is looked at, NUL included

// The first bytes of /proc/TID/FILE as a string, at most cap with the NUL.
bool ckpt_proc_read(pid_t tid, const char *file, char *ret_text, size_t cap);
// The value of a line "NAME:\tVALUE" of such a text; name has its colon. NULL: it has no such line. Not terminated.
const char *ckpt_proc_field(const char *text, const char *name);
// The process that the thread belongs to; 0: not known.
pid_t ckpt_proc_process(pid_t tid);
// /proc/PID/comm of that process, without the newline at its end: any bytes. A thread may be called otherwise.
bool ckpt_proc_comm(pid_t tid, char *ret_comm, size_t cap);

// /proc/TID/stat, by the numbers of proc(5): fields[3] is the character of the state, the first three others are 0.
#define CKPT_PROC_FIELDS 53
bool ckpt_proc_stat(pid_t tid, unsigned long long ret_fields[CKPT_PROC_FIELDS]);
