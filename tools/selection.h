// The committed steps that a list of words names: "1000", "latest", "checkpoints/2000", a glob ('step_*', 'checkpoints/*'), a range of
// numbers (100..500), a folder (all steps in it). An exact name wins over this syntax.
//
// Ownership: a selection holds a reference to each of its steps, once. Threads: one. Blocks on the disk. Failures are said on stderr,
// once; the functions that can fail return 0 or an exit status.
#pragma once

#include "tools/listing.h"

struct ckpt_selection {
	struct ckpt_step **steps; // in the order of their commits
	size_t count, cap;
};

void ckpt_selection_all(const struct ckpt_listing *l, struct ckpt_selection *s);
// list: words with ',' between. One that names nothing is a failure.
int ckpt_selection_add(const struct ckpt_listing *l, const struct ckpt_operand *o, const char *list,
		       struct ckpt_selection *s);
void ckpt_selection_done(struct ckpt_selection *s);
