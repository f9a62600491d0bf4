// Chunks in packs that the remote's log has condemned (core/state/condemned.h): nothing new names these packs.
//
// Threads: any. Nothing blocks.
#pragma once

#include "core/record/manifest.h"

struct ckpt_store;

// Of the manifest, and in a pack by it; its pack is, or one of a chunk that it is decoded beside.
bool ckpt_chunk_is_condemned(struct ckpt_store *s, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk);
// Some pack of the manifest is.
bool ckpt_any_pack_is_condemned(struct ckpt_store *s, const struct ckpt_manifest *m);
