// Raw files that only expired versions of a step name (core/step/older.h). They are removed in the background, so that an edit of a large file
// does not take the room of both for as long as the step is there.
//
// A raw file that an unexpired version names stays, and so does one that no version names: an addition under way may have it. The packs of what
// has expired are expected to be garbage then.
// Threads: one. Blocks on the disk; under acts_lock for a moment at a time.
#pragma once

#include "core/step/step.h"

// Of all committed steps. When to look again, by the clock of the system; INT64_MAX: nothing waits for its time.
int64_t ckpt_outdated_remove(struct ckpt_store *s, const bool *stop);
