// A program of the user's between two streams: it gets bytes on its stdin, and its stdout is kept in a file.
//
//	ckpt_filter_start(); ckpt_filter_put() as often as there are bytes; ckpt_filter_end()
//
// The program runs as the caller, with the caller's environment, directory and stderr, in a process group of its own. Its output may come before it
// has read all, and its input may stay unread. The group ends with the program, and also when the caller's thread dies, even of SIGKILL.
//
// Ownership: the caller's; spool_fd stays open. Threads: one. SIGPIPE is ignored between start and end.
// Blocking: until the program takes the bytes, for timeout_ns in all. Memory: one buffer.
// Errors: an exit status; each failure is said on stderr, once. The program is dead then. Its bytes are from outside: look() checks them.
#pragma once

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ckpt_filter {
	const char *const *argv; // NULL behind the last; the first is a path
	const char *word;        // the program, for messages
	int64_t timeout_ns;      // 0: without end
	int spool_fd;            // an empty file
	// A look at the `got` bytes that have arrived so far. *ret_max: the most that may come; UINT64_MAX: not known yet. The result: 0, or an exit
	// status that ends the program.
	int (*look)(void *arg, uint64_t got, uint64_t *ret_max);
	void *arg;
	uint64_t got; // bytes in the file
	// Of the filter:
	pid_t pid, group;         // the program; a process that watches the caller, and leads both
	int pidfd, in_fd, out_fd; // -1: closed
	int64_t until_ns;
	char *buffer;
	int status; // of the first failure
	struct sigaction before;
};

// The caller has set the members in front. Nothing has to be ended after a failure.
int ckpt_filter_start(struct ckpt_filter *f);
// The result is 0 also where the program has closed its input: later bytes are dropped.
int ckpt_filter_put(struct ckpt_filter *f, const void *bytes, size_t len);
// The end of the program is waited for: 0 if it has ended with 0. `stop`: an exit status with which it is killed at once, and which is returned.
int ckpt_filter_end(struct ckpt_filter *f, int stop);
