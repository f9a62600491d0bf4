// Committed steps as a line of text, for tables of what policies answer.
#pragma once

#include "core/policy/decide.h"

#define HISTORY_MAX 64
#define HISTORY_SECOND INT64_C(1000000000)

struct history {
	struct ckpt_policy_step steps[HISTORY_MAX];
	size_t count;
};

// "100@10 200@20.5t 300@30p=0.5": the number, @ the seconds of its commit, t temporary, p pinned, = its metric "loss" as JSON.
// Ends the test where it is not that.
void history_parse(const char *text, struct history *ret);
void history_done(struct history *h);

// A policy out of its text, in which ' stands for ". Ends the test where it is none.
struct ckpt_policy policy_of(const char *text);
