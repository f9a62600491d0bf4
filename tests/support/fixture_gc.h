// The store of a test (fixture.h) in which garbage is made and collected. It has a raw step, for what no step of a store needs does
// not go where there is no step.
//
// As in fixture.h, what nearly each line of a test has is without a prefix.
#pragma once

#include "tests/support/fixture.h"
#include "tests/support/packed.h"

#include "core/gc/gc.h"

#define HOUR_S 3600
#define DAY_S (24 * HOUR_S)
#define SHARED "what two steps share"
#define LONG_1 "a text that is longer than those which are shared, and of one step alone"
#define LONG_2 "another text that is as long, of which nobody else knows anything either"

extern struct ckpt_step *other;      // which is raw
extern const struct ckpt_gc_how all; // of any age, however much it is
extern struct ckpt_gc_done done;     // by the last that was done to all

void ckpt_fixture_gc_open(void);
void ckpt_fixture_gc_reopen(void); // other is forgotten
void ckpt_fixture_gc_close(void);

void expire(struct ckpt_step *step);         // it cannot be had back
void expire_earlier(struct ckpt_step *step); // as a process before us has done it
void gc_all(void);
uint64_t garbage(void);   // bytes, as it is told without a collection
bool no_more(void *left); // go_on: after so many times, an int, it is told to stop
