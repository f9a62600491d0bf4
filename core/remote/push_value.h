// Shared values (core/state/values.h) that were set on this node, into the remote's log.
#pragma once

#include "core/log/log.h"
#include "core/step/store.h"

// Behind all that was read of the remote's log. 1: one was appended, or is to be made anew: read the log; 0: none waits; errors of ckpt_log_append().
int ckpt_push_value(struct ckpt_store *s, struct ckpt_log *log, const char *node);
