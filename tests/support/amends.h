// A committed step that is added to, taken from, written again, sealed, cooled, warmed and given another mode, and whose files are renamed and linked, one act after the
// other; and a model of it that says
// what each of its versions holds. The bodies of the loops in tests/crash/test_amend.c and test_amend_faults.c.
//
// Version n + 1 is the step after n acts. What must not fail ends the test.
#pragma once

#include "core/step/store.h"

#include <stdbool.h>
#include <stddef.h>

#define CKPT_AMEND_ACTS 19
#define CKPT_AMEND_CHANGES 16 // of them that clients see

// A new store in a new directory with the step as it was committed.
void ckpt_amends_init(char *ret_dir);
// Act n (from 0), as the mount does it; a second attempt after a failure is one as a client's second attempt. 0, -errno.
int ckpt_amends_do(struct ckpt_store *s, size_t n);
int ckpt_amends_attempt(struct ckpt_step *step, size_t n, size_t done); // the same of the step at hand; asserts nothing
// The act that is change n. An act that seals or cools is none: when it fails, a part of it may be done, in a version of
// its own (test_seal_faults.c, test_cool_faults.c).
size_t ckpt_amends_change(size_t n);
// The committed step, with a reference; its acts so far.
struct ckpt_step *ckpt_amends_step(struct ckpt_store *s, size_t *ret_done);
// The step has just what it has after this many acts: in memory.
void ckpt_amends_check(struct ckpt_store *s, size_t done);
// The same for the store in dir as who opens it finds it: after at least least, at most most acts. How many.
size_t ckpt_amends_check_at(const char *dir, size_t least, size_t most);
