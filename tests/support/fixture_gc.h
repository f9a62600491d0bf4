// The store of a test (fixture.h) in which garbage is made and collected. It has a raw step, for what no step of a store needs does
// not go where there is no step.
//
// As in fixture.h, what nearly each line of a test has is without a prefix.
#pragma once

#include "tests/support/fixture.h"
#include "tests/support/packed.h"

#include "core/gc.h"

extern struct ckpt_step *other;      // which is raw
extern const struct ckpt_gc_how all; // of any age, however much it is
extern struct ckpt_gc_done done;     // by the last that was done to all

void ckpt_fixture_gc_open(void);
void ckpt_fixture_gc_reopen(void); // other is forgotten
void ckpt_fixture_gc_close(void);

void expire(struct ckpt_step *step); // it cannot be had back
void gc_all(void);
uint64_t garbage(void); // what is said without a collection: bytes
