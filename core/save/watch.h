// A thread of a step's own, which watches it until something ends it, and for which the end of the store waits.
//
// Ownership: the thread holds a reference to the step. Threads: any. Does not block.
#pragma once

#include "core/step/step.h"

// False: no thread could be started. fn ends soon once step->store->threads.closing is set.
bool ckpt_watch_start(struct ckpt_step *step, void (*fn)(struct ckpt_step *step));
