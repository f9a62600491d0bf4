// Packs of files that are open on this node, and of steps that wait to be pushed, once the remote's log condemns them: they are copied to this node, so that who has an older version
// open reads on after they are gone from the remote (REMOTE.md R6).
//
// A copy goes as any pack of this node that nothing needs, when the file is closed.
// Threads: one at a time. Blocks on the network for as long as the packs take.
#pragma once

#include "core/log/entry.h"
#include "core/step/store.h"

// After the entry was read. A pack that cannot be fetched is in the error log. It ends early where behind is to end; NULL: it does not.
struct ckpt_behind;
void ckpt_fetch_condemned(struct ckpt_store *s, const struct ckpt_log_entry *entry, struct ckpt_behind *behind);
