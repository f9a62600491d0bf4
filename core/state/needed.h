// The objects of a node in which there is something that its state names: the record of a version, or the content of a plain file.
//
// Ownership: the caller's, zeros at first; ckpt_needed_done(). Threads: plain data. Nothing blocks.
#pragma once

#include "core/state/state.h"

struct ckpt_needed {
	uint64_t *at; // as the SEQ of a ckpt_span; ascending, some more than once
	size_t count, cap;
};

// 0, -ENOMEM; ckpt_needed_done() is due in both cases.
int ckpt_needed_find(const struct ckpt_state *state, struct ckpt_needed *ret_needed);
void ckpt_needed_done(struct ckpt_needed *needed);
// A ckpt_log_needed_fn.
bool ckpt_needed_has(void *needed, uint64_t seq);
