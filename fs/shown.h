// Files of a committed step that have changed otherwise than through the kernel: by a verb. The kernel, and the nodes, forget them.
//
// Threads: any. Blocks on requests of the kernel: no lock of a request may be held.
#pragma once

#include "core/record/manifest.h"
#include "core/step/step.h"
#include "fs/fs.h"

// An entry of the manifest has gone.
void shown_forget(struct ckpt_fs *fs, struct ckpt_step *step, struct ckpt_manifest *m, const char *path);
// The step has the files of one manifest, where it had those of another.
void shown_change(struct ckpt_fs *fs, struct ckpt_step *step, struct ckpt_manifest *was, struct ckpt_manifest *is);
