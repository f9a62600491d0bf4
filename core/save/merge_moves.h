// Moves before a merge (merge.h): a file, symlink or directory that one side has moved, and that the other has changed, stands in its new place
// on all sides afterwards. So a merge path by path puts the change there.
//
// An entry has been moved when its inode number is at another name, or in another directory, than before. A directory that goes with the one
// above it was not moved itself. A file that was moved has its bytes and its time from before.
//
// Nothing is followed, and the merge is one of paths alone, where
//   - both sides have moved the entry, and not to one place: it has both names
//   - another file or directory has the new place on the other side, and that side has put or changed it
//   - the moves would put directories into each other
// Of hard links and conflict copies no move is followed; and of `other` none where `own` keeps its places.
//
// Threads: any. Nothing blocks.
#pragma once

#include "core/save/merge.h"

// how names the three manifests as they are after the moves; each that was made is in made, too, in the order was, own, other, and else NULL there: the
// caller's to unref after the merge. 0, -ENOMEM.
int ckpt_merge_follow_moves(struct ckpt_merge *how, struct ckpt_manifest *made[3]);
