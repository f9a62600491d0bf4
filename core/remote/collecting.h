// One collection on a remote, as its files share it: collect.c, which decides, and those that find what is needed, remove and repack. For
// collect*.c only.
//
// Threads: one, that of the collection. Blocks: ckpt_collect_entry_time() alone, on the network.
#pragma once

#include "core/base/hash.h"
#include "core/base/keys.h"
#include "core/cold/pack_use.h"
#include "core/log/log.h"
#include "core/record/manifest.h"
#include "core/remote/collect_how.h"
#include "core/step/store.h"

struct ckpt_collect_object {
	uint8_t name[CKPT_SHA256_LEN];
	uint64_t bytes;
	int64_t mtime_ns;
	uint64_t condemned; // the entry that says so; 0: none does
	bool live;
	bool fixed;     // by what cannot be repacked (collect_repack.h)
	bool was_named; // by an entry of the log (ckpt_collect_mark_named())
	bool goes;      // it is to be condemned
};

struct ckpt_collect_list {
	struct ckpt_collect_object *at; // by name
	size_t count, cap;
};

struct ckpt_collecting {
	struct ckpt_store *store;
	struct ckpt_objects *there;
	const struct ckpt_collect_how *how;
	struct ckpt_collect_done *done;
	int64_t now_ns; // by the store's clock, at the beginning
	struct ckpt_collect_list packs, manifests;
	struct ckpt_log_position at; // the entry up to which marks were made
	struct ckpt_keys read;       // manifests that were read, by a part of their SHA-256
	bool counts_use, is_fixed;   // what is needed of packs is counted; what is marked now cannot be repacked
	struct ckpt_pack_use use;    // in the order of packs, of all that can be repacked; empty: it is not counted
	struct ckpt_collect_time *times;
	size_t time_count, time_cap;
};

// The time of an entry of the log, by the store's clock, as far as it was asked for.
struct ckpt_collect_time {
	uint64_t seq;
	int64_t put_ns;
};
int ckpt_collect_entry_time(struct ckpt_collecting *c, uint64_t seq, int64_t *ret_put_ns);

// done->why says it. Is rc.
__attribute__((format(printf, 3, 4))) int ckpt_collect_fail(struct ckpt_collecting *c, int rc, const char *why, ...);

static inline bool ckpt_collect_goes_on(const struct ckpt_collecting *c)
{
	return !c->how->go_on || c->how->go_on(c->how->arg, 0);
}

// Too young to be a candidate.
static inline bool ckpt_collect_is_young(const struct ckpt_collecting *c, const struct ckpt_collect_object *o)
{
	return c->how->grace_ns && c->now_ns - o->mtime_ns < c->how->grace_ns;
}

void ckpt_collect_count_object(struct ckpt_collect_count *to, const struct ckpt_collect_object *o);

// NULL: it was not listed.
struct ckpt_collect_object *ckpt_collect_find(const struct ckpt_collect_list *list,
					      const uint8_t name[CKPT_SHA256_LEN]);
