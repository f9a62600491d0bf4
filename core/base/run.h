// A program of the user's, run to its end: without a shell, within a time, and with all that it has started.
//
// It gets our environment and what is added, nothing on stdin, none of our descriptors, the default for each signal, and a process
// group of its own. What it writes is kept, the end of it. Its umask and working directory are those of the calling thread.
// Safe beside any number of threads: nothing of ours runs in the child.
// Threads: any. Blocks until the program ends or is ended; a process that it leaves in the background is not waited for.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CKPT_RUN_OUTPUT_MAX 1024 // bytes, NUL included

struct ckpt_run {
	const char *const *argv; // NULL behind the last; the first is the program's path
	const char *const *env;  // "NAME=value", which win over ours; NULL behind the last, or NULL
	int64_t timeout_ns;
	// Asked every 100 ms; false ends it. NULL: on and on.
	bool (*go_on)(void *arg);
	void *arg;
};

struct ckpt_ran {
	int status; // what it has exited with, or 128 and the signal that ended it
	char output[CKPT_RUN_OUTPUT_MAX];
};

// 0: it has ended by itself. -ETIMEDOUT, and -EINTR where go_on said no: its group was told to end (SIGTERM), and killed after half a
// second. -ECHILD: how it has ended is not known, as this process ignores SIGCHLD, or waits for any child. Else it was not started:
// -ENOENT, -EACCES, -ENOEXEC, -E2BIG, -ENOMEM, -EAGAIN, -EMFILE.
int ckpt_run(const struct ckpt_run *run, struct ckpt_ran *ret_ran);
// Of the output the last line that says something, "" if none does. Points into ran, and cuts what is behind it.
const char *ckpt_run_last_line(struct ckpt_ran *ran);
