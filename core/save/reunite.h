// An edit that another node was quicker with. Both are saved in the place of the same step. So the state of the log gives the second one the
// name of a conflict (core/state/shared.h), and its changes are put into the first one here: as the next version of that, path by path
// (merge.h), while nobody else has seen the second. It goes to the trash then.
//
// Threads: those that hold store->acts_lock. Blocks on the disk, and where another node has saved, on the network.
#pragma once

#include "core/step/step.h"

// The edits of this node that are in no remote's log and have a name of a conflict, each with a reference; malloc'ed. 0, -ENOMEM.
int ckpt_reunite_list(struct ckpt_store *s, struct ckpt_step ***ret_steps, size_t *ret_count);
// 0: its changes are in *ret_into, a reference, whose manifest was *ret_was before, a reference: ckpt_delete() it. -ENOENT: nothing can be
// said to be what both began with, or there is no first one; -EBUSY: one of them is being changed, ask again. All else is in the error log.
int ckpt_reunite(struct ckpt_step *step, struct ckpt_step **ret_into, struct ckpt_manifest **ret_was);
