// One round of a collection, as its files share it: gc.c, which decides and acts, and gc_mark.c, which finds what is needed. For
// gc*.c only.
// Threads: one, that of the collection. All calls block on the disk. Errors: done->why says what it was.
#pragma once

#include "core/cold/pack.h"
#include "core/cold/pack_use.h"
#include "core/gc/gc.h"
#include "core/gc/repack.h"

struct ckpt_gc_known;

enum ckpt_gc_use { CKPT_GC_USE_NONE, CKPT_GC_USE_OPEN, CKPT_GC_USE_LIVE };

struct ckpt_gc_pack {
	struct ckpt_pack pack;
	int64_t mtime_ns;
	enum ckpt_gc_use use;
	bool goes;
	bool open;      // and it may be CKPT_GC_USE_LIVE as well
	bool fixed;     // by what cannot be repacked
	bool emptied;   // by repacking
	bool condemned; // pack_pins.h
};

struct ckpt_gc_round {
	struct ckpt_store *store;
	const struct ckpt_gc_how *how;
	struct ckpt_gc_done *done;
	struct ckpt_gc_pack *packs; // by id, as they are listed
	size_t pack_count, pack_cap;
	struct ckpt_gc_known *known; // by session; gc_mark.c's, as are the strangers
	size_t known_count, known_cap;
	struct ckpt_summary *strangers;
	size_t stranger_count, stranger_cap;
	struct ckpt_step **cold; // that need packs and can be repacked; references
	size_t cold_count, cold_cap;
	struct ckpt_pack_use use; // what those need, in the order of packs
	struct ckpt_sparse *sparse;
	size_t sparse_count, sparse_cap;
	bool moved_on; // a pack was emptied, or is known to be stuck
};

// Says why, and is rc.
__attribute__((format(printf, 3, 4))) int ckpt_gc_fail(struct ckpt_gc_round *g, int rc, const char *why, ...);

static inline bool ckpt_gc_goes_on(const struct ckpt_gc_round *g)
{
	return !g->how->go_on || g->how->go_on(g->how->arg);
}

// In this order: the packs that there are; what the steps need, and then the versions of the log that the table does not know; what
// is open; and what is pinned.
int ckpt_gc_list_packs(struct ckpt_gc_round *g);
int ckpt_gc_mark_steps(struct ckpt_gc_round *g);
int ckpt_gc_mark_strangers(struct ckpt_gc_round *g);
int ckpt_gc_mark_open_files(struct ckpt_gc_round *g);
void ckpt_gc_mark_pinned(struct ckpt_gc_round *g);
// By its id; NULL: it is not listed.
struct ckpt_gc_pack *ckpt_gc_find_pack(const struct ckpt_gc_round *g, const uint8_t id[CKPT_SHA256_LEN]);
void ckpt_gc_mark_done(struct ckpt_gc_round *g); // frees what these have made
