#include "core/remote/collect_repack.h"

#include "core/base/many.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/gc/repack.h"
#include "core/save/limit.h"
#include "core/step/amending.h"
#include "core/step/removal.h"

#include <string.h>

#define AT_ONCE 16u // tails of packs that are read

struct repacking {
	struct ckpt_collecting *c;
	struct ckpt_sparse *packs; // by id
	int *failed;               // of each: why its tail cannot be read
	size_t count, cap;
	struct ckpt_step **steps; // references; of them the first step_count can be repacked
	size_t step_count;
};

static void done_with(struct repacking *r)
{
	for (size_t i = 0; i < r->step_count; i++)
		ckpt_step_unref(r->steps[i]);
	free(r->steps);
	free(r->packs);
	free(r->failed);
}

int ckpt_collect_count_use(struct ckpt_collecting *c)
{
	int rc = 0;

	c->counts_use = c->how->repack.bytes_max || c->how->dry_run;
	for (size_t i = 0; i < c->packs.count && c->counts_use && !rc; i++) {
		struct ckpt_pack pack = {.bytes = c->packs.at[i].bytes};

		memcpy(pack.id, c->packs.at[i].name, sizeof(pack.id));
		rc = ckpt_pack_use_pack(&c->use, &pack);
	}
	return rc;
}

// --- Which packs --------------------------------------------------------------------------------------------------------

static int add_candidates(struct repacking *r)
{
	const struct ckpt_collecting *c = r->c;
	int rc = 0;

	for (size_t i = 0; i < c->use.count && !rc; i++) {
		const struct ckpt_used_pack *u = &c->use.packs[i];
		const struct ckpt_collect_object *o = &c->packs.at[i];

		if (!o->live || o->condemned || o->fixed || ckpt_collect_is_young(c, o) || !u->used_bytes ||
		    u->used_bytes >= u->pack.bytes / 2)
			continue;
		rc = ckpt_grow((void **)&r->packs, &r->cap, r->count + 1, sizeof(*r->packs));
		if (!rc)
			r->packs[r->count++] = (struct ckpt_sparse){
				.pack = u->pack, .used_bytes = u->used_bytes, .used_chunks = u->used_chunks};
	}
	return rc;
}

static void read_tail(void *arg, size_t i)
{
	struct repacking *r = arg;
	struct ckpt_sparse *p = &r->packs[i];
	const struct ckpt_used_pack u = {.pack = p->pack, .used_bytes = p->used_bytes};

	r->failed[i] = ckpt_pack_use_unused(&u, r->c->store->objects, &p->unused_bytes);
}

static bool goes_on(void *arg)
{
	return ckpt_collect_goes_on(((struct repacking *)arg)->c);
}

// One whose tail cannot be read is left to `ckptfs verify`.
static int keep_sparse(struct repacking *r)
{
	const struct ckpt_many many = {
		.count = r->count, .at_once = AT_ONCE, .call = read_tail, .go_on = goes_on, .arg = r};
	size_t kept = 0;

	r->failed = ckpt_calloc(r->count + 1, sizeof(*r->failed));
	if (!r->failed)
		return -ENOMEM;
	if (!ckpt_many_run(&many))
		return -EINTR;
	for (size_t i = 0; i < r->count; i++)
		if (!r->failed[i] && ckpt_is_sparse(r->packs[i].used_bytes, r->packs[i].unused_bytes))
			r->packs[kept++] = r->packs[i];
	r->count = kept;
	return 0;
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct ckpt_sparse *)a)->pack.id, ((const struct ckpt_sparse *)b)->pack.id,
		      CKPT_SHA256_LEN);
}

// The fate of one that no step of this node needs any more stays CKPT_SPARSE_LATER.
static void see_needs(struct repacking *r, const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct ckpt_sparse want, *found;

		ckpt_manifest_pack(m, i, &want.pack);
		found = bsearch(&want, r->packs, r->count, sizeof(*r->packs), by_id);
		if (found)
			found->fate = CKPT_SPARSE_CHOSEN;
	}
}

static bool can_be_repacked(struct ckpt_step *step)
{
	return ckpt_step_state(step) == CKPT_STEP_COMMITTED && !ckpt_step_is_reopened(step) && !ckpt_removal_any(step);
}

