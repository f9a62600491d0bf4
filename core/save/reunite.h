// An edit that another node was quicker with. Both are saved in the place of the same step. So the state of the log gives the second one the
// name of a conflict (core/state/shared.h), and its changes are put into the first one here: as the next version of that, path by path
// (merge.h), while nobody else has seen the second. It goes to the trash then.
//
// The same goes for additions, removals and attributes that are a version of a step, which no remote's log has, when another node's edit
// takes the place of that step: it is in the trash then, with its version. And for those of another node that come to a step whose place an
// edit of this node has taken, which is not pushed yet: by a MERGE of that, so that they are put into it once, and none of its versions of before,
// which lack them, is pushed.
//
// Versions of one step that two nodes have made without a new save, which are unmerged (core/state/shared.h), are put together by a MERGE: as
// the remote's log has them, with the changes of this node. Of a step that has expired there only these changes stay.
//
// A path that both have changed is as the first in the remote's log has it. What this node has there stays beside it as a conflict copy (merge.h),
// with a line in the error log for each.
//
// Threads: those that hold store->acts_lock. Blocks on the disk, and where another node has saved, on the network.
#pragma once

#include "core/step/step.h"

// The steps of this node whose changes may be such, each with a reference; malloc'ed. 0, -ENOMEM.
int ckpt_reunite_list(struct ckpt_store *s, struct ckpt_step ***ret_steps, size_t *ret_count);
// Without a lock, before ckpt_reunite(): the versions whose manifests that will read, so that they can be fetched before. At most 2, their number.
size_t ckpt_reunite_reads(struct ckpt_step *step, uint32_t ret_versions[2]);
// 0: its changes are in *ret_into, a reference, whose manifest was *ret_was before, a reference; where that is another step and this one is listed,
// ckpt_delete() it. -ENODATA: it has expired for all others, and this node has added and changed nothing; ckpt_delete() it. -ENOENT: nothing can be
// said to be what both began with, or there is no first one; -EBUSY: one of them is being changed, ask again. All else is in the error log.
int ckpt_reunite(struct ckpt_step *step, struct ckpt_step **ret_into, struct ckpt_manifest **ret_was);
