// What the mount says of itself: `.ckptfs/status`, `status.json`, and the answers to verbs.
//
// Threads: any. Walks the staged steps on the disk.
#pragma once

#include "fs/fs.h"

// Malloc'ed text, or NULL without memory.
char *status_json(struct ckpt_fs *fs);
char *status_text(struct ckpt_fs *fs);
char *status_sessions_json(struct ckpt_fs *fs); // {"ok":true,"sessions":[...]}
uint64_t status_memory_bytes(void);             // resident, of this process
