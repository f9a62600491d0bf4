// Objects of a remote as a collection sees them (collect.h), and what of them is needed. For collect*.c only.
//
// Marks stay when they are made again for a later entry of the log: what was needed once is not condemned by this collection.
// Threads: one, that of the collection. Calls block on the disk and on the network. Errors: say() has said why.
#pragma once

#include "core/base/hash.h"
#include "core/base/keys.h"
#include "core/log/log.h"
#include "core/record/manifest.h"
#include "core/remote/collect.h"

struct ckpt_state;

struct ckpt_collect_object {
	uint8_t name[CKPT_SHA256_LEN];
	uint64_t bytes;
	int64_t mtime_ns;
	uint64_t condemned; // the entry that says so; 0: none does
	bool live;
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
	struct ckpt_collect_time *times;
	size_t time_count, time_cap;
};

// The time of an entry of the log, by the store's clock, as far as it was asked for.
struct ckpt_collect_time {
	uint64_t seq;
	int64_t put_ns;
};
int ckpt_collect_entry_time(struct ckpt_collecting *c, uint64_t seq, int64_t *ret_put_ns);

// Says why, and is rc.
__attribute__((format(printf, 3, 4))) int ckpt_collect_fail(struct ckpt_collecting *c, int rc, const char *why, ...);

static inline bool ckpt_collect_goes_on(const struct ckpt_collecting *c)
{
	return !c->how->go_on || c->how->go_on(c->how->arg, 0);
}

void ckpt_collect_count_object(struct ckpt_collect_count *to, const struct ckpt_collect_object *o);

// NULL: it was not listed.
struct ckpt_collect_object *ckpt_collect_find(const struct ckpt_collect_list *list,
					      const uint8_t name[CKPT_SHA256_LEN]);
// From the state as it is now: c->at is where, and each object is live, and condemned, that is so there.
int ckpt_collect_mark_live(struct ckpt_collecting *c);
// Objects that entries of the log have named, up to c->at: it reads all of it. What cannot be read names nothing.
int ckpt_collect_mark_named(struct ckpt_collecting *c);
