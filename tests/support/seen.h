// All that a store has, as text: in memory, and as who opens it finds it. To compare a store before an act, after it, and after
// one that failed. Without what differs from one trial to the next: times, sessions, ids of folders.
#pragma once

#include "tests/support/trial.h"

struct ckpt_seen {
	char *here, *disk;
};

struct ckpt_seen ckpt_see(const struct ckpt_trial *t);
struct ckpt_seen ckpt_see_anew(const char *dir); // when the store is opened anew
void ckpt_seen_done(struct ckpt_seen *seen);
void ckpt_seen_assert(const struct ckpt_seen *is, const struct ckpt_seen *want, const char *when);
// Of this process.
int ckpt_open_descriptors(void);
