// The acts of trial.h on steps that are committed, and what those and the others prepare.
#pragma once

#include "tests/support/trial.h"

// For all.
void ckpt_trial_prepare_store(struct ckpt_trial *t, unsigned arg);
void ckpt_trial_prepare_step(struct ckpt_trial *t, unsigned arg);         // a committed one of save.h
int ckpt_trial_write_file(int dirfd, const char *name, const char *text); // 0, -errno: acts write, too

int ckpt_trial_add(struct ckpt_trial *t);
int ckpt_trial_replace(struct ckpt_trial *t);
int ckpt_trial_take_out(struct ckpt_trial *t);
int ckpt_trial_remove_entry(struct ckpt_trial *t);
int ckpt_trial_attributes(struct ckpt_trial *t);

void ckpt_trial_prepare_amended(struct ckpt_trial *t, unsigned arg);
int ckpt_trial_restore(struct ckpt_trial *t);

void ckpt_trial_prepare_neighbour(struct ckpt_trial *t, unsigned arg);
int ckpt_trial_compare(struct ckpt_trial *t);

void ckpt_trial_prepare_garbage(struct ckpt_trial *t, unsigned arg);
int ckpt_trial_collect(struct ckpt_trial *t);