static int look_at_steps(struct repacking *r)
{
	struct ckpt_step **list;
	size_t count;
	int rc = ckpt_step_list(r->c->store, NULL, 1u << CKPT_STEP_COMMITTED, &list, &count);

	if (rc)
		return rc;
	r->steps = ckpt_calloc(count + 1, sizeof(struct ckpt_step *));
	rc = r->steps ? 0 : -ENOMEM;
	for (size_t i = 0; i < count && !rc; i++) {
		struct ckpt_manifest *m;

		rc = ckpt_collect_goes_on(r->c) ? 0 : -EINTR;
		if (rc || !can_be_repacked(list[i]) || ckpt_step_manifest(list[i], &m))
			continue;
		see_needs(r, m);
		ckpt_manifest_unref(m);
		r->steps[r->step_count++] = ckpt_step_ref(list[i]);
	}
	ckpt_step_list_free(list, count);
	return rc;
}

static void keep_needed(struct repacking *r)
{
	size_t kept = 0;

	for (size_t i = 0; i < r->count; i++)
		if (r->packs[i].fate == CKPT_SPARSE_CHOSEN)
			r->packs[kept++] = r->packs[i];
	r->count = kept;
}

static int find(struct repacking *r)
{
	int rc = add_candidates(r);

	if (!rc)
		rc = keep_sparse(r);
	for (size_t i = 0; i < r->count; i++)
		r->packs[i].fate = CKPT_SPARSE_LATER;
	if (!rc && r->count)
		rc = look_at_steps(r);
	if (!rc)
		keep_needed(r);
	return rc;
}

// --- Moving -------------------------------------------------------------------------------------------------------------

// New packs stand on this node until they are pushed, and work_limit counts them.
static uint64_t bytes_max(const struct repacking *r)
{
	struct ckpt_limit *limit = *ckpt_limit_of(r->c->store);
	uint64_t most = 0;

	for (size_t i = 0; i < r->count; i++)
		most += r->packs[i].used_bytes;
	if (!r->c->how->dry_run)
		most = MIN(most, r->c->how->repack.bytes_max);
	while (most && ckpt_limit_try(limit, 0, most))
		most /= 2;
	return most;
}

static void count(struct repacking *r, uint64_t moved_bytes)
{
	struct ckpt_collect_done *done = r->c->done;

	for (size_t i = 0; i < r->count; i++) {
		const struct ckpt_sparse *p = &r->packs[i];

		done->half_dead.objects++;
		done->half_dead.bytes += p->unused_bytes;
		done->damaged += p->fate == CKPT_SPARSE_DAMAGED;
		if (p->fate != CKPT_SPARSE_CHOSEN)
			continue;
		done->repacked.objects++;
		done->repacked.bytes += r->c->how->dry_run ? p->used_bytes : 0;
	}
	done->repacked.bytes += moved_bytes;
}

static int move(struct repacking *r)
{
	const struct ckpt_collect_how *of = r->c->how;
	const struct ckpt_repack_how how = {.bytes_max = bytes_max(r),
					    .chunks_max = of->dry_run ? UINT64_MAX : CKPT_REPACK_CHUNKS_MAX,
					    .gently = of->repack.gently,
					    .quiet = of->repack.quiet,
					    .go_on = goes_on,
					    .arg = r};
	uint64_t moved_bytes = 0;
	int rc = 0;

	if (how.bytes_max)
		ckpt_repack_choose(r->c->store, r->packs, r->count, &how);
	else
		for (size_t i = 0; i < r->count; i++)
			r->packs[i].fate = CKPT_SPARSE_NO_ROOM;
	if (!of->dry_run && how.bytes_max)
		rc = ckpt_repack(r->c->store, r->packs, r->count, r->steps, r->step_count, &how, &moved_bytes);
	if (!rc)
		count(r, moved_bytes);
	return rc;
}

int ckpt_collect_repack(struct ckpt_collecting *c)
{
	struct repacking r = {.c = c};
	int rc = c->counts_use ? find(&r) : 0;

	if (!rc && r.count)
		rc = move(&r);
	done_with(&r);
	return rc && rc != -EINTR
		       ? ckpt_collect_fail(c, rc, "what is needed of half-dead packs cannot be put elsewhere: %s",
					   strerror(-rc))
		       : rc;
}
