// Acts of core, one by one: each with what it needs prepared in a store of its own, so that it can be tried with any fault, and
// tried again.
//
// The acts assert nothing, since Check allocates; what is prepared and ended must not fail.
#pragma once

#include "tests/support/save.h"

#include "core/save/draft.h"
#include "core/step/settings.h"

#include <stddef.h>

struct ckpt_trial {
	char dir[PATH_MAX];
	unsigned arg;              // of the act
	struct ckpt_store *s;      // NULL: the act opens it
	struct ckpt_store *reader; // beside it
	struct ckpt_step *step, *other;
	struct ckpt_save_holder holder;
	struct ckpt_writer writer;
	struct ckpt_draft draft;
	struct ckpt_settings settings;
	int fd;
	char *text;     // that the act brings
	char said[256]; // what the act found
};

struct ckpt_trial_act {
	const char *name;
	void (*prepare)(struct ckpt_trial *t, unsigned arg);
	int (*act)(struct ckpt_trial *t);
	unsigned arg;
	int leaves;
};

// What an act may leave: when it fails, a part of it done; when it is done, what it says of itself to be written later.
#define CKPT_TRIAL_PARTS 1
#define CKPT_TRIAL_LATER 2
#define CKPT_TRIAL_NO_MEMORY 4 // it allocates nothing

extern const struct ckpt_trial_act ckpt_trial_acts[];
extern const size_t ckpt_trial_act_count;

void ckpt_trial_begin(struct ckpt_trial *t, const struct ckpt_trial_act *act);
int ckpt_trial_do(struct ckpt_trial *t, const struct ckpt_trial_act *act);
void ckpt_trial_settle(struct ckpt_trial *t); // until no thread of the store's is at work
void ckpt_trial_end(struct ckpt_trial *t);    // but for its directory
