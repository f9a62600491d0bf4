// Puts manifests into the index in the background: a commit is answered before the index has its manifest.
//
// A manifest that is lost with the process is read from the store instead. So a full queue or a failed write drops
// manifests, and no caller waits. Limits: 256 manifests; 32 MiB, or a single manifest that has more. Threads: any.
// Only _close blocks.
#pragma once

#include "core/base/part.h"
#include "core/index/index.h"

struct ckpt_indexer;
struct ckpt_jobs;
struct ckpt_store;
// Of a store that is open for writing and has an index; else NULL.
CKPT_PART(struct ckpt_store, struct ckpt_indexer *, ckpt_indexer)

int ckpt_indexer_new(struct ckpt_index *ix, struct ckpt_jobs *jobs,
		     struct ckpt_indexer **ret_indexer); // both are borrowed; 0, -ENOMEM
// Copies the digest, takes manifest (malloc'ed).
void ckpt_indexer_put(struct ckpt_indexer *in, const uint8_t sha256[32], void *manifest, size_t len);
size_t ckpt_indexer_pending(struct ckpt_indexer *in); // what it still has to write; NULL: 0
void ckpt_indexer_close(struct ckpt_indexer *in);     // drains; NULL is fine
