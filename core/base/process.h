// The watch of processes: whether one that asked us for something lives, is stopped, or has ended, and how.
//
// A process is watched by a descriptor of it (pidfd), which another process of the same number cannot inherit. Since Linux 6.15
// the kernel keeps how the process ended for whoever had the descriptor before. On older kernels only the status of a zombie, which
// its parent has not waited for, is there to be read; else nobody can know.
//
// Calling sequence: ckpt_process_of() while a request of the process waits for our answer; ckpt_process_ask() at any time later;
// ckpt_process_unref().
// Ownership: counted. One process has one handle, however many threads and files it comes with; pointers can be compared. A handle
// has one descriptor, until the end of the process was seen.
// Threads: any. Locks: takes a leaf, and holds none while it reads. Blocks: no; _ask reads a few files of /proc.
// Errors: none. NULL is a process that is not known, and fine wherever a handle is taken.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct ckpt_process;

enum ckpt_process_state {
	CKPT_PROCESS_UNKNOWN, // from another pid namespace; or it has ended, and nobody can know how
	CKPT_PROCESS_LIVES,
	CKPT_PROCESS_STOPPED, // by a signal, a debugger or the freezer of its cgroup; or a zombie whose status we must not read
	CKPT_PROCESS_ENDED,  // with exit status 0
	CKPT_PROCESS_FAILED, // with another exit status
	CKPT_PROCESS_KILLED, // by a signal
};

struct ckpt_process_status {
	enum ckpt_process_state state;
	int code; // FAILED: its exit status; KILLED: the signal; else 0
};

// The process of the thread tid, whose request waits for our answer. NULL: tid is 0, there is no memory or no descriptor for it.
// A thread that was seen within the last 200 ms costs no system call.
struct ckpt_process *ckpt_process_of(pid_t tid);
struct ckpt_process *ckpt_process_ref(struct ckpt_process *p);
void ckpt_process_unref(struct ckpt_process *p);

struct ckpt_process_status ckpt_process_ask(struct ckpt_process *p);
pid_t ckpt_process_pid(const struct ckpt_process *p); // 0: not known
// The name of its program when it was seen first, as in /proc/PID/comm; "": not known.
#define CKPT_PROGRAM_MAX 64 // bytes, NUL included
const char *ckpt_process_program(const struct ckpt_process *p);

// For people: "process 123 (python) is stopped", "a process of another pid namespace"; ret_text has CKPT_PROCESS_TEXT_MAX bytes.
#define CKPT_PROCESS_TEXT_MAX 160
void ckpt_process_text(const struct ckpt_process *p, struct ckpt_process_status status, char *ret_text);
