// What of each pack is used: the stored bytes of those of its chunks that some manifest names, each counted once however many do.
//
// Calling sequence: zeroed; ckpt_pack_use_pack() for each pack, by id; then ckpt_pack_use_add() for each manifest; the rows are in the
// order of the packs; ckpt_pack_use_done().
// Ownership: the caller's; manifests are borrowed for the call. Threads: one. Blocks on the store: _unused and _garbage.
#pragma once

#include "core/base/keys.h"
#include "core/record/manifest.h"

struct ckpt_objects;
struct ckpt_store;

struct ckpt_used_pack {
	struct ckpt_pack pack;
	uint64_t used_bytes, used_chunks;
};

struct ckpt_pack_use {
	struct ckpt_used_pack *packs;
	size_t count, cap;
	struct ckpt_keys seen; // chunks
};

int ckpt_pack_use_pack(struct ckpt_pack_use *u, const struct ckpt_pack *pack); // 0, -ENOMEM
// All chunks of it, those of files that have raw files as well too: what a version names is kept. What is in other packs than
// those of u is not counted. 0, -ENOMEM.
int ckpt_pack_use_add(struct ckpt_pack_use *u, const struct ckpt_manifest *m);
void ckpt_pack_use_done(struct ckpt_pack_use *u);

// Of a pack its chunks that are not used, but of one that is not used at all the whole. Errors as of ckpt_pack_chunk_bytes().
int ckpt_pack_use_unused(const struct ckpt_used_pack *p, struct ckpt_objects *b, uint64_t *ret_bytes);
// The bytes in packs that no step of the store needs, listed or in the trash or whatever it is. Without a lock: what comes or goes
// meanwhile may be counted or not. -EBADMSG, -EIO, ... what needs packs, or a pack, cannot be read.
int ckpt_pack_use_garbage(struct ckpt_store *s, uint64_t *ret_bytes);
