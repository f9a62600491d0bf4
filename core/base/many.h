// One call for each of many items, several at the same time: where each takes long, as behind a network, all of them take so many times less.
//
// Threads: the caller's is one of those that call, so that no other is needed: where none can be started, it makes all calls.
// Ownership: arg is borrowed until ckpt_many_run() has returned. Blocks as long as the calls do.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define CKPT_MANY_AT_ONCE_MAX 32u

struct ckpt_many {
	size_t count;
	unsigned at_once; // threads, with the caller's; at most CKPT_MANY_AT_ONCE_MAX
	// On any of the threads, once for each item, in the order of the items; several at the same time. Its result is its own affair.
	void (*call)(void *arg, size_t i);
	// On the caller's thread, between two calls, and after the last one. False: no call begins any more. NULL: on and on.
	bool (*go_on)(void *arg);
	void *arg;
};

// False: go_on said no before every item had its call. All calls that began have ended.
bool ckpt_many_run(const struct ckpt_many *many);
