// Whether a step of this store is to be saved: its policy asked, with its committed steps, and the answer kept.
//
// The steps are those of the run.
// Threads: one at a time for one struct ckpt_decided. Blocks on the disk, and where a program of the user's decides.
#pragma once

#include "core/policy/decided.h"

struct ckpt_step;
struct ckpt_store;

// The question: step, run, force, preempted_at (but at rest, where it is what verbs were told), answered, answer, go_on and arg are the caller's, all else is found here. decided
// has what was decided before, and afterwards this; *ret_changed says whether it is another than before. -EMLINK: no run was
// named, and several folders have steps; -EBADMSG: the store's policy is none; -EPERM: it runs a program, and others could have
// set it; else as of ckpt_decide(). *ret_why: where there is more to say than the errno (malloc'ed, or NULL).
int ckpt_should_save_by(struct ckpt_store *s, struct ckpt_decide *question, struct ckpt_decided *decided,
			struct ckpt_decided_step *ret_answer, bool *ret_changed, char **ret_why);
// The same of a store that is not mounted, with what was decided of it before: s is open for writing, so that one does it at a
// time.
int ckpt_should_save_at_rest(struct ckpt_store *s, struct ckpt_decide *question, struct ckpt_decided_step *ret_answer,
			     char **ret_why);
// From this step on a preemption is reached, -1: there is none any more, said of a store at rest, open for writing; and what was said.
// A mount takes it over, and forgets it when it ends, in whatever way.
int ckpt_should_save_preempt_at_rest(struct ckpt_store *s, int64_t at_step);
int64_t ckpt_should_save_preempted_at(struct ckpt_store *s);
// What was decided of a store, for who decides from now on, and what he has decided, for who does afterwards: a mount, with which
// runs begin, and their clocks anew. At rest no process is there for as long as a run, and the clocks go on. Errors of the
// backend; what cannot be used says nothing.
int ckpt_should_save_load(struct ckpt_store *s, struct ckpt_decided *ret_decided);
int ckpt_should_save_keep(struct ckpt_store *s, const struct ckpt_decided *decided);
// Whether this staged step, which is about to be committed under this name, is a temporary one: it was decided so before it was
// begun, and that still holds. What cannot be read says that it is permanent.
bool ckpt_should_save_was_temporary(struct ckpt_step *step, const char *folder_id, const char *name);

const char *ckpt_should_save_word(enum ckpt_decide_answer answer); // of requests to the mount
// The answer of this word in requests (of ckpt_should_save_ask() to the mount): false for another, or NULL.
bool ckpt_should_save_answer(const char *word, enum ckpt_decide_answer *ret_answer);
const char *ckpt_should_save_hint(int error); // what to do about it, or NULL
