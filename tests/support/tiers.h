// A script of steps that share chunks: saved, cooled, deleted, expired, collected, had back, repacked; and what must hold when it is cut
// anywhere: nothing that a step needs is lost, whatever garbage collection comes next. The bodies of the loops in
// tests/crash/test_gc.c and test_gc_faults.c.
//
// What must not fail ends the test.
#pragma once

#include "tests/support/packed.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ckpt_tiers_act {
	CKPT_TIERS_SAVE_A, // and sealed, as the others
	CKPT_TIERS_SAVE_B, // which has a text of A's
	CKPT_TIERS_SAVE_C, // the same of another one
	CKPT_TIERS_SAVE_D,
	CKPT_TIERS_SAVE_E, // which has a text of D's
	CKPT_TIERS_SAVE_F, // which has the same one
	CKPT_TIERS_COOL_A,
	CKPT_TIERS_COOL_B,
	CKPT_TIERS_DELETE_A,
	CKPT_TIERS_GC_TRASH, // nothing goes
	CKPT_TIERS_EXPIRE_A,
	CKPT_TIERS_GC_A,
	CKPT_TIERS_COOL_C, // with what A had, and is gone
	CKPT_TIERS_WARM_B,
	CKPT_TIERS_DELETE_B,
	CKPT_TIERS_GC_AGAIN,
	CKPT_TIERS_UNDELETE_B,
	CKPT_TIERS_COOL_B_AGAIN,
	CKPT_TIERS_COOL_D, // into one pack
	CKPT_TIERS_COOL_E,
	CKPT_TIERS_WARM_E, // and it names its packs further
	CKPT_TIERS_COOL_F,
	CKPT_TIERS_DELETE_D,
	CKPT_TIERS_EXPIRE_D,
	CKPT_TIERS_REPACK, // E and F have what they need of D's pack in another one, and it goes
	CKPT_TIERS_ACTS
};

// When each act began and was acknowledged: what clock() said, plus 1; 0: it was not. May be shared with a child.
struct ckpt_tiers_log {
	uint64_t began[CKPT_TIERS_ACTS], done[CKPT_TIERS_ACTS];
};

int ckpt_tiers_do(struct ckpt_store *s, enum ckpt_tiers_act act); // 0, -errno: asking again goes on with it
// Opens the store in dir, does all, closes it.
void ckpt_tiers_run(const char *dir, struct ckpt_tiers_log *log, uint64_t (*clock)(void *arg), void *arg);
// The acts up to `last`, and from `first` on, have been done or, the last one, may have.
void ckpt_tiers_log_to(struct ckpt_tiers_log *log, enum ckpt_tiers_act last, bool done);

// What must hold of a store in which the script was cut at this time of the clock. whole: then garbage is collected by force, and it
// holds again, also of what is in the trash and is had back.
void ckpt_tiers_check(struct ckpt_store *s, const struct ckpt_tiers_log *log, uint64_t point, bool whole);
// The same of a store that is opened for it.
void ckpt_tiers_check_at(const char *dir, const struct ckpt_tiers_log *log, uint64_t point, bool whole);
