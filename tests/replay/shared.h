// What the processes of one replay share: the test that drives it, the ranks that make the calls, the observer. It lies in
// memory that they inherit by fork; all of it is atomic, or written by one process before the others start.
#pragma once

#include "tests/replay/expect.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum replay_exit {
	EXIT_DONE,
	EXIT_FAILED, // failure says why
	EXIT_CUT,    // by the fault that the replay is about
};

struct shared {
	// Before the ranks start.
	pid_t daemon;         // 0: they are on a plain filesystem, and what they see there is what is to be expected
	unsigned attempt;     // each writes other bytes
	unsigned die_at;      // the daemon is killed before this call; 0: before none
	bool die_at_midpoint; // or there
	bool full;            // the disk will be
	bool forking;         // descriptors are inherited all the time

	unsigned calls;            // so far
	uint64_t bytes;            // written so far
	bool forked;               // the first child was
	unsigned living;           // children that still live
	bool dead;                 // the daemon was killed; set before it is
	bool let_go;               // living children end
	bool quit;                 // the observer ends
	unsigned sights;           // of complete things by the observer
	unsigned turn[EXPECT_MAX]; // odd while it may be out of the listing
	unsigned done[EXPECT_MAX]; // how many of its states were reached

	bool failed;
	char failure[4096];
};

struct shared *shared_new(void); // ends the test on failure
// The first failure of a process is kept.
void shared_fail(struct shared *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
