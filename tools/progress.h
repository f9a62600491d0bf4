// A progress bar on stderr, for work that takes more than a second, when stderr is a terminal and --quiet is not given.
//
// Calling sequence: ckpt_progress_start(), _update() as often as convenient, _stop(). One at a time. Whatever else
// writes to the terminal calls ckpt_progress_hide() first; the next update draws it again. Threads: one, but for _add().
#pragma once

#include <stdint.h>

// total 0: unknown. bytes: done and total are sizes, else counts.
void ckpt_progress_start(const char *label, uint64_t total, int bytes);
void ckpt_progress_update(uint64_t done);
void ckpt_progress_add(uint64_t done); // by any thread, while no other function is called
void ckpt_progress_total(uint64_t total);
void ckpt_progress_stop(void);
void ckpt_progress_hide(void);
// Clears the bar's line from a signal handler.
void ckpt_progress_hide_in_signal(void);
