// More scenarios than those that a person has written: each is one of these with more acts behind its own, which chance takes from all scenarios
// of the program. So there are as many states as anybody has time for.
//
// Limit: acts beside the mount, contents that name a step, and acts that take the name of such a step away are not added, since the rules
// that judge these hold in their own scenarios only.
#pragma once

#include "tests/model/model.h"

// Variation number `of`, from 1; the same each time. It is valid up to the next call.
const struct model_scenario *vary(const struct model_scenario *scenarios, size_t count, unsigned of);
