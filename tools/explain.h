// A run that is played through: what a policy would decide of steps that are still to come, and which of them would be there
// at the end.
// Threads: one. Blocks where a program of the user's decides.
#pragma once

#include "core/policy/decide.h"
#include "core/policy/policy.h"

#include <jansson.h>

#define CKPT_EXPLAIN_STEPS_MAX 20000
#define CKPT_EXPLAIN_NS_MAX (INT64_C(86400) * 1000000000) // of each: all of them end within what an int64_t holds

struct ckpt_explain {
	int64_t first, last;        // steps, inclusive
	int64_t step_ns, save_ns;   // how long each takes; a save goes on beside the steps
	int64_t preempt_at;         // -1: not
	int64_t begins_ns;          // when the first step is asked for
	const char *folder, *store; // of the run (decide.h)
	// What is there before; those below the first step count, and nothing of them is changed.
	const struct ckpt_policy_step *steps;
	size_t count;
};

// A row for each step: "step", "seconds" from the beginning, "save", "permanent", "policy"; of a saved one "keep" and "why" as
// they are at the end, else null; "error" where no decision could be made, else null. Never NULL.
json_t *ckpt_explain(const struct ckpt_policy *p, const struct ckpt_explain *e);
