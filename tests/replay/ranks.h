// The ranks' side of a run: what the words of trace.h need to know. One rank is one process, so this is the state of it.
#pragma once

#include "tests/replay/shared.h"

#include "core/base/util.h"

#define RANKS_MAX 4

struct rank {
	int number, count; // number -1: what runs before()
	unsigned life;     // of one that is killed and does its work again
	struct shared *shared;
	const struct expect *expect; // NULL: what is seen is written to states
	const char *states;
	int arrive[2], leave[2]; // pipes: the barrier
};

extern struct rank me;

// Ends the process: cut, where the run's own fault explains the error, else failed.
_Noreturn void rank_ends(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Passes the result of a call on, if it is none of failure.
long must(long result, const char *call, const char *path);
// A call is about to be made that changes something.
void about_to(void);
