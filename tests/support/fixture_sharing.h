// The store of a test in which garbage is made and collected (fixture_gc.h), with three steps that share a text: most of a pack is
// garbage when the first of them has gone.
#pragma once

#include "tests/support/fixture_gc.h"

extern struct ckpt_step *a, *b, *c; // of which the last two have a text of the first

void ckpt_fixture_sharing_open(void);
void ckpt_fixture_sharing_reopen(void); // a is forgotten; b and c are NULL where they are not listed any more
void ckpt_fixture_sharing_close(void);
