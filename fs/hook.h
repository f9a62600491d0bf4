// The program of `-o on_commit=PROGRAM`, run after each commit: behind, one at a time, in the order of the commits. It has in its
// environment CKPT_STEP, the step's name as `ckptfs ls` shows it, CKPT_PATH, its directory in the mount, and CKPT_METADATA, its
// metadata as JSON. Whatever becomes of it becomes of no step: a failure is a line in .ckptfs/errors.
//
// Only who mounts can name it: what a store says of itself is never run.
// Bounds: HOOK_NS for each, HOOKS_MAX that wait; those beyond are not run, which is told.
// Threads: any. Nothing blocks but hook_stop().
#pragma once

#include "fs/fs.h"

#define HOOK_NS INT64_C(600000000000)
#define HOOKS_MAX 1000
#define HOOK_END_NS INT64_C(2000000000)

struct hooks;

// As fs->hooks, if the mount has such a program, once its store is open: that tells it of commits. 0, -ENOMEM, -EAGAIN.
int hooks_start(struct ckpt_fs *fs);
size_t hooks_pending(struct hooks *hooks); // that run or wait; NULL: 0
// When no commit runs any more: the one that runs has HOOK_END_NS to end, and less where the mount's end lets go of all
// before that (end.c); the others are not run, which is told. NULL is fine.
void hooks_stop(struct hooks *hooks);
