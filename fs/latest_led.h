// Which threads looked the link `latest` up last, and the step that it led each of them to.
//
// A write by way of the link reopens the step that the link led to (core/save/reopen.h). That step is hidden then, and the kernel
// looks the whole path up again: the link must not lead to the step before now.
//
// Threads: any. Nothing blocks for long.
#pragma once

#include "fs/fs.h"

// The thread was led by the link n of the folder dir. An unknown thread (0) is not remembered.
void latest_remember(struct ckpt_fs *fs, struct node *dir, const struct node *n, pid_t tid);
// The thread looked it up lately, and was led to this step.
bool latest_led_to(struct ckpt_step *step, pid_t tid);
