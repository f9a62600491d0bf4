// SIGINT, SIGTERM and SIGHUP as a wish: a verb that has to undo something first ends by itself.
//
// Calling sequence: ckpt_stop_begin(), work that looks at ckpt_stopped, ckpt_stop_end(). Threads: one. Nothing blocks.
#pragma once

#include <signal.h>

extern volatile int ckpt_stopped; // by this signal since _begin; 0: not

void ckpt_stop_signals(sigset_t *set); // these signals
void ckpt_stop_begin(void);
// Signals do what they did before. The bar is gone. The exit status: that of the signal where the work has failed; too late is too late.
int ckpt_stop_end(int status);
