// Snapshots of a remote's log, which stand in the remote: a node that mounts it the first time need not read the log from its first entry.
//
// One is made by a node of what it has read, and put if nobody has put it (core/state/jump.h). The newest two are kept. All that is read
// here others may have written: it is checked, and what is wrong is passed over. The log says the same.
// Threads: one at a time. Blocks on the objects of the node and of the remote.
#pragma once

#include "core/step/store.h"

#define CKPT_SNAPSHOTS_ENTRIES 256u // of the log, between two snapshots at least
#define CKPT_SNAPSHOTS_READ 512u    // a node that had to read so many puts one

// Puts one of all that was read. forced: though the log since the newest one is less than half as large as that one. 0; -EFBIG: it would be
// over CKPT_REMOTE_SNAPSHOT_BYTES_MAX; errors of the objects. What is left undone then is done by the next one that is put.
int ckpt_snapshots_put(struct ckpt_store *s, bool forced);
// Goes over all entries up to the newest snapshot that is whole, if these are many (ckpt_journal_jump() says when that may be done).
// 0; errors of the objects: the log can be read without it.
int ckpt_snapshots_jump(struct ckpt_store *s);
