// Packs that an act is about to name in a version, held so that no collection removes them meanwhile (core/cold/pack_pins.h).
//
// Calling sequence: zeroed but for store; ckpt_pack_hold_add() for each manifest; _done() once the version is applied, or given up.
// Ownership: the caller's; it has a reference to each manifest. Threads: one. Blocks on the store: it is asked for each pack.
#pragma once

#include "core/record/manifest.h"

struct ckpt_store;

struct ckpt_pack_hold {
	struct ckpt_store *store;
	struct ckpt_manifest **held; // all packs of each
	size_t count, cap;
	struct ckpt_held_pack *packs; // each once
	size_t pack_count, pack_cap;
};

// 0; -ENODATA: one is gone, or about to go; -ENOMEM, ... After an error some may be held.
int ckpt_pack_hold_add(struct ckpt_pack_hold *h, struct ckpt_manifest *m);
// Only the packs that the bytes of one file are in, and those that are decoded beside them.
int ckpt_pack_hold_file(struct ckpt_pack_hold *h, const struct ckpt_manifest *m, uint32_t index);
void ckpt_pack_hold_done(struct ckpt_pack_hold *h);
