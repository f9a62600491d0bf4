// Whether a step is to be saved, asked of the store in a directory: of its mount, or where it is at rest, here (should_save.h).
//
// Threads: any. Blocks on either.
#pragma once

#include "core/policy/should_save.h"

// The answer of the store in this directory: asked of its mount, or done here, after others who do it, for which it waits:
// -EBUSY after CKPT_DECIDED_PATIENCE_NS. What cannot be written saves nothing. Also errors of ckpt_hold(), by which it
// is open here.
int ckpt_should_save_ask(const char *directory, struct ckpt_decide *question, struct ckpt_decided_step *ret_answer,
			 char **ret_why);

// A preemption of the store in this directory, as ckpt_should_save_ask(): the mount is told, or else the store.
int ckpt_should_save_preempt(const char *directory, int64_t at_step, char **ret_why);
