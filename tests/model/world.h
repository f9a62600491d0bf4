// One walk: nodes, their bucket and what is under way.
#pragma once

#include "tests/model/judge.h"
#include "tests/model/model.h"

enum { WORLD_CHOICES = 64, WORLD_LABEL = 120 };

struct world_choice {
	unsigned kind, node, slot;
	char label[WORLD_LABEL];
};

// A walk's begin; the state is that of the scenario's first acts. Ends the program where that fails.
void world_begin(const struct model_scenario *scenario, uint64_t seed);
void world_end(void);
// The choices that there are now. At least one, but at the end.
size_t world_choices(struct world_choice ret[WORLD_CHOICES]);
void world_do(const struct world_choice *c);
bool world_is_answer(const struct world_choice *c); // a request is done, and answered
void world_violate_script(const char *line);        // it cannot be followed
// Of the abstract state.
uint64_t world_hash(void);
const char *world_text(void);
// The rule that is violated, or "".
const char *world_wrong(void);
// All goes on without a fault until nothing is left to do: then everything that was done is there, on all nodes.
void world_settle(void);
