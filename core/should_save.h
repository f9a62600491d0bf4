// Whether a step of this store is to be saved: its policy asked, with its committed steps, and the answer kept.
//
// The steps are those of the run (ckpt_history_read_run()).
// Threads: one at a time for one struct ckpt_decided. Blocks on the disk, and where a program of the user's decides.
#pragma once

#include "core/decided.h"

struct ckpt_store;

// The question: step, force, saving, preempted_at, should_save, go_on and arg are the caller's, all else is found here. decided has
// what was decided before, and afterwards this; *ret_changed says whether it is as it was. -EBADMSG: the store's policy is
// none; -EPERM: it runs a program, and others could have set it; else as of ckpt_decide(); *ret_why, where there is more to say than the errno (malloc'ed, or NULL). ret_decision->by
// points into decided.
int ckpt_should_save(struct ckpt_store *s, struct ckpt_decide *question, struct ckpt_decided *decided,
		     struct ckpt_decision *ret_decision, bool *ret_changed, char **ret_why);
// The same for a verb, with what verbs have decided: s is open for writing, so that one of them does it at a time.
int ckpt_should_save_at_rest(struct ckpt_store *s, struct ckpt_decide *question, struct ckpt_decided *decided,
			     struct ckpt_decision *ret_decision, char **ret_why);
const char *ckpt_should_save_hint(int error); // what to do about it, or NULL
