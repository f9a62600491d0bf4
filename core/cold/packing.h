// Chunks on their way into packs: a table by id of where each is, or will be, and the pack in the making. What is cooled and what
// is repacked goes through here, so that each chunk is put once.
//
// Calling sequence: ckpt_packing_init(); for each chunk ckpt_packing_find(), and where it has none _add(), or _hold(), a read of
// the chunk from that pack, and _use(); _put() for what is left; then _locate() while a version is written; _done() when the version is
// applied, or there will be none. Each pack that is put or held is pinned from then to _done() (pack_pins.h).
// Ownership: the caller's; what is added is copied. Threads: one. Blocks on the store: _add, _put. Errors: those of pack.h, and
// -ENOMEM.
//
// Invariants:
//  1. A chunk is in the table once its bytes were read back from what will be, or is, its pack, and are those of its id: whoever
//     adds it has done so.
//  2. After _put() each place is in a pack that is durable, or was known to be so by whoever gave it to _use().
#pragma once

#include "core/base/part.h"
#include "core/cold/pack.h"
#include "core/record/manifest.h"

struct ckpt_step;
struct ckpt_store;

#define CKPT_PACKING_IN_THE_MAKING UINT32_MAX

struct ckpt_packing {
	struct ckpt_store *store;
	uint64_t pack_bytes; // packs are put once they have so many
	uint64_t put_bytes;  // of the packs that were put
	// A pack was put, and is durable; sha256 of the whole object. NULL: nobody is told.
	void (*told)(void *arg, const struct ckpt_pack *pack, const uint8_t *sha256);
	void *told_arg;
	struct ckpt_codec *codec;
	struct ckpt_pack_writer *writer;
	// By id, open addressing; a power of two of them, at most half full. A chunk's pack is its row + 1 in packs, or
	// CKPT_PACKING_IN_THE_MAKING.
	struct ckpt_packing_place *places;
	size_t place_count, place_cap;
	uint8_t (*making)[CKPT_SHA256_LEN]; // ids of the chunks in the pack in the making
	size_t making_count, making_cap;
	struct ckpt_packing_pack *packs;
	size_t pack_count, pack_cap;
};

// Packs that were put for a step and are in no version of it yet; guarded by store->lock.
struct ckpt_unnamed {
	struct ckpt_pack *unnamed; // malloc'ed
	size_t unnamed_count;
};
CKPT_PART(struct ckpt_step, struct ckpt_unnamed, ckpt_unnamed)

int ckpt_packing_init(struct ckpt_packing *p, struct ckpt_store *s, uint64_t pack_bytes);
// The codec and the buffer of the writer go, with a pack in the making that was not put: its chunks have no place. ckpt_packing_ready() makes
// them again, before a chunk is added. 0, -ENOMEM.
void ckpt_packing_rest(struct ckpt_packing *p);
int ckpt_packing_ready(struct ckpt_packing *p);
void ckpt_packing_done(struct ckpt_packing *p); // zeroed is fine

// NULL: it has no place.
const struct ckpt_chunk *ckpt_packing_find(const struct ckpt_packing *p, const uint8_t id[CKPT_SHA256_LEN]);
// Takes an encoded chunk, as ckpt_pack_writer_add() does: reads id, bytes and how of it. The index learns of a pack that is put.
int ckpt_packing_add(struct ckpt_packing *p, const struct ckpt_chunk *chunk, const void *stored, const void *plain);
// Before it is read whether a chunk is in this pack. -ESTALE it is about to be removed, here or in the remote.
int ckpt_packing_hold(struct ckpt_packing *p, const struct ckpt_pack *pack);
// It is there, in a pack that is held.
int ckpt_packing_use(struct ckpt_packing *p, const struct ckpt_chunk *chunk, const struct ckpt_pack *pack);
int ckpt_packing_put(struct ckpt_packing *p);
// Removes the packs that were put, which no version of ours may name, but for those that somebody else has found. What cannot be
// removed is expected as garbage. The bytes that were removed; packs that an earlier call removed are left out.
uint64_t ckpt_packing_drop(struct ckpt_packing *p);
// The same of a step that went meanwhile: they stay, as garbage that gc expects.
void ckpt_packing_expect_garbage(const struct ckpt_packing *p);
// The same of those that a version's manifest does not name; NULL: of all that were not dropped.
void ckpt_packing_expect_unnamed(const struct ckpt_packing *p, const struct ckpt_manifest *m);
// It is to be gone on with, and finds them. Should the step go before, gc expects them.
void ckpt_packing_leave(const struct ckpt_packing *p, struct ckpt_step *step);
// As ckpt_edit's locate: where a chunk that has a place is. False: it has none, or its pack was not put; both are as they were.
bool ckpt_packing_locate(const struct ckpt_packing *p, struct ckpt_chunk *chunk, struct ckpt_pack *pack);
