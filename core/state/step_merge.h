// A step that two nodes have changed, as it is with the changes of both: shared.h says which of them wins.
// For the files of core/state alone. Threads: as the state's. Nothing blocks, nothing is allocated, nothing can fail.
#pragma once

#include "core/state/state.h"

#define CKPT_VERSIONS_OF_MERGE 3u // at most so many are added by one

// base: as both began; theirs: of the remote's log; ours: of this node, becomes the merged one. It has room for the versions
// of theirs and CKPT_VERSIONS_OF_MERGE more.
void ckpt_state_merge(const struct ckpt_state_step *base, const struct ckpt_state_step *theirs,
		      struct ckpt_state_step *ours);
