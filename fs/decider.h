// Whether steps are to be saved, decided by the mount: once for each, whoever asks for it, by `.ckptfs/should_save/N` or by
// `ckptfs should-save`. And the preemption that it was told of, or the store
// before it was mounted, which it forgets when it ends.
//
// One decision is made at a time, as it may ask a program of the user's. Who asks for the step that is just being decided gets that
// answer, or the same failure; who asks for another waits for his turn, at most CKPT_DECIDED_PATIENCE_NS.
// Threads: any, but those that serve the kernel: it blocks on the disk, and for such a program.
#pragma once

#include "core/policy/decided.h"

struct ckpt_fs;
struct ckpt_store;
struct decider;

struct decider *decider_new(struct ckpt_store *s); // with what was decided before; NULL: no memory
// What was decided is kept for who decides next. Nobody asks any more, no commit runs, and the store is still open.
void decider_end(struct decider *d, struct ckpt_store *s);

// A copy of what is decided so far, for the store that is committed to (struct ckpt_store); decider is a struct decider.
void decider_known(void *decider, struct ckpt_decided *ret);

// 0; -EBUSY: others have not let it come to a decision; else it could not be decided (core/policy/should_save.h). Failures are in the
// error log; *ret_why is what it says (malloc'ed, may be NULL). Of the question step, run, force, answered and answer are the caller's.
int decider_ask(struct ckpt_fs *fs, struct ckpt_decide *question, struct ckpt_decided_step *ret_answer, char **ret_why);

// As it is answered to who asks by the mount's socket; malloc'ed, NULL: no memory.
char *decider_json(const struct ckpt_decided_step *answer);

// A preemption is reached at this step, 0: at the next one that is decided. Decisions that were made hold, so that all who ask see
// it at one step. -1: there is none any more.
void decider_preempt(struct decider *d, int64_t at_step);
int64_t decider_preempted_at(struct decider *d); // -1: there is none
