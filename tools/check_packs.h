// The packs of a store as verify meets them: each is opened once, and its table kept for the files that have chunks in it.
//
// Calling sequence: ckpt_packs_new(); _chunk() and _read() for each chunk that a manifest names; _each() for what nothing has
// named so far; _free(). Ownership: borrows the store. Memory: the tables that were used last, 32 MiB of them. Threads: one.
// Blocks on the store.
#pragma once

#include "core/record/manifest.h"
#include "core/step/store.h"

struct ckpt_packs;

struct ckpt_packs *ckpt_packs_new(struct ckpt_store *s);
void ckpt_packs_free(struct ckpt_packs *p); // NULL is fine

// Whether the pack is there, as long as it should be, with a good table: 0, or what is wrong with it, of which
// ckpt_packs_why() has the words.
int ckpt_packs_pack(struct ckpt_packs *p, const struct ckpt_pack *pack);
// And that this chunk is in it where a manifest says, and is stored as it says: -ENOMSG it is not.
int ckpt_packs_chunk(struct ckpt_packs *p, const struct ckpt_pack *pack, const struct ckpt_chunk *chunk);
// The bytes of a chunk of m, until the next call. Errors as of ckpt_chunk_read().
int ckpt_packs_read(struct ckpt_packs *p, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		    const uint8_t **ret_plain);
// Every stored byte of it, once for each pack, also those that no decoder needs: 0, or as _pack.
int ckpt_packs_bytes(struct ckpt_packs *p, const struct ckpt_pack *pack);
const char *ckpt_packs_why(int error); // "is missing"

// All objects below packs/ that were not looked at yet: bad is told of each that is no pack, or a damaged one.
int ckpt_packs_each(struct ckpt_packs *p, void (*bad)(void *arg, const char *object, const char *problem), void *arg);
