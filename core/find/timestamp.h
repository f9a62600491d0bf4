// When a step was saved by its framework's own word: `timestamp` in the metadata.json at its top, as eFormer writes it, a date in ISO
// 8601. One without a zone is of this machine's.
//
// Threads: any. Reads the manifest and that file of each step; blocks on the disk.
#pragma once

#include "core/step/saved.h"

struct ckpt_step;
struct ckpt_store;

// Looks it up in the current version of all committed steps of a folder (NULL: of the store), where nobody has yet: ckpt_saved_of(step).
// 0, -ENOMEM.
int ckpt_timestamp_look(struct ckpt_store *s, const char *folder_id);
