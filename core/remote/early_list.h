// The packs that were put before the commit of their step, in a file of the node's store, `early`, so that a crash leaves garbage that is
// known as such (core/cold/garbage.h). Losing it loses nothing: garbage is asked about then, if it is most of what is there.
//
// Ownership: the caller's. Threads: one at a time. Blocks on the disk. What fails is not written down.
#pragma once

#include "core/record/manifest.h"

struct ckpt_store;

#define CKPT_EARLY_LIST_MAX 65536u // packs

struct ckpt_early_list {
	uint8_t (*ids)[CKPT_SHA256_LEN];
	size_t count, cap;
};

// Left-overs of a process before are garbage.
void ckpt_early_list_load(struct ckpt_early_list *l, struct ckpt_store *s);
void ckpt_early_list_add(struct ckpt_early_list *l, struct ckpt_store *s, const struct ckpt_pack *pack);
// Those that a version names are no garbage any more.
void ckpt_early_list_named(struct ckpt_early_list *l, struct ckpt_store *s, const struct ckpt_manifest *m);
// The store itself has noted what is garbage, and is closed. The file goes.
void ckpt_early_list_end(struct ckpt_early_list *l, struct ckpt_store *s);
