// The plain tree on disk beside the one that the remote's log says: where another node has changed it, it is changed here; where this
// node has, that waits to be pushed; where both have, both stay (REMOTE.md sections 1 and 5).
//
//   on disk           in the log                    then
//   unchanged         another version, or gone      it is replaced, or goes
//   changed           that which it was made from   it is to be pushed
//   changed           another version               it gets the name PATH.conflict-HOST, and is to be pushed; the log's takes its place
//   gone              that which was here           its removal is to be pushed
//   gone              another version               it comes back
// A folder is known by its id, wherever it is. What has the name of a step, or is open for writing, waits. A file that this node has changed
// gets its other name at once, though a step has the first one: so it is pushed.
//
// Threads: one. Blocks on the disk, for a walk over all of tree/.
#pragma once

#include "core/remote/tree_queue.h"

struct ckpt_tree_plan {
	struct ckpt_store *store;
	const char *node;
	struct ckpt_tree_seen_table *seen;
	struct ckpt_tree_queue *queue;
	bool *again;                       // set: something was left that may be done in a while,
	bool *soon;                        // or is certain to
	const struct ckpt_tree_pace *pace; // of large files that are fetched
	int64_t started_ns;                // when this node's mount began, monotonic
};

// Errors are those of the disk, and of who reads the log; what could be done was done.
int ckpt_tree_reconcile(struct ckpt_tree_plan *p);
// The content of a plain file, or the target of a link, up to CKPT_PLAIN_INLINE_MAX bytes, as an item of the queue. 1: it is of no such
// kind; or larger, as ret_item->file says. The folder is in dirfd.
int ckpt_tree_take(int dirfd, const char *name, struct ckpt_tree_item *ret_item);
