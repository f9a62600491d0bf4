// Who looks at a mount while ranks write to it: it lists the folders, opens what is listed, and may see each step as
// nothing or as one of the states that the trace declared for it.
#pragma once

#include "tests/replay/shared.h"
#include "tests/replay/trace.h"

// Looks from the current directory until shared->quit, and once more then. Returns the exit status.
int observer_run(const struct trace *trace, const struct expect *expect, struct shared *shared);
// One look. False: shared->failure says what was seen.
bool observer_look(const struct trace *trace, const struct expect *expect, struct shared *shared);
