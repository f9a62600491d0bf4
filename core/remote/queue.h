// The queue of a store with a remote, for people: what waits to be pushed, why, and since when; and taking a step out of it (REMOTE.md P9).
//
// Threads: any. Blocks: _json on the disk, _drop on the node's own log.
#pragma once

#include "core/remote/remote.h"

// malloc'ed; NULL: no memory. The process that has the store open for writing knows all of it; a reader does not know plain files, failures
// and how the remote answers, and says "complete": false.
char *ckpt_queue_json(struct ckpt_store *s);

// The changes of this step that wait stay on this node, and are not pushed before the step is changed here again. -EOPNOTSUPP the store has no remote;
// -ENODATA nothing of it waits; -EALREADY it was dropped before; -EBUSY it waits to be renamed; -ESTALE it is not committed, or has changed
// just now; else as of ckpt_journal_append(). What was sent before may still arrive, and is in the remote then as if it had not been dropped.
int ckpt_queue_drop(struct ckpt_step *step);
const char *ckpt_queue_drop_hint(int error); // what to do about that; NULL: nothing more is known
