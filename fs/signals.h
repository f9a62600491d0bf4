// Signals that the mount is sent: SIGINT, SIGTERM and SIGHUP end it as an unmount does, SIGUSR1 says that a preemption is near
// (decider.h).
//
// Calling sequence: signals_block() before any other thread exists, as they inherit it; signals_start(); signals_stop().
// Ownership: the caller's, and fs is borrowed until signals_stop().
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct ckpt_fs;

struct signals {
	pthread_t thread;
	struct ckpt_fs *fs;
	bool stop; // atomic
};

void signals_block(void);
int signals_start(struct signals *s, struct ckpt_fs *fs); // 0, -EAGAIN
void signals_stop(struct signals *s);
