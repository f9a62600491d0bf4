// The store of a test (fixture.h) with a step that is staged in its root; the reference to it goes with the store.
#pragma once

#include "tests/support/fixture.h"

extern struct ckpt_step *step;

void ckpt_fixture_step_open(const char *name);
void ckpt_fixture_step_close(void);
