// A client that waits for the end of what its call has begun, which goes on without it.
//
// Threads: any. Reads small files of /proc.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct waiter {
	const bool *ending; // atomic: the mount lets its clients go (fs.h)
	pid_t tid;          // 0: nobody waits
};
// Asked meanwhile: whether it has died, or the mount ends. arg: a struct waiter.
bool waiter_is_gone(void *arg);
