// Writes the index behind: a commit is answered before the index knows of it, and one thread catches up.
//
// What is lost with the process costs a look at the store at the next open, nothing else; so a full queue or a failed
// write drops entries, and a queue of large manifests the next of them, instead of making anybody wait. Threads: any.
// Only _new, _remove and _close block.
#pragma once

#include "core/index/index.h"

struct ckpt_indexer;

int ckpt_indexer_new(struct ckpt_index *ix, struct ckpt_indexer **ret_indexer); // ix is borrowed; 0, -ENOMEM, -EAGAIN
// Copies the key and the summary, takes manifest (malloc'ed, may be NULL).
void ckpt_indexer_put(struct ckpt_indexer *in, const char *key, const struct ckpt_summary *summary, void *manifest,
		      size_t manifest_len);
// The version is gone from the store, or about to be, and its number may be another's next: nothing of it is in the index
// afterwards, or comes there from the queue. An index that cannot be written is emptied. 0, -ENOSPC, ...
int ckpt_indexer_remove(struct ckpt_indexer *in, const char *key, uint32_t version);
size_t ckpt_indexer_pending(struct ckpt_indexer *in); // what it still has to write; NULL: 0
void ckpt_indexer_close(struct ckpt_indexer *in);     // drains; NULL is fine
