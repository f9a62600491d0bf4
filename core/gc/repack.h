// Repacking: what steps need of half-dead packs, of which they need less than half, goes into new ones, so that the old ones are
// garbage. Each step gets a version with the same entries that says where its chunks are; what two steps share they share
// afterwards.
//
// A chunk is moved as it is stored, once it was decoded and is what its id says. One that is damaged stays where it is, and so does
// its pack. The order is that of cooling: the packs are durable, then a version names them, then nothing needs the old ones. Those go
// when garbage is collected next, which sees what is open.
//
// The new packs are pinned from before they are put until their versions are applied (pack_pins.h). Steps are cooled and collected
// meanwhile: what another act has named of a pack that is emptied keeps it.
//
// Calling sequence: ckpt_repack_choose(), ckpt_repack().
// Ownership: the caller's. Threads: one. Blocks on the disk.
#pragma once

#include "core/record/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_step;
struct ckpt_store;

enum ckpt_sparse_fate {
	CKPT_SPARSE_CHOSEN,  // and emptied, when ckpt_repack() is through
	CKPT_SPARSE_LATER,   // the round has enough
	CKPT_SPARSE_NO_ROOM, // the disk has not twice the room that it needs
	CKPT_SPARSE_DAMAGED, // some chunk of it cannot be read, and stays
	CKPT_SPARSE_NEEDED,  // a step is being changed or removed, and goes on needing it, or what is damaged does
};

struct ckpt_sparse {
	struct ckpt_pack pack;
	uint64_t used_bytes, used_chunks, unused_bytes; // of its chunks
	bool stuck;                                     // a round before could not empty it
	enum ckpt_sparse_fate fate;
};

#define CKPT_REPACK_CHUNKS_MAX                                                                                         \
	(UINT64_C(1) << 18) // of a round: the table of places has a hundred bytes for each, or twice as many

struct ckpt_repack_how {
	uint64_t bytes_max, chunks_max; // to move in this round
	bool gently;                    // most of the time for others
	bool quiet;                     // damage is in the error log already
	// After each chunk: may end the act by answering false. NULL: on and on.
	bool (*go_on)(void *arg);
	void *arg;
};

// Half-dead: it is needed, and less than half of it is. unused_bytes as of ckpt_pack_use_unused().
bool ckpt_is_sparse(uint64_t used_bytes, uint64_t unused_bytes);
// Says of packs, in any order, which are to be repacked in this round: those that give most for what is to be moved, and what is stuck
// after all others.
void ckpt_repack_choose(struct ckpt_store *s, struct ckpt_sparse *packs, size_t count,
			const struct ckpt_repack_how *how);
// Moves what these steps, which are all that need them, need of the packs that were chosen. packs: by id. The stored bytes that were
// moved are said in any case. -EINTR go_on said no; -EIO the outcome of a version is unknown; -ENOSPC, ... What was put is
// removed again where no version may name it.
int ckpt_repack(struct ckpt_store *s, struct ckpt_sparse *packs, size_t count, struct ckpt_step *const *steps,
		size_t step_count, const struct ckpt_repack_how *how, uint64_t *ret_bytes);
// What a committed step needed before it was repacked: the manifests of its versions below one of that event, as far as they can be
// read, down to the last act that changed which files there are.
void ckpt_repack_each_before(struct ckpt_step *step, void (*fn)(void *arg, const struct ckpt_manifest *m), void *arg);
